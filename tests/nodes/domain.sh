# A domain as 'hpmmap vm xml' prints it, on the CPUs of a partition: libvirt as Debian packages it puts each vCPU on its CPU
# with its policy, and QEMU's other threads on the CPU that is left. The host is as before in the end.
# suites: bookworm
# cpus: 4
# timeout: 1800
# files: count.S ../vm/guest/host_state.py

POOL_MIB=512
VM=/hpmmap_vm.slice
LOG=/var/lib/libvirt/images/guest.log
# What the firmware has said last.
said() { tail -n 1 $LOG 2>/dev/null | tr -d '\r'; }
counts() { [ -n "$(said)" ]; }
free_is() { [ $(($(cat ${POOL%total_bytes}free_bytes) / MIB)) = "$1" ]; }

step 'a host'
gcc -m32 -nostdlib -static -Wl,-Ttext=0,--oformat=binary,--build-id=none -o /var/lib/libvirt/images/count.bin /srv/count.S ||
	fail 'count.S does not build'
modprobe kvm_amd || fail 'no KVM'
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mkdir -p /dev/hpmmap-vm && mount -t hpmmap -o pagesize=2M hpmmap /dev/hpmmap-vm || fail 'no mount'
echo 'hugetlbfs_mount = "/dev/hpmmap-vm"' >>/etc/libvirt/qemu.conf
systemctl start libvirtd.service || fail 'libvirtd does not start'
python3 /srv/host_state.py /tmp/before

step 'a domain in a partition'
hpmmap partition create vm --cpus 1-3 --memory 256M || fail 'no partition'
hpmmap vm xml --memory 256M --page-size 2M --cpus 2 --partition vm --fifo >/tmp/guest.xml || fail 'there is no domain'
cat /tmp/guest.xml
virsh define /tmp/guest.xml || fail 'libvirt does not take the domain'
# As an administrator adds disk, network and console.
cat >/tmp/edit <<-'END'
	s|^ *<type arch=.*|&<loader readonly='yes' type='rom'>/var/lib/libvirt/images/count.bin</loader>|
	s|^ *<devices>|&<serial type='file'><source path='/var/lib/libvirt/images/guest.log'/></serial>|
END
EDITOR='sed -i -f /tmp/edit' virsh edit guest || fail 'it cannot be edited'
virsh start guest || fail "it does not start: $(tail -n 5 /var/log/libvirt/qemu/guest.log; journalctl --no-pager -u libvirtd | tail -n 5)"
pid=$(cat /run/libvirt/qemu/guest.pid)
within 600 counts || fail "the guest does not count: $(tail -n 3 /var/log/libvirt/qemu/guest.log)"
free_is $((POOL_MIB - 256)) || fail "the pool: $(hpmmap pool list)"

step 'its threads'
# Every thread of QEMU: its cgroup, its CPUs and its policy.
placed() {
	local task name wanted cpus found
	for task in /proc/"$pid"/task/*; do
		read -r name <"$task/comm" || continue
		cpus=1 wanted=SCHED_OTHER
		[[ $name != CPU*/KVM ]] || { cpus=$((${name//[!0-9]/} + 2)) wanted='SCHED_FIFO 1'; }
		found="$(sed -n 's/^Cpus_allowed_list:\t//p' "$task/status") $(chrt -p "${task##*/}" | sed 's/.*: //' | tr '\n' ' ')"
		echo "$name: CPUs $found$(cat "$task/cgroup")"
		[[ "$found " == "$cpus $wanted "* ]] || fail "thread $name has $found, not CPUs $cpus with $wanted"
		[[ $(cat "$task/cgroup") == 0::$VM/machine-qemu* ]] || fail "thread $name is in $(cat "$task/cgroup")"
	done
}
placed
systemctl daemon-reload
placed >/dev/null
[ "$(cat /sys/fs/cgroup$VM/cpuset.cpus.partition)" = isolated ] || fail "it is $(cat /sys/fs/cgroup$VM/cpuset.cpus.partition)"

step 'the report and the partition'
hpmmap vm status "$pid" --json >/tmp/status
hpmmap vm status "$pid"
python3 - /tmp/status <<'END' || fail "vm status: $(cat /tmp/status)"
import json, sys
(vm,) = json.load(open(sys.argv[1]))["vms"]
assert vm["partition"] == "vm" and vm["user"] == "libvirt-qemu", vm
assert [(one["cpus"], one["cpu"], one["fifo"]) for one in vm["vcpus"]] == [("2", 2, 1), ("3", 3, 1)], vm["vcpus"]
assert vm["vcpus"][0]["run_ns"] > 0, vm["vcpus"]
END
# Linux 6.1 counts a thread of KVM as a process.
hpmmap partition list | grep -E '^vm +1-3 .* 256M +256M +[12] +ready, isolated' || fail "the partition: $(hpmmap partition list)"
said=$(hpmmap partition delete vm 2>&1) && fail 'with a guest in it the partition is deleted'
[[ $said == *'has '[12]' process'* ]] || fail "it said: $said"
counted=$(said)
goes_on() { [ "$(said)" -gt "$counted" ]; }
within 300 goes_on || fail "it came to $counted, and counts no more"

step 'the end'
virsh destroy guest && virsh undefine guest || fail 'it is not destroyed'
within 30 free_is $POOL_MIB || fail "the pool: $(hpmmap pool list)"
hpmmap partition delete vm || fail 'the partition is not deleted'
[ ! -e /sys/fs/cgroup$VM ] || fail 'its slice is left'
left=$(python3 /srv/host_state.py /tmp/after /tmp/before | grep -v -e 'None -> ' -e ' -> None' -e 'are as before$')
[ -z "$left" ] || fail "not as before: $left"
umount /dev/hpmmap-vm || fail 'the mount is in use'

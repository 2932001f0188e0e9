#!/bin/bash
# A virtual machine by the options that 'hpmmap vm' prints, on CPUs of a partition: its nested entries, its exits,
# where its threads run, and that all comes back. Its firmware writes to all of its memory.
# machine: partition
# pool: 512M
# takes: 65
# tier: all  KVM, and what the command reads of it, are the same on all kernels
# timeout: 300
# paths: crates/hpmmap/src/vm/* crates/hpmmap/src/verbs/vm.rs crates/hpmmap-host/src/vm.rs tests/vm/guest/inner.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup firmware
guest=$HPMMAP_ROOT/tests/vm/guest
export PYTHONDONTWRITEBYTECODE=1
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
python3 "$guest/host_state.py" /tmp/before
poll=/sys/module/kvm/parameters/halt_poll_ns runtime=/proc/sys/kernel/sched_rt_runtime_us
before=$(cat $poll $runtime)

ram=(--memory 256M --cpus 2 --partition vm)
hpmmap partition create vm --cpus 1-3 --halt-poll-ns 1000 --no-rt-throttling
[ "$(cat $poll $runtime)" = $'1000\n-1' ] || fail "halt polling and RT throttling are $(cat $poll $runtime)"
expect_error 1 'mount -t hpmmap -o pagesize=2M hpmmap /dev/hpmmap-vm' hpmmap vm qemu "${ram[@]}"
mkdir -p /dev/hpmmap-vm
mount -t hpmmap -o pagesize=2M hpmmap /dev/hpmmap-vm
expect_error 1 'the pools have only 512M: hpmmap pool add --size 4G --up-to' hpmmap vm qemu --memory 4G
expect_error 1 'has 3 CPUs, and 3 vCPUs need one each and one for the other' \
	hpmmap vm xml --memory 256M --cpus 3 --partition vm --fifo
expect_error 1 'is cgroup /hpmmap_vm, and libvirt starts guests only in slices' hpmmap vm xml "${ram[@]}"
expect_error 2 'there is no PCI device' hpmmap vm xml --memory 256M --device ff:1f.7

options=$(hpmmap vm qemu "${ram[@]}")
echo "$options"
[ "${options%%qemu-system*}" = $'hpmmap run --partition vm -- \\\n  ' ] || fail "it does not begin in the partition"
INNER_UNDER=(hpmmap run --partition vm --)
eval "inner_start vm ${options#*qemu-system-x86_64} -S"
within 60 grep -q . $INNER/vm/pid || inner_lost vm "it does not start"
pid=$(cat $INNER/vm/pid)
pin() {
	hpmmap vm pin "$pid" --fifo >/tmp/pinned
}
within 30 pin || fail "vm pin: $(hpmmap vm pin "$pid" --fifo 2>&1)"
grep 'vCPUs: 0 on 2, 1 on 3; the other threads have CPUs 1$' /tmp/pinned || fail "vCPUs are elsewhere: $(cat /tmp/pinned)"
for task in /proc/"$pid"/task/*; do
	read -r name <"$task/comm"
	case $name in
	CPU*/KVM) wanted="$((${name//[!0-9]/} + 2)) SCHED_FIFO" ;;
	*) wanted="1 SCHED_OTHER" ;;
	esac
	found="$(sed -n 's/^Cpus_allowed_list:\t//p' "$task/status") $(chrt -p "${task##*/}" | grep -o 'SCHED_[A-Z]*' | head -n 1)"
	[ "$found" = "$wanted" ] || fail "thread $name has $found, not $wanted"
done
# One that never sleeps, as the firmware at its end, lets no thread of the kernel run on its CPU then.
for task in /proc/"$pid"/task/*; do
	[[ $(cat "$task/comm") != CPU* ]] || chrt --other --pid 0 "${task##*/}"
done

inner_qmp vm cont >/dev/null
within 120 grep -q 'wrong' $INNER/vm/console || inner_lost vm "its firmware does not end"
cat $INNER/vm/console
grep -q ', wrong 00000000' $INNER/vm/console || fail "its memory is not what it wrote"
hpmmap vm status --seconds 3
hpmmap vm status "$pid" --seconds 3 --json >/tmp/status.json
python3 - "$pid" <<'PYTHON'
import json
import sys

report = json.load(open("/tmp/status.json"))
(vm,) = report["vms"]
assert report["schema"] == 1 and not report["unknown"], report
assert vm["pid"] == int(sys.argv[1]) and vm["partition"] == "vm" and vm["user"] == "root", vm
# All but what is beside the holes of the first megabytes.
nested = vm["nested"]
assert nested["2m_bytes"] >= 252 << 20 and nested["4k_bytes"] < 4 << 20 and nested["1g_bytes"] == 0, nested
assert [(one["vcpu"], one["cpus"], one["cpu"], one["fifo"]) for one in vm["vcpus"]] == [(0, "2", 2, None), (1, "3", 3, None)]
# One waits by a loop, the other has never been started. Nothing else runs on their CPUs.
first, second = vm["vcpus"]
assert first["run_ns"] > 10**9 > 10**7 > second["run_ns"], vm["vcpus"]
assert all(one["steal_ns"] < 10**8 for one in vm["vcpus"]), vm["vcpus"]
exits = {one["reason"]: one["count"] for one in vm["exits"]}
assert exits["io"] > 100 and not any(reason.startswith("0x") for reason in exits), exits
assert vm["interrupts"] and {one["cpu"] for one in vm["interrupts"]} <= {2, 3}, vm["interrupts"]
PYTHON
as_member hpmmap vm status --seconds 0.1 | grep 'only root sees them' || fail "a user is not told what root sees"
expect_error 2 'has no virtual machine that you may see' as_member hpmmap vm status "$pid"
expect_error 2 'has no virtual machine that you may see' as_member hpmmap vm pin "$pid"
inner_qmp vm quit >/dev/null
within 30 inner_gone vm || inner_lost vm "it does not quit"
[ -z "$(ls /sys/kernel/tracing/instances)" ] || fail "a tracing instance is left: $(ls /sys/kernel/tracing/instances)"
umount /dev/hpmmap-vm
hpmmap partition delete vm
[ "$(cat $poll $runtime)" = "$before" ] || fail "halt polling and RT throttling are $(cat $poll $runtime), and were $before"
python3 "$guest/host_state.py" /tmp/after /tmp/before || fail "the host is not as it was"
expect_pool_free

# Partitions where systemd is process 1 and Debian's irqbalance runs: the slice outlives reloads, a user comes in
# through the socket, irqbalance leaves the CPUs alone, and the host is as before whatever is killed.
# suites: trixie
# cpus: 4
# files: ../vm/guest/host_state.py

mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
slice=/sys/fs/cgroup/hpmmap_quiet.slice
# The mask of CPUs that irqbalance gives no interrupts.
banned() {
	python3 -c 'import glob, socket
asked = socket.socket(socket.AF_UNIX)
asked.settimeout(10)
asked.connect(glob.glob("/run/irqbalance/*.sock")[0])
asked.send(b"setup")
print(int(asked.recv(4096).decode().split("BANNED ")[1].strip("\0").replace(",", ""), 16))' 2>/dev/null
}
banned_is() { [ "$(banned)" = "$1" ]; }
# Services that come and go have files of their own, and an interrupt is where irqbalance has put it.
as_before() { # WHEN
	local left
	left=$(python3 /srv/host_state.py /tmp/after /tmp/before |
		grep -v -e 'None -> ' -e ' -> None' -e '^/proc/irq/[0-9]' -e 'are as before$')
	[ -z "$left" ] || fail "$1, not as before: $left"
	within 60 banned_is "$allowed" || fail "$1: irqbalance leaves out the CPUs of mask $(banned), before $allowed"
}
# Interrupts that are for a CPU of the partition and can be moved; CPUs 2-3 are the mask c.
strays() {
	local irq
	for irq in /proc/irq/[0-9]*; do
		[ $((0x$(tr -d , <"$irq/smp_affinity") & 12)) = 0 ] || ! echo 0-1 2>/dev/null >"$irq/smp_affinity_list" || echo "${irq##*/}"
	done
}

step 'before'
systemctl start irqbalance || fail 'irqbalance does not start'
within 60 banned >/dev/null || fail "irqbalance does not answer: $(journalctl --no-pager -u irqbalance | tail -n 5)"
allowed=$(banned)
python3 /srv/host_state.py /tmp/before

step 'a partition'
hpmmap partition create quiet --cpus 2-3 --memory 64M --user alice || fail 'no partition'
within 60 banned_is $((allowed | 12)) || fail "irqbalance leaves out the CPUs of mask $(banned)"
[ -z "$(strays)" ] || fail "interrupts come to the partition: $(strays)"
unit() { systemctl show hpmmap_quiet.slice --property "$1" --value; }
[ "$(unit ActiveState) $(unit AllowedCPUs)" = 'active 2-3' ] || fail "the slice is $(unit ActiveState), with CPUs $(unit AllowedCPUs)"
systemctl daemon-reload
[ "$(cat $slice/cpuset.cpus.partition)" = isolated ] || fail "after a reload it is $(cat $slice/cpuset.cpus.partition)"
said=$(as alice hpmmap run --strict --partition quiet -- cat /proc/self/cgroup) || fail "alice does not get in: $said"
[[ $said == *0::/hpmmap_quiet.slice/hpmmap_quiet-tasks.slice* ]] || fail "alice is in $said"
said=$(as bob hpmmap run --partition quiet -- true) && fail 'bob gets in'
# More than two rounds of irqbalance.
sleep 25
[ -z "$(strays)" ] || fail "irqbalance has brought interrupts to the partition: $(strays)"

step 'the service of the pools'
echo f >/proc/irq/default_smp_affinity
systemctl reload hpmmap-pools || fail 'pools cannot be set beside a partition'
[ $((0x$(tr -d , </proc/irq/default_smp_affinity) & 12)) = 0 ] || fail "new interrupts come to the CPUs $(cat /proc/irq/default_smp_affinity)"

step 'a unit is killed'
systemd-run --quiet --unit work hpmmap run --partition quiet -- sleep 1000 || fail 'no unit'
in_partition() { grep -q . $slice/hpmmap_quiet-tasks.slice/cgroup.procs; }
within 60 in_partition || fail "the unit does not get in: $(journalctl --no-pager -u work)"
said=$(hpmmap partition delete quiet 2>&1) && fail 'with a process in it the partition is deleted'
[[ $said == *'has 1 process'* ]] || fail "it said: $said"
systemctl kill --signal KILL work
is_empty() { ! in_partition; }
within 30 is_empty || fail 'the program of a killed unit is still there'
hpmmap partition delete quiet || fail 'it is not deleted'
[ ! -e $slice ] || fail 'the slice is left'
as_before 'deleted'

step 'commands are killed'
for after in 0.3 0.8 1.5 2.5; do
	timeout --signal KILL $after hpmmap partition create quiet --cpus 2-3 >/dev/null
	hpmmap partition create quiet --cpus 2-3 >/dev/null 2>&1
	timeout --signal KILL $after hpmmap partition delete quiet >/dev/null
	[ ! -e /run/hpmmap/partitions/quiet ] || hpmmap partition delete quiet || fail "killed after $after s it is not deleted"
	as_before "killed after $after s"
done
systemctl stop irqbalance

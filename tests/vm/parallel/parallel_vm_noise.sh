#!/bin/bash
# What the host takes from a virtual CPU beside neighbours that compile, fork and write: exits, switches to other tasks,
# steal time, and detours that a firmware finds in the machine. In a partition the neighbours are away.
# machine: quiet
# pool: 512M
# timeout: 420
# takes: 120
# tier: parallel  CPUs that take turns on one thread of the host interrupt each other
# paths: crates/hpmmap/src/vm/* crates/hpmmap-bpf/ crates/hpmmap-host/src/noise/ crates/hpmmap-trace/src/noise.rs tests/vm/guest/inner.sh tests/vm/guest/neighbours.sh tests/vm/programs/apps/detours.c
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"
. "$(dirname "$0")/../guest/neighbours.sh"

[ -e /sys/kernel/btf/vmlinux ] || skip "this kernel has no BTF, which BPF programs need"
inner_setup firmware
INNER_BOOT=(-bios "$HPMMAP_ROOT/build/tests-vm/apps/detours.bin")
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q $TRACING || mount -t tracefs tracefs $TRACING
DIR=/tmp/vm-noise
mkdir -p $DIR/ram
mount -t hpmmap -o pagesize=2M none $DIR/ram
leave() {
	stop_neighbours
	pkill -9 -P $$ 2>/dev/null || true
	umount -l $DIR/ram 2>/dev/null || true
}
trap leave EXIT
full=$(cat /sys/devices/system/cpu/nohz_full)
echo "nohz_full: $full"

# machine NAME: its vCPU on CPU 3, and what else QEMU has on CPU 2.
machine() {
	inner_start "$1" -name guest,debug-threads=on -m 64M -machine memory-backend=ram \
		-object "memory-backend-file,id=ram,size=64M,mem-path=$DIR/ram,share=on,prealloc=on"
	within 60 test -s "$INNER/$1/pid" || inner_lost "$1" "it does not start"
	pid=$(cat "$INNER/$1/pid")
}
# measure NAME: a search of 3 * 2^32 ticks; then what the host counts in five seconds of a search that lasts. Prints
# them; the counts are in $DIR/NAME.vm and $DIR/NAME.cpu.
measure() {
	echo -n 3 1<>"$INNER/$1/run.in"
	inner_line "$1" run.out 120
	local found=$REPLY
	echo -n z 1<>"$INNER/$1/run.in"
	sleep 1
	hpmmap trace noise --cpu 3 --output "$DIR/$1.cpu" -- sleep 5
	hpmmap vm status "$pid" --seconds 5 --json >"$DIR/$1.vm"
	python3 - "$1" "$DIR/$1.cpu" "$DIR/$1.vm" "$found" <<-'PYTHON'
		import json, sys
		name, cpu, vm, found = sys.argv[1:]
		length, rounds, detours, lost, longest, usual = (int(word, 16) for word in found.split())
		print(f"{name}: in the machine {lost / length:.3%} lost in {detours} detours of {rounds} rounds, longest {longest / length:.3%}")
		[counted] = json.load(open(cpu))["cpus"]
		seconds = json.load(open(cpu))["seconds"]
		kinds = {one["name"]: one["count"] for one in counted["interrupts"]}
		others = {one["name"]: one["switches"] for one in counted["switches"]["others"]}
		print(f"{name}: CPU 3 in {seconds:.1f} s: interrupts {kinds}, switches to {others}")
		report = json.load(open(vm))
		[one] = report["vms"]
		[vcpu] = one["vcpus"]
		exits = {exit["reason"]: exit["count"] for exit in one["exits"]}
		print(f"{name}: vCPU in {report['seconds']:.1f} s: exits {exits}, steal time {vcpu['steal_ns'] / report['seconds'] / 1e9:.3%}")
	PYTHON
}
# judged NAME EXPRESSION: with switches to others, exits a second, and the part of the time
# that is stolen.
judged() {
	python3 - "$DIR/$1.cpu" "$DIR/$1.vm" "$2" <<-'PYTHON'
		import json, sys
		counted, report = (json.load(open(path)) for path in sys.argv[1:3])
		others = counted["cpus"][0]["switches"]["to_others"]
		exits = sum(exit["count"] for exit in report["vms"][0]["exits"]) / report["seconds"]
		assert not any(exit["reason"] == "io" for exit in report["vms"][0]["exits"]), "the search has ended"
		steal = report["vms"][0]["vcpus"][0]["steal_ns"] / report["seconds"] / 1e9
		sys.exit(not eval(sys.argv[3]))
	PYTHON
}

start_neighbours
machine without
for task in /proc/"$pid"/task/*; do
	case $(cat "$task/comm") in
	CPU*) taskset -pc 3 "${task##*/}" >/dev/null ;;
	*) taskset -pc 2 "${task##*/}" >/dev/null ;;
	esac
done
measure without
judged without "others > 10 and exits > 10 and steal > 0.1" || fail "beside neighbours the vCPU is quiet without a partition"
inner_kill without
stop_neighbours

hpmmap partition create vm --cpus 2-3
INNER_UNDER=(hpmmap run --partition vm --)
start_neighbours
machine within
hpmmap vm pin "$pid" | grep -F 'vCPUs: 0 on 3; the other threads have CPUs 2' || fail "the vCPU is elsewhere"
measure within
judged within "others <= 10 and steal < 0.02" || fail "the partition changes too little"
# On 6.1 workers of the kernel stay, with PREEMPT_RT threads for timers and interrupts.
if [ "$full" = 2-3 ] && [ -d /sys/kernel/debug/sched/fair_server ] && [[ $(uname -v) != *PREEMPT_RT* ]]; then
	judged within "exits <= 4" || fail "the tick goes on"
fi
inner_kill within
stop_neighbours
umount $DIR/ram
within 20 hpmmap partition delete vm || fail "the partition is still in use"
expect_pool_free

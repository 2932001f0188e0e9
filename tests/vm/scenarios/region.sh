#!/bin/bash
# Regions: memory at addresses of a program, on a NUMA node, before its first instruction; by hpmmap run and
# by libhpmmap.
# machine: numa
# pool: 0
# takes: 60
# timeout: 300
# tier: newest  the same calls place a region on every kernel, and numa has policies
# paths: kernel/task/ kernel/as/own/job.* kernel/chardev.c lib/process.c crates/hpmmap/src/region.rs crates/hpmmap/src/verbs/run.rs crates/hpmmap/src/verbs/run_memory.rs
# paths: tests/vm/programs/regions.c
. "$(dirname "$0")/../guest/lib.sh"

regions=$HPMMAP_ROOT/build/tests-vm/regions
fixed=$HPMMAP_ROOT/build/tests-vm/regions_fixed
hpmmap pool add --node 0 --size 256M --leave 256M
hpmmap pool add --node 1 --size 256M --leave 256M

# found REGIONS OPTION...: the program finds these regions, and they are right.
found() {
	local want=$1 got
	shift
	got=$("${UNDER[@]}" hpmmap run "$@" -- "$regions" check)
	[ "$got" = "$want" ] || fail "$* gives $got"
	expect_pool_free
}
UNDER=()
found 0x120000000000+0x4000000@1 --region 64M,node=1
found 0x40000000+0x200000@1,0x120000000000+0x200000,0x200000000000+0x2000000@0 \
	--region 2M@0x40000000,node=1 --region 2M --region 32M@0x200000000000,node=0 --image
found 0x120000000000+0x8000000 --region 128M --placement interleave --static 16M
found 0x120000000000+0x800000@1 --strict --node 1 --region 8M,node=1 --page-size 1G
# Whatever the policy of the thread says.
UNDER=(numactl --membind=0)
found 0x120000000000+0x800000@1 --region 8M,node=1
UNDER=(as_member)
found 0x120000000000+0x800000@0 --region 8M,node=0
UNDER=()
HPMMAP_REGIONS=1 hpmmap run -- sh -c '[ -z "$HPMMAP_REGIONS" ]' || fail "regions of another launch are told"

# The numbers of the kernel: the policy, and the pages.
hpmmap run --region 64M@0x200000000000,node=1 -- sleep 1000 &
job=$!
within 30 is_registered $job || fail "sleep is not registered"
grep '^200000000000 bind:1 .*N1=' /proc/$job/numa_maps >/dev/null || fail "not bound: $(cat /proc/$job/numa_maps)"
[ $(($(cat $SYSFS/nodes/node1/total_bytes) - $(cat $SYSFS/nodes/node1/free_bytes))) -ge $((64 * MIB)) ] || fail "node 1 holds less than the region"
kill -9 $job
wait $job || true
expect_pool_free

# Refused before the program starts, with one line.
said() {
	expect_error "$@"
	expect_pool_free
}
said 125 'size 3M is not a multiple of 2M' hpmmap run --region 3M -- true
said 125 '0x300000 is not a multiple of 2M: use 0x200000 or 0x400000' hpmmap run --region 2M@0x300000 -- true
said 125 'do not fit below 0x7ffffffff000' hpmmap run --region 4M@0x7fffffc00000 -- true
said 125 'Linux may place the program' hpmmap run --region 2M@0x555555600000 -- true
said 125 'the stack, the dynamic linker and the vDSO' hpmmap run --region 2M@0x7ffff7a00000 -- true
said 125 "regions_fixed is linked to 0x400000-" hpmmap run --region 2M@0x400000 -- "$fixed" check
said 125 'has 0x40000000-0x40400000: use another' hpmmap run --region 4M@0x40000000 --region 2M@0x40200000 -- true
said 125 'no NUMA node 7' hpmmap run --region 2M,node=7 -- true
said 125 'leaves it out' hpmmap run --node 0 --region 2M,node=1 -- true
said 125 'leave out --placement first-touch' hpmmap run --placement first-touch --region 2M -- true
said 125 '^hpmmap: --region: 258M are asked for, 256M are free in the pool of NUMA node 1 now' \
	hpmmap run --region 256M,node=1 --region 2M,node=1 -- true
said 125 '^hpmmap: --region: 514M are asked for, 512M are free in the pools now' hpmmap run --region 514M -- true
said 125 'is a multiple|not a multiple of 1G' hpmmap run --region 2M,page-size=1G -- true
said 125 '1G are asked for, 512M are free' hpmmap run --region 1G,page-size=1G -- true
said 127 'no-such-program' hpmmap run --region 64M -- ./no-such-program
(
	ulimit -v 131072
	said 125 'RLIMIT_AS allows \(128M\)' hpmmap run --region 256M -- true
)
# Limits and promises hold as for other memory.
hpmmap pool limit --user $USER_ID --size 32M
said 125 '64M are asked for, and the limit of user .* leaves 32M' as_member hpmmap run --region 64M -- true
hpmmap pool limit --user $USER_ID --size none
mkdir /sys/fs/cgroup/promised
hpmmap pool limit --cgroup /sys/fs/cgroup/promised --min 0:200M
said 125 'no memory for the launch: .* 200M of that promised' hpmmap run --region 64M,node=0 -- true
hpmmap run --region 64M,node=1 -- true
rmdir /sys/fs/cgroup/promised
expect_pool_free

# A program that is executed later has its own, or is killed: in Linux' way, it is too late for an error.
hpmmap run --region 64M,node=1 -- sh -c "exec $regions check" >/tmp/said
grep -qx 0x120000000000+0x4000000@1 /tmp/said || fail "a later program: $(cat /tmp/said)"
expect 137 hpmmap run --region 200M,node=1 -- sh -c '/bin/true; exit $?'
dmesg | grep 'is killed: no region at 0x120000000000: no memory' >/dev/null || fail "the kernel log does not tell of the memory"
expect 137 hpmmap run --region 2M@0x400000 -- sh -c "exec $fixed check"
dmesg | grep 'is killed: no region at 0x400000: not free' >/dev/null || fail "the kernel log does not tell of the overlap"
expect_pool_free

# Killed at any moment of its start.
for i in 0 1 2 3 4 5 6 7; do
	hpmmap run --region 200M,node=0 --region 200M,node=1 -- sleep 1000 &
	job=$!
	sleep 0.$((i * 12 / 10))$((i * 12 % 10))
	kill -9 $job
	wait $job || true
done
expect_pool_free

"$regions" library "$fixed"
expect_pool_free
orphan=$("$regions" orphan)
gone() {
	! kill -0 "$orphan"
}
within 10 gone || fail "a process that was not started is left"
expect_pool_free

#!/bin/bash
# Memory comes from the nodes that were asked for: by options, memory policies, a
# cpuset, or the first touch. The lines "placed:" are the table of docs/design/numa.md.
# takes: 50
# machine: numa
# pool: 0
# timeout: 400
# paths: kernel/mem/ kernel/as/change/place.* kernel/as/change/fit.* kernel/as/map/policy.* kernel/as/life/share.* kernel/as/store/store.* kernel/as/life/vmops.* kernel/call/step/fresh.*
# paths: kernel/call/mbind.* kernel/call/mremap.* kernel/call/step/remap.* tests/vm/programs/numa_place.c
. "$(dirname "$0")/../guest/lib.sh"

used() {
	local dir=$SYSFS/nodes/node$1
	[ -d "$dir" ] || { echo 0; return; }
	echo $(($(cat "$dir/total_bytes") - $(cat "$dir/free_bytes")))
}

PROGRAM=$HPMMAP_ROOT/build/tests-vm/numa_place

# placing EXPECTED COMMAND...: the tests of the program; fails unless all pass or are skipped.
placing() {
	local expected=$1 status=0
	shift
	echo "== $*"
	HPMMAP_TEST_EXPECT=$expected "$@" "$PROGRAM" >/tmp/placing 2>&1 || status=$?
	grep -E 'placed:|SKIP|FAIL|numa_place' /tmp/placing
	[ $status = 0 ] && grep -qx 'HPMMAP-TEST-PASS numa_place' /tmp/placing ||
		fail "status $status, $expected: $*"
}

# Holds 64 MB with these options of hpmmap run, on one CPU; prints what each node gave.
# What is in UNDER runs between hpmmap and the program, such as numactl.
# The program is dd, which starts soon: it copies a line with a buffer of 64 MB, and waits for more.
UNDER=()
mkfifo /tmp/holding.in /tmp/holding.out
exec 5<>/tmp/holding.in 6<>/tmp/holding.out
holding() {
	echo ready >&5
	taskset -c "${CPU:-0}" hpmmap run "$@" -- "${UNDER[@]}" dd bs=64M status=none <&5 >&6 &
	local job=$! line
	read -r -t 60 line <&6 && [ "$line" = ready ] || fail "the job does not get ready"
	echo "$(($(used 0) / MIB)) $(($(used 1) / MIB))"
	kill $job
	wait $job || true
	expect_pool_free
}

# Linux would move pages to where the test looks at them from.
echo 0 >/proc/sys/kernel/numa_balancing
placing native env
echo 1 >/proc/sys/kernel/numa_balancing
expect_error 2 'node' hpmmap pool add --size 128M
hpmmap pool add --node 1 --size 256M --leave 256M
[ "$(cat "$SYSFS/nodes/node1/total_bytes")" = $((256 * MIB)) ] || fail "node 1 has $(cat "$SYSFS/nodes/node1/total_bytes") bytes"

# Only the other node has a pool: that one is taken.
read -r zero one <<<"$(holding --strict)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "with a pool on node 1 only: $zero MB and $one MB"
expect_error 125 'node 0|empty' hpmmap run --node 0 -- true

# Beyond a limit memory is Linux's, and mbind is no way to change that.
hpmmap pool limit --user 0 --size 64M
taskset -c 0 hpmmap run -- python3 -c '
import ctypes, errno, glob, mmap
libc = ctypes.CDLL(None, use_errno=True)
pool = "/sys/kernel/hpmmap/nodes/node1/"
def used():
    return int(open(pool + "total_bytes").read()) - int(open(pool + "free_bytes").read())
size, slot, limit = 128 << 20, 2 << 20, 64 << 20
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
for at in range(0, size, slot):
    memory[at] = 1 + at // slot
assert limit - 4 * slot <= used() <= limit, used()
address = ctypes.c_ulong(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
some = 16 << 20
libc.munmap(address, ctypes.c_ulong(some))
address.value += some
before = used()
node1 = ctypes.c_ulong(2)
if libc.syscall(237, address, ctypes.c_ulong(size - some), 2, ctypes.byref(node1), ctypes.c_ulong(64), 2):  # mbind
    raise SystemExit("mbind: " + errno.errorcode[ctypes.get_errno()])
assert used() <= limit, used()
assert all(memory[at] == 1 + at // slot for at in range(some, size, slot))
# A block that replaces ordinary memory is charged to the launch, once.
(stat,) = glob.glob("/sys/kernel/hpmmap/jobs/*/stat")
stat = dict(line.split() for line in open(stat))
assert before < used() == int(stat["held_bytes"]) <= int(stat["peak_bytes"]) <= limit, (before, used(), stat)
print("with a limit of 64 MB, after mbind:", used() >> 20, "MB")'
hpmmap pool limit --user 0 --size none
expect_pool_free

hpmmap pool add --node 0 --size 256M --leave 256M
read -r zero one <<<"$(holding)"
[ "$zero" -ge 64 ] && [ "$one" = 0 ] || fail "on CPU 0, by default: $zero MB and $one MB"
read -r zero one <<<"$(holding --node 1)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "with --node 1: $zero MB and $one MB"
read -r zero one <<<"$(holding --placement interleave)"
difference=$((zero > one ? zero - one : one - zero))
[ "$zero" -ge 32 ] && [ "$one" -ge 32 ] && [ $difference -le 8 ] || fail "with --placement interleave: $zero MB and $one MB"
read -r zero one <<<"$(holding --node 0,1 --placement interleave)"
[ "$zero" -ge 32 ] && [ "$one" -ge 32 ] || fail "with --placement interleave: $zero MB and $one MB"
expect_error 125 'interleave.*such as 0,2-3' hpmmap run --node interleave -- true
expect_error 125 'page-size 1G' hpmmap run --page-size 1G --placement first-touch -- true

placing registered env HPMMAP_TEST_POLICY=strict hpmmap run --strict --
env HPMMAP_TEST_ONLY='a_bound_*' HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_POLICY=fallback hpmmap run -- "$PROGRAM"
placing registered env HPMMAP_TEST_POLICY=strict HPMMAP_TEST_FIRST_TOUCH=1 hpmmap run --strict --placement first-touch --
expect_pool_free

# What numactl sets for the program; --node is a restriction beyond it.
UNDER=(numactl --membind=1)
read -r zero one <<<"$(holding --strict)"
[ "$one" -ge 64 ] || fail "numactl --membind=1: $zero MB and $one MB"
UNDER=(numactl --preferred=1)
read -r zero one <<<"$(holding --strict)"
[ "$one" -ge 64 ] || fail "numactl --preferred=1: $zero MB and $one MB"
UNDER=(numactl --interleave=all)
read -r zero one <<<"$(holding)"
[ "$zero" -ge 32 ] && [ "$one" -ge 32 ] || fail "numactl --interleave=all: $zero MB and $one MB"
UNDER=(numactl --localalloc)
read -r zero one <<<"$(holding --placement interleave)"
[ "$zero" -ge 64 ] || fail "numactl --localalloc with --placement interleave: $zero MB and $one MB"
UNDER=(numactl --preferred=0)
read -r zero one <<<"$(holding --node 1)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "numactl --preferred=0 with --node 1: $zero MB and $one MB"
# No common node: ordinary memory if that is allowed, which follows the policy.
UNDER=(numactl --membind=0)
read -r zero one <<<"$(holding --node 1)"
[ "$zero" = 0 ] && [ "$one" -lt 64 ] || fail "numactl --membind=0 with --node 1: $zero MB and $one MB"
UNDER=()
hpmmap run --strict --node 1 -- python3 -c '
import ctypes, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
node0 = ctypes.c_ulong(1)
if libc.syscall(238, 2, ctypes.byref(node0), 64):
    raise SystemExit("set_mempolicy: " + errno.errorcode[ctypes.get_errno()])
try:
    mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError as error:
    raise SystemExit(0 if error.errno == errno.ENOMEM else 1)
raise SystemExit("bound to node 0 with --node 1, and there was memory")'
expect_pool_free

# A cpuset leaves the nodes it names. (Node 1 has only movable memory here, on
# which alone Linux cannot run anything.)
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
cgroup=/sys/fs/cgroup
echo +cpuset >$cgroup/cgroup.subtree_control
mkdir $cgroup/zero
echo 0 >$cgroup/zero/cpuset.mems
in_cpuset() {
	echo "$BASHPID" >$cgroup/zero/cgroup.procs
	CPU=1 holding --strict
}
read -r zero one <<<"$(CPU=1 holding --strict)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "on CPU 1: $zero MB and $one MB"
read -r zero one <<<"$(in_cpuset)"
[ "$zero" -ge 64 ] && [ "$one" = 0 ] || fail "on CPU 1 in a cpuset of node 0: $zero MB and $one MB"
rmdir $cgroup/zero

# A node's pool runs out: strict jobs bound to it get no more, though the other has some.
hpmmap run --strict --node 1 -- python3 -c '
import errno, mmap
try:
    mmap.mmap(-1, 300 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError as error:
    raise SystemExit(0 if error.errno == errno.ENOMEM else 1)
raise SystemExit("300 MB came from a pool of 256 MB")'

hpmmap pool remove --node 0 --all
[ "$(cat "$SYSFS/nodes/node1/total_bytes")" = $((256 * MIB)) ] || fail "node 1 lost memory with node 0"
hpmmap pool remove --all

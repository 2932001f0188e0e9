#!/bin/bash
# The OOM killer, of a cgroup and of the machine, kills a process whose end frees ordinary memory, not
# one that maps pool memory.
# pool: 512M
# paths: kernel/task/oom.* kernel/mem/block/block.* kernel/mem/block/linux_page.*
. "$(dirname "$0")/../guest/lib.sh"

hold='
import mmap, sys, time
held = mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for offset in range(0, len(held), 4096):
    held[offset] = 1
open(f"/tmp/{sys.argv[2]}", "w").close()
time.sleep(1000)'
rm -f /tmp/oom-*
# The harness takes its report for none of a fault (harness/hpmmap_guest/kmsg.py).
echo 'hpmmap-test: the OOM killer is wanted' >/dev/kmsg
cgroup=/sys/fs/cgroup/oom
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $cgroup
echo 40M >$cgroup/memory.max
[ ! -e $cgroup/memory.swap.max ] || echo 0 >$cgroup/memory.swap.max
inside() { bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' bash $cgroup "$@"; }

inside hpmmap run --strict -- python3 -c "$hold" 300 oom-job &
shell=$!
within 30 test -e /tmp/oom-job || fail "the job does not get ready"
job=$(cat $cgroup/cgroup.procs)
[ "$(context_of $job held_bytes)" -ge $((300 * MIB)) ] || fail "the job holds $(context_of $job held_bytes) bytes"
python3 -c "$hold" 1 oom-like &
like=$!
within 30 test -e /tmp/oom-like || fail "a process like the job does not get ready"
job_score=$(cat /proc/$job/oom_score) like_score=$(cat /proc/$like/oom_score)
echo "oom_score: job with 300 MB $job_score, a process like it without $like_score"
[ $((job_score - like_score)) -le 5 ] || fail "memory of the pools counts: oom_score is $job_score"
kill $like

status=0
inside python3 -c "$hold" 80 oom-neighbour || status=$?
[ $status = 137 ] || fail "in its cgroup the neighbour ended with status $status"
grep -qx 'oom_kill 1' $cgroup/memory.events || fail "$(cat $cgroup/memory.events)"
is_registered $job || fail "the OOM killer of the cgroup took the job"

python3 -c "$hold" 120 oom-big &
big=$!
within 60 test -e /tmp/oom-big || fail "the large process does not get ready"
echo f >/proc/sysrq-trigger
status=0
wait $big || status=$?
[ $status = 137 ] || fail "of the machine's OOM killer, the large process ended with status $status"
is_registered $job || fail "the OOM killer of the machine took the job"

# Its ordinary memory, which stands in for pool memory, does count.
hpmmap run --strict -- python3 -c "$hold" 140 oom-rest &
rest=$!
within 30 test -e /tmp/oom-rest || fail "the second job does not get ready"
hpmmap run -- python3 -c "$hold" 200 oom-linux &
linux=$!
within 60 test -e /tmp/oom-linux || fail "the job without pool memory does not get ready"
status=0
echo f >/proc/sysrq-trigger
wait $linux || status=$?
[ $status = 137 ] || fail "of a launch with ordinary memory, the OOM killer made status $status"
is_registered $job && is_registered $rest || fail "the OOM killer took a job with memory of the pools"

# The owner of the memory is charged, not the writer, which here has less than that left.
reserve='
import ctypes, mmap, time
held = mmap.mmap(-1, 160 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
with open("/tmp/oom-address", "w") as file:
    file.write(str(ctypes.addressof(ctypes.c_char.from_buffer(held))))
open("/tmp/oom-reserved", "w").close()
time.sleep(1000)'
write='
import sys
with open(f"/proc/{sys.argv[1]}/mem", "wb", buffering=0) as memory:
    memory.seek(int(sys.argv[2]))
    for _ in range(160):
        assert memory.write(b"x" * (1 << 20)) == 1 << 20'
hpmmap run -- python3 -c "$reserve" &
owner=$!
within 30 test -e /tmp/oom-reserved || fail "the job to be written to does not get ready"
inside python3 -c "$write" $owner "$(cat /tmp/oom-address)" || fail "who wrote to another process was charged for its memory"
[ "$(context_of $owner linux_bytes)" -ge $((80 * MIB)) ] || fail "only $(context_of $owner linux_bytes) bytes of Linux stand in"
kill $owner
wait $owner || true

# score_is_near PID SCORE: within some 15 MB.
score_is_near() {
	score=$(cat /proc/$1/oom_score)
	[ $((score - $2)) -le 5 ] && [ $(($2 - score)) -le 5 ]
}
# A forked child has copies of the pages that stand in. It touches none, and its end frees them all.
fork='
import mmap, os, time
held = mmap.mmap(-1, 160 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
for offset in range(0, len(held), 4096):
    held[offset] = 1
child = os.fork()
if child:
    with open("/tmp/oom-fork", "w") as file:
        file.write(str(child))
time.sleep(1000)'
hpmmap run -- python3 -c "$fork" &
parent=$!
within 60 test -s /tmp/oom-fork || fail "the job that forks does not get ready"
child=$(cat /tmp/oom-fork)
parent_score=$(cat /proc/$parent/oom_score)
stands_in=$(context_of $child linux_bytes)
mapped=$(awk '$1 == "RssFile:" { print $2 }' /proc/$child/status)
echo "oom_score: parent $parent_score, child $(cat /proc/$child/oom_score), for which $((stands_in / MIB)) MB stand in, RssFile $((mapped >> 10)) MB"
[ "$stands_in" -ge $((80 * MIB)) ] || fail "only $stands_in bytes stand in for the child"
[ $mapped -lt $((40 << 10)) ] || fail "the child has $mapped kB mapped"
[ $parent_score -ge $((like_score + 20)) ] || fail "what stands in does not count: oom_score is $parent_score"
score_is_near $child $parent_score || fail "what stands in and is not mapped does not count: oom_score is $score, of the parent $parent_score"
kill -KILL $child $parent $job $rest
wait $parent $shell $rest || true
expect_pool_free

# No process frees shared memory of the pools, files of theirs or what it sees through windows.
mkdir /tmp/oom-files
mount -t hpmmap -o size=100M none /tmp/oom-files
share='
import ctypes, fcntl, mmap, os, struct, sys, time
def touch(memory):
    for offset in range(0, len(memory), 4096):
        memory[offset]
def ready(name):
    touch(mapped)
    with open(name, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)
def xpmem(number, argument):
    fcntl.ioctl(device, ord("x") << 8 | number, argument)
    return argument
mapped = mmap.mmap(os.open("/tmp/oom-files/file", os.O_RDWR), 0)
if sys.argv[1:] == ["file"]:
    ready("/tmp/oom-file")
shared, held = mmap.mmap(-1, 200 << 20), mmap.mmap(-1, 150 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
touch(shared)
address = ctypes.addressof(ctypes.c_char.from_buffer(held))
device = os.open("/dev/xpmem", os.O_RDWR)
MAKE, GET, ATTACH = 1, 3, 5
segment, = struct.unpack("=32xq", xpmem(MAKE, bytearray(struct.pack("=QQiIQq", address, len(held), 1, 0, 0o600, 0))))
if os.fork():
    ready("/tmp/oom-shared")
device = os.open("/dev/xpmem", os.O_RDWR)
permit, = struct.unpack("=24xq", xpmem(GET, bytearray(struct.pack("=qiiQq", segment, 2, 1, 0, 0))))
for _ in range(4):
    window, = struct.unpack("=24xQ8x", xpmem(ATTACH, bytearray(struct.pack("=qqQQii", permit, 0, len(held), 0, -1, 0))))
    touch((ctypes.c_char * len(held)).from_address(window))
ready("/tmp/oom-windows")'
fallocate -l 100M /tmp/oom-files/file
hpmmap run --strict -- python3 -c "$share" &
sharer=$!
python3 -c "$share" file &
user=$!
for kind in shared:400 windows:600 file:100; do
	at_least=${kind#*:} kind=${kind%:*}
	within 60 test -s /tmp/oom-$kind || fail "the process with $kind does not get ready"
	pid=$(cat /tmp/oom-$kind)
	mapped=$(awk '$1 == "RssFile:" { print $2 }' /proc/$pid/status)
	echo "oom_score: process with $kind $(cat /proc/$pid/oom_score), RssFile $((mapped >> 10)) MB"
	[ $mapped -ge $((at_least << 10)) ] || fail "the process with $kind has $mapped kB mapped"
	score_is_near $pid $like_score || fail "memory of the pools counts: oom_score with $kind is $score"
done
kill -KILL $sharer $user "$(cat /tmp/oom-windows)"
wait $sharer $user || true
within 10 test ! -e /proc/"$(cat /tmp/oom-windows)"
umount /tmp/oom-files
rm -r /tmp/oom-*
empty() { [ -z "$(cat $cgroup/cgroup.procs)" ]; }
within 10 empty || fail "left in the cgroup: $(cat $cgroup/cgroup.procs)"
rmdir $cgroup

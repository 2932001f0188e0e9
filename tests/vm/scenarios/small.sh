#!/bin/bash
# The pool memory that small programs and idle threads hold, which they use without faults.
# pool: 512M
# timeout: 60
# paths: kernel/as/change/few.* kernel/as/change/fit.* kernel/as/map/file.* kernel/as/change/commit.* kernel/call/step/fresh.* kernel/call/mmap.* kernel/task/exec.* kernel/task/image.* tests/vm/programs/small.c
. "$(dirname "$0")/../guest/lib.sh"

SMALL=$HPMMAP_ROOT/build/tests-vm/small
MB=$((1 << 20))

# peak COMMAND...: the most that a job of one process holds, in MB, and its faults.
peak() {
	hpmmap run --report /tmp/small.json "$@" || fail "$*"
	python3 -c '
import json
report = json.load(open("/tmp/small.json"))
print(report["memory"]["peak_bytes"] >> 20, report["faults"]["pool_memory"]["total"])'
}

# idle THREADS [OPTION...]: what a program with so many idle threads holds, in MB.
idle() {
	local threads=$1 pid
	shift
	mkfifo /tmp/small.fifo
	hpmmap run "$@" -- "$SMALL" "$threads" >/tmp/small.fifo &
	pid=$!
	read -r _ </tmp/small.fifo
	held=$(($(context_of $pid held_bytes) / MB)) faults=$(context_of $pid faults)
	stack=$(sed -n 's/^VmStk:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$pid/status)
	kill $pid
	wait $pid || true
	rm /tmp/small.fifo
}

read -r held faults <<<"$(peak -- /bin/true)"
echo "/bin/true: $held MB, $faults faults"
[ "$held" -le 2 ] || fail "/bin/true holds $held MB"
[ "$faults" = 0 ] || fail "/bin/true takes $faults faults"
read -r held faults <<<"$(peak --strict -- /bin/true)"
echo "strict: $held MB"
[ "$faults" = 0 ] || fail "a strict job's /bin/true takes $faults faults"

idle 0
none=$held
idle 64
echo "a program: $none MB; 64 idle threads: $((held - none)) MB, $faults faults"
[ "$none" -le 2 ] || fail "a program with a heap and a C library holds $none MB"
[ "$stack" -le 256 ] || fail "the main stack has $stack KB from the start"
[ $((held - none)) -le 140 ] || fail "64 idle threads hold $((held - none)) MB"
[ "$faults" = 0 ] || fail "idle threads take $faults faults"

idle 1 --stacks eager
eager=$held
idle 0 --stacks eager
echo "with all of their stacks: a program $stack KB, a thread $((eager - held)) MB"
[ "$stack" = 8192 ] || fail "--stacks eager: the main stack has only $stack KB"
[ $((eager - held)) -ge 8 ] || fail "--stacks eager: a thread has only $((eager - held)) MB"

# Linux splits large pages of a stack, of which there are none then.
thp=/sys/kernel/mm/transparent_hugepage/enabled
was=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
echo always >$thp
hpmmap run --stacks eager -- python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
smaps = open("/proc/self/smaps").read().split("[stack]")
start = int(smaps[0].split("\n")[-1].split("-")[0], 16)
fields = dict(line.split(":", 1) for line in smaps[1].split("\n")[1:22])
assert fields["AnonHugePages"].split()[0] == "0" and int(fields["Rss"].split()[0]) == 8192, fields
low = (start + (2 << 20)) & -(2 << 20)
for advice in 20, 21, 4:  # MADV_COLD, MADV_PAGEOUT, MADV_DONTNEED
    libc.madvise(low + (256 << 10), 512 << 10, advice)' || fail "an eager stack"
echo "$was" >$thp

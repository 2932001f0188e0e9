#!/bin/bash
# The memory of a process is free when its parent learns of its end, and zeroed soon after.
# takes: 10
# pool: 512M
# timeout: 240
# tier: newest  allocator and zeroing are the same on every kernel
# paths: kernel/mem/ kernel/as/life/life.* kernel/as/own/release.* kernel/as/own/reuse.* kernel/as/store/unmap.* kernel/task/exec.*
. "$(dirname "$0")/../guest/lib.sh"

is_clean() { [ "$(pool_bytes free_bytes)" = "$(pool_bytes clean_bytes)" ]; }

# expect_clean WHEN: at the latest when the thread of the pool has got to it.
expect_clean() {
	[ "$(pool_bytes free_bytes)" = "$(pool_bytes total_bytes)" ] || fail "$1: only $(($(pool_bytes free_bytes) / MIB)) MB are free"
	within 20 is_clean ||
		fail "$1: of $(($(pool_bytes free_bytes) / MIB)) MB free only $(($(pool_bytes clean_bytes) / MIB)) MB are zero"
}
is_clean || fail "after hpmmap pool add only $(($(pool_bytes clean_bytes) / MIB)) MB are zero"

hpmmap run --strict -- python3 -c 'x = b"x" * (64 << 20)'
expect_clean 'after a process'

hpmmap run --strict -- sh -c 'for _ in 1 2 3 4; do python3 -c "x = b\"x\" * (32 << 20)" & done; wait'
expect_clean 'after some processes at once'

# Of a mapping that fails, what was kept for reuse goes with the rest.
hpmmap run --strict -- python3 -c '
import mmap
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000000  # MAP_UNINITIALIZED
with mmap.mmap(-1, 32 << 20, flags) as kept:
    kept[:] = b"x" * (32 << 20)
try:
    mmap.mmap(-1, 1 << 30, flags)
except OSError:
    raise SystemExit(0)
raise SystemExit("more memory than the pool has")'
expect_clean 'after a mapping that failed'

# What is mapped is zero, also where several threads zero it at once.
hpmmap run --strict -- python3 -c '
import mmap
for _ in range(3):
    with mmap.mmap(-1, 400 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
        for at in range(0, len(m), 2 << 20):
            assert m[at:at + (2 << 20)] == bytes(2 << 20), at
            m[at:at + (2 << 20)] = b"x" * (2 << 20)
cleared = sum(int(line.split()[1]) for line in open("/proc/hpmmap") if line.startswith("cleared_bytes"))
assert cleared >= 400 << 20, cleared'
expect_clean 'after a process that had soiled memory'

# All leave the address space together, and any of them may be the last.
threaded='
import os, sys, threading
x = b"x" * (32 << 20)
for _ in range(8):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
if sys.argv[1] == "end":
    os._exit(0)
threading.Event().wait()'
rounds=6
! longer || rounds=20
for round in $(seq $rounds); do
	hpmmap run --strict -- python3 -c "$threaded" end >/dev/null
	expect_clean "after a process with threads, round $round"
done

for round in $(seq $((rounds / 3))); do
	hpmmap run --strict -- python3 -c "$threaded" stay >/tmp/ready &
	within 30 grep -q ready /tmp/ready || fail "the process does not get ready"
	kill -KILL $!
	wait $! || true
	expect_clean "after a process with threads that was killed, round $round"
	rm /tmp/ready
done

# In a PID namespace its threads have to be gone before it ends.
hpmmap run --strict -- unshare --pid --fork python3 -c "$threaded" end >/dev/null
expect_clean 'after the first process of a PID namespace'

# Who launches while all that is free is being zeroed need not wait for it. The thread that zeroes
# hardly gets its CPU; of what a process has left, more than it zeroes itself, another takes all but
# the last 2 MB.
thread=$(pgrep -x hpmmap_zero/0)
cpus=$(taskset -pc "$thread" | sed 's/.*: //')
taskset -pc 1 "$thread" >/dev/null
python3 -c '
import fcntl, os, struct, subprocess
LAUNCH, STRICT = 0xc038b604, 1
def pool(what):
    with open(f"/sys/kernel/hpmmap/nodes/node0/{what}_bytes") as file:
        return int(file.read()) >> 20
hold = """
import mmap
def take_but(most):
    while True:
        with open("/sys/kernel/hpmmap/nodes/node0/free_bytes") as file:
            if int(file.read()) <= most << 20:
                return print(flush=True)
        held.append(mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
held = []
take_but(160)
input()
take_but(2)
input()"""
run = ["hpmmap", "run", "--", "python3", "-c"]
holder = subprocess.Popen([*run, hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
holder.stdout.readline()
busy = [subprocess.Popen(["taskset", "-c", "1", "sh", "-c", "while :; do :; done"]) for _ in range(3)]
subprocess.run([*run, "x = b\"x\" * (128 << 20)"], check=True)
device = os.open("/dev/hpmmap", os.O_RDWR)
holder.stdin.write(b"\n")
holder.stdin.flush()
holder.stdout.readline()
free, clean = pool("free"), pool("clean")
try:
    fcntl.ioctl(device, LAUNCH, struct.pack("IIQQIIQQII", 56, STRICT, 0, 0, 0, 0, 0, 0, 0, 0))
    text = None
except OSError as error:
    text = f"a strict launch with {free} MB free, {clean} MB of them zero: {error}"
print(f"{free} MB were free, {clean} MB of them zero")
for process in busy:
    process.kill()
holder.kill()
holder.wait()
raise SystemExit(text)'
taskset -pc "$cpus" "$thread" >/dev/null
expect_pool_free

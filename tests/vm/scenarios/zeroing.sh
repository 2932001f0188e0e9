#!/bin/bash
# What a process has given up is free when its parent learns of its end, and zero again soon after.
# takes: 10
# pool: 512M
# timeout: 240
# paths: kernel/mem/ kernel/as/life.* kernel/as/release.* kernel/as/reuse.* kernel/as/unmap.* kernel/task/exec.*
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

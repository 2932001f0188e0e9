#!/bin/bash
# Two launches at once have separate memory, and the end of one does not affect the other.
# pool: 512M
# tier: newest  limits and exhausted ask more of jobs side by side
# paths: kernel/as/life/life.* kernel/as/own/job.* kernel/task/
. "$(dirname "$0")/../guest/lib.sh"

program='
import hashlib, mmap, os, sys, time
memory = mmap.mmap(-1, 96 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page = (sys.argv[1] * 4096)[:4096].encode()
for offset in range(0, len(memory), 4096):
    memory[offset:offset + 4096] = page
open(f"/tmp/ready-{sys.argv[1]}", "w").close()
while not os.path.exists(f"/tmp/go-{sys.argv[1]}"):
    time.sleep(0.1)
wrong = sum(memory[offset:offset + 4096] != page for offset in range(0, len(memory), 4096))
sys.exit(f"{wrong} pages are wrong" if wrong else 0)
'
rm -f /tmp/ready-? /tmp/go-?
hpmmap run -- python3 -c "$program" a &
a=$!
hpmmap run --strict -- python3 -c "$program" b &
b=$!
within 60 test -e /tmp/ready-a || fail "the first job does not get ready"
within 60 test -e /tmp/ready-b || fail "the second job does not get ready"

[ "$(context_of $a job)" != "$(context_of $b job)" ] || fail "both have the same job number"
for pid in $a $b; do
	[ "$(context_of $pid held_bytes)" -ge $((96 * MIB)) ] || fail "$pid holds $(context_of $pid held_bytes) bytes"
	[ "$(context_of $pid fallbacks)" = 0 ] || fail "$pid had to use ordinary memory"
done
[ "$(context_of $a strict)" = 0 ] && [ "$(context_of $b strict)" = 1 ] || fail "the policies are mixed up"

touch /tmp/go-a
expect 0 wait $a
is_registered $b || fail "the second job is gone"
touch /tmp/go-b
expect 0 wait $b

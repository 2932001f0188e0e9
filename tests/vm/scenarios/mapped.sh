#!/bin/bash
# Pool memory is not counted as mapped page cache: "Mapped" of /proc/meminfo, which
# vm.zone_reclaim_mode relies on, does not grow with it, and is as before when launches have ended.
# pool: 512M
# paths: kernel/mem/pool/pool.* kernel/mem/pool/alloc.* kernel/as/own/reuse.*
. "$(dirname "$0")/../guest/lib.sh"

mapped_kib() {
	# What CPUs have counted and not told yet.
	cat /proc/sys/vm/stat_refresh
	awk '$1 == "Mapped:" { print $2 }' /proc/meminfo
}
near() { [ $(($1 - $2)) -lt $((24 << 10)) ] && [ $(($2 - $1)) -lt $((24 << 10)) ]; }

program='
import mmap, os, time
held = [mmap.mmap(-1, 50 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(4)]
if os.fork() == 0:
    for memory in held:
        memory[0] = 1
    os._exit(0)
os.wait()
held[0].close()
held.append(mmap.mmap(-1, 50 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
held[1].madvise(mmap.MADV_DONTNEED)
held[2].resize(60 << 20)
'
rm -f /tmp/mapped-ready
# Once unmeasured: the libraries are there then.
python3 -c "$program"
before=$(mapped_kib)
hpmmap run --strict -- python3 -c "$program"'
open("/tmp/mapped-ready", "w").close()
time.sleep(1000)' &
job=$!
within 30 test -e /tmp/mapped-ready || fail "the job does not get ready"
rm /tmp/mapped-ready
during=$(mapped_kib)
[ "$(context_of $job held_bytes)" -ge $((200 * MIB)) ] || fail "the job holds $(context_of $job held_bytes) bytes"
kill $job
wait $job || true
expect_pool_free
# What does not come back adds up.
for _ in 1 2 3 4 5 6; do
	hpmmap run --strict -- python3 -c "$program"
done
expect_pool_free
after=$(mapped_kib)
echo "Mapped: $before kB before, $during kB with a job of 200 MB, $after kB after"
near $before $during || fail "with a job Mapped went from $before to $during kB"
near $before $after || fail "after jobs Mapped went from $before to $after kB"

#!/bin/bash
# An exhausted pool: ENOMEM under --strict, ordinary memory otherwise, never a signal.
# pool: 256M
# paths: kernel/mem/ kernel/as/change/fault.* kernel/call/step/fresh.* kernel/call/mmap.*
. "$(dirname "$0")/../guest/lib.sh"

program='
import errno, mmap, os, sys
held = []
try:
    for _ in range(40):
        memory = mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        held.append(memory)
        for offset in range(0, len(memory), 4096):
            memory[offset] = 1
except OSError as error:
    assert error.errno == errno.ENOMEM, error
for one in open("/proc/hpmmap").read().split("\nid "):
    values = {name: int(value) for name, value in (line.split() for line in one.splitlines()[1:])}
    if values["pid"] == os.getpid():
        break
print(len(held), values["fallbacks"], values["linux_bytes"], values["held_bytes"])
'
read -r pieces fallbacks linux held < <(hpmmap run --strict -- python3 -c "$program")
echo "strict: $pieces pieces of 16 MB, $fallbacks fallbacks, $linux bytes of Linux, $held held"
[ "$pieces" -ge 8 ] && [ "$pieces" -lt 16 ] || fail "$pieces pieces of 16 MB came from a pool of 256 MB"
[ "$fallbacks" = 0 ] && [ "$linux" = 0 ] || fail "a strict launch got ordinary memory"
expect_pool_free

read -r pieces fallbacks linux held < <(hpmmap run -- python3 -c "$program")
echo "fallback: $pieces pieces of 16 MB, $fallbacks fallbacks, $linux bytes of Linux, $held held"
[ "$pieces" = 40 ] || fail "only $pieces pieces of 40"
[ "$fallbacks" -ge 24 ] || fail "$fallbacks fallbacks were counted for at least 24 calls"
[ "$held" -le $((256 * MIB)) ] || fail "$held bytes from a pool of 256 MB"
expect_pool_free

# One call that wants more than there is gets what there is; Linux's memory is counted in bytes.
beyond='
import glob, mmap, os, sys
free = lambda: sum(int(open(one).read()) for one in glob.glob("/sys/kernel/hpmmap/nodes/node*/free_bytes"))
jobs = glob.glob("/sys/kernel/hpmmap/jobs/*/stat")
assert len(jobs) == 1, jobs
stat = lambda: {name: int(value) for name, value in (line.split() for line in open(jobs[0]))}
before, want = stat()["fallback_bytes"], int(sys.argv[1]) or free()
memory = mmap.mmap(-1, want + (64 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(free(), stat()["fallback_bytes"] - before - (64 << 20), stat()["held_bytes"])
memory[::4096] = b"1" * (len(memory) // 4096)
assert memory[::4096] == b"1" * (len(memory) // 4096)
'
read -r free more held < <(hpmmap run -- python3 -c "$beyond" 0)
echo "one call: $free bytes stay free, $more more than the rest came from Linux"
[ "$free" = 0 ] && [ "$more" = 0 ] || fail "of 64 MB more than there are, $free bytes stay free, and $more too many came from Linux"
expect_pool_free
# A limit leaves what it leaves.
MEMBER_ID=2002
hpmmap pool limit --user $MEMBER_ID --size 128M
read -r free more held < <(as_member hpmmap run -- python3 -c "$beyond" $((128 * MIB)))
hpmmap pool limit --user $MEMBER_ID --size default
[ "$held" = $((128 * MIB)) ] || fail "$held bytes were held with a limit of 128 MB"
expect_pool_free

# Gigabytes that were asked for, and had only in smaller pieces, are counted.
hpmmap pool add --size 1G >/dev/null
read -r largest missed < <(hpmmap run --page-size 1G -- python3 -c '
import glob, mmap
largest = max(int(open(one).read()) for one in glob.glob("/sys/kernel/hpmmap/nodes/node*/largest_free_bytes"))
memory = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
stat = dict(line.split() for line in open(glob.glob("/sys/kernel/hpmmap/jobs/*/stat")[0]))
print(largest, stat["large_missed_bytes"])')
echo "the largest free piece had $largest bytes, $missed were missed"
[ "$missed" = $((largest < 1 << 30 ? 1 << 30 : 0)) ] || fail "of a largest piece of $largest bytes, $missed were missed"
expect_pool_free
hpmmap pool remove --size 1G >/dev/null

# Used up by another job: a strict job cannot even start, and says so.
hpmmap run -- python3 -c "
import mmap, time
held = [mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(160)]
open('/tmp/full', 'w').close()
time.sleep(120)" &
job=$!
within 30 test -e /tmp/full || fail "the job that fills the pool does not get ready"
rm /tmp/full
[ "$(pool_bytes free_bytes)" = 0 ] || fail "$(pool_bytes free_bytes) bytes are still free"
status=0
hpmmap run --strict -- /bin/true || status=$?
[ $status -ne 0 ] && [ $status -le 127 ] || fail "a strict job without memory ended with status $status"
hpmmap run -- /bin/true || status=$?
kill $job
wait $job || true

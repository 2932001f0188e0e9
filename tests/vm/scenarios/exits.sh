#!/bin/bash
# An exiting process never waits for another one and zeroes little; threads of the module zero the rest.
# pool: 512M
# timeout: 240
# tier: newest  who zeroes is decided in the pool, which is the same on every kernel
# paths: kernel/mem/pool/zero.* kernel/as/life/life.* kernel/as/own/release.* kernel/as/life/share.* kernel/as/store/unmap.* kernel/as/map/window.* kernel/task/exec.* tests/vm/programs/exits.c tests/vm/programs/away.c
. "$(dirname "$0")/../guest/lib.sh"

exits=$HPMMAP_ROOT/build/tests-vm/exits
# What a process that ends zeroes itself, at most.
most=16

is_clean() { [ "$(pool_bytes free_bytes)" = "$(pool_bytes clean_bytes)" ]; }

within 20 is_clean || fail "the pool does not become clean"

echo "== a process that is killed"
zero_trace_start
hpmmap run --strict -- "$exits" fill 200 >/tmp/ready &
job=$!
within 30 grep -q ready /tmp/ready || fail "the process does not get ready"
kill -KILL $job
wait $job || true
# Its parent knows, and it has given everything back.
[ "$(pool_bytes free_bytes)" = "$(pool_bytes total_bytes)" ] || fail "$(pool_bytes free_bytes) bytes are free after a process was killed"
within 60 is_clean || fail "what a process left is not zeroed"
zero_trace_stop
own=$(zeroed exits)
others=$(zeroed hpmmap_zero/0)
echo "of 100 blocks the process zeroed $own, the thread $others"
[ "$own" -le $most ] || fail "a process that was killed zeroed $own blocks"
[ $((own + others)) -ge 100 ] || fail "only $((own + others)) blocks were zeroed"

echo "== pins that go after the end"
rm -f /tmp/fifo
mkfifo /tmp/fifo
exec 7<>/tmp/fifo
hpmmap run --strict -- "$exits" pin /tmp/fifo 128
[ "$(pool_bytes pinned_bytes)" = $((256 * MIB)) ] || fail "$(pool_bytes pinned_bytes) bytes are pinned"
zero_trace_start
exec 7>&-
within 10 nothing_pinned || fail "$(pool_bytes pinned_bytes) bytes are still pinned"
for _ in 1 2 3; do
	as_member hpmmap run -- /bin/true
done
within 60 is_clean || fail "what was pinned is not zeroed"
zero_trace_stop
own=$(($(zeroed true) + $(zeroed hpmmap)))
others=$(zeroed hpmmap_zero/0)
echo "of 128 blocks processes of another user zeroed $own, the thread $others"
[ "$own" -le $((3 * most)) ] || fail "processes of another user zeroed $own blocks"
[ "$others" -ge 128 ] || fail "the thread zeroed only $others blocks"
expect_pool_free

echo "== a parent whose address space is locked"
rounds=8
meanwhile=$(hpmmap run --strict -- "$exits" relatives $rounds)
echo "$meanwhile of $rounds children ended while their parent forked"
[ "$meanwhile" -ge $((rounds / 2)) ] || fail "only $meanwhile of $rounds children ended while their parent forked"
expect_pool_free

echo "== a window onto who waits for a server with its address space locked"
# All processes share the workers, which never wait for one.
meanwhile=$("$HPMMAP_ROOT/build/tests-vm/away" --window)
case $meanwhile in
ended) ;;
"sees nothing") [[ $(uname -r) = *debug* ]] || fail "a window shows nothing of Linux" ;;
*) fail "a process with a window waits: $meanwhile" ;;
esac

echo "== calls of a process that somebody reads, and waits for a server meanwhile"
for run in "" "hpmmap run --strict --"; do
	meanwhile=$($run "$HPMMAP_ROOT/build/tests-vm/away" --calls)
	[ "$meanwhile" = 'done' ] || fail "${run:-natively}: $meanwhile"
	expect_pool_free
done

echo "== an address space that outlives its first process"
other=$(hpmmap run --strict -- "$exits" outlive)
[ "$(contexts)" = 1 ] || fail "there are $(contexts) contexts, and not 1"
kill -KILL "$other"
expect_pool_free

echo "== more forks than spare records, before a worker runs"
throttle=$(cat /proc/sys/kernel/sched_rt_runtime_us)
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
hpmmap run --report /tmp/storm.json -- "$exits" storm 400
echo "$throttle" >/proc/sys/kernel/sched_rt_runtime_us
python3 -c '
import json
processes = json.load(open("/tmp/storm.json"))["processes"]
assert processes["total"] == 401 and not processes["executed"]["failed"], processes'
expect_pool_free

#!/bin/bash
# Rounds of pool add, job, pool remove: every block comes back. 20 of them, 200 in
# the longer runs; on a debug kernel, where a round takes ten times as long, 15.
# pool: 0
# timeout: 1500
# paths: kernel/mem/
. "$(dirname "$0")/../guest/lib.sh"

rounds=20
! longer || rounds=200
is_debug_kernel && rounds=15
alone=$((rounds / 10 + 2))
before=$(memtotal_kib)
offline=$(offline_blocks)

# one_round NUMBER RESIDENT: RESIDENT contexts stay throughout.
one_round() {
	local size=$((128 * (1 + $1 % 2)))
	local total with_resident
	total=$(pool_bytes total_bytes)
	with_resident=$(memtotal_kib)
	ended() { [ "$(contexts)" = "$2" ]; }

	hpmmap pool add --node 0 --size ${size}M >/dev/null || fail "round $1: pool add"
	hpmmap run --strict -- /bin/true || fail "round $1: job"
	within 10 ended "$@" || fail "round $1: $(contexts) contexts are left instead of $2"
	[ "$2" != 0 ] || within 10 pool_is_free || fail "round $1: $(pool_bytes free_bytes) of $(pool_bytes total_bytes) bytes are free"
	hpmmap pool remove --node 0 --size ${size}M >/dev/null || fail "round $1: pool remove"
	[ "$(pool_bytes total_bytes)" = "$total" ] || fail "round $1: the pool has $(pool_bytes total_bytes) bytes, it had $total"
	[ "$(memtotal_kib)" = "$with_resident" ] || fail "round $1: MemTotal is $(memtotal_kib) kB, it was $with_resident kB"
	[ $(($1 % 10)) != 0 ] || echo "round $1"
}

# The pools come and go entirely, and the hooks with each job.
for round in $(seq $alone); do
	one_round $round 0
done

# Beside a job that stays: the hooks do, which makes a round quicker.
hpmmap pool add --node 0 --size 128M
hpmmap run -- sleep 100000 &
resident=$!
within 10 is_registered $resident || fail "the job that stays does not register"
for round in $(seq $((alone + 1)) $rounds); do
	one_round $round 1
done
is_registered $resident || fail "the job that stays is gone"
kill $resident
wait $resident || true
expect_pool_free
hpmmap pool remove --all

[ "$(memtotal_kib)" = "$before" ] || fail "MemTotal is $(memtotal_kib) kB, it was $before kB"
[ "$(offline_blocks)" = "$offline" ] || fail "$(offline_blocks) blocks are offline, $offline were before"

#!/bin/bash
# 200 rounds of pool add, job, pool remove: every block comes back.
# pool: 0
# timeout: 600
. "$(dirname "$0")/../guest/lib.sh"

before=$(memtotal_kib)
offline=$(offline_blocks)
for round in $(seq 200); do
	size=$((128 * (1 + round % 2)))M
	hpmmap pool add --node 0 --size $size >/dev/null || fail "round $round: pool add"
	hpmmap run --strict -- /bin/true || fail "round $round: job"
	within 10 pool_is_free || fail "round $round: $(pool_bytes free_bytes) of $(pool_bytes total_bytes) bytes are free"
	hpmmap pool remove --all >/dev/null || fail "round $round: pool remove"
	[ "$(memtotal_kib)" = "$before" ] || fail "round $round: MemTotal is $(memtotal_kib), it was $before kB"
	[ $((round % 50)) != 0 ] || echo "round $round"
done
[ "$(offline_blocks)" = "$offline" ] || fail "$(offline_blocks) blocks are offline, $offline were before"

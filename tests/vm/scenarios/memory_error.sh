#!/bin/bash
# Memory errors in the pools: programs see the same as in ordinary memory, for a whole block. The memory
# is never handed out again, and stays offline.
# pool: 512M
# timeout: 300
# paths: kernel/mem/ kernel/as/ tests/vm/programs/memory_error.c
. "$(dirname "$0")/../guest/lib.sh"

PROGRAM=$HPMMAP_ROOT/build/tests-vm/memory_error
DIR=$(mktemp -d)
POISON=/sys/kernel/debug/hwpoison
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"

corrupted_kib() {
	awk '$1 == "HardwareCorrupted:" { print $2 }' /proc/meminfo
}
[ "$(corrupted_kib)" = 0 ] || fail "there is bad memory at the start"

# Natively and registered, in signals, their addresses, errors and contents.
"$PROGRAM" same "$DIR/native.log" >"$DIR/native" || fail "natively: $(grep WRONG "$DIR/native")"
hpmmap run --strict -- "$PROGRAM" same "$DIR/pool.log" >"$DIR/pool" || fail "registered: $(grep WRONG "$DIR/pool")"
[ "$(grep -c 'Bus error AR' "$DIR/pool")" -ge 9 ] || fail "hardly any signal: $(cat "$DIR/pool")"
diff "$DIR/native" "$DIR/pool" || fail "Linux (<) and HPMMAP (>) differ"
hpmmap run --strict -- "$PROGRAM" pool "$DIR/pool.log"
while read -r frame; do
	echo "$frame" >$POISON/unpoison-pfn
done <"$DIR/native.log"

# Free blocks, and what a process that has just ended has left to be zeroed.
hpmmap run --strict -- "$PROGRAM" frames $((64 * MIB)) >"$DIR/frames"
for line in 3 17 29; do
	frame=$(($(sed -n ${line}p "$DIR/frames") + line))
	printf '0x%x' $((frame * 4096)) >/sys/devices/system/memory/hard_offline_page
	echo $frame >>"$DIR/pool.log"
done
frame=$(sed -n 31p "$DIR/frames")
printf '0x%x' $((frame * 4096)) >/sys/devices/system/memory/soft_offline_page
echo "$frame" >>"$DIR/pool.log"

# What a job has reserved and not touched gets another block.
mkfifo "$DIR/touch"
hpmmap run --strict --placement first-touch -- "$PROGRAM" untouched $(($(pool_bytes free_bytes) - 64 * MIB)) \
	<"$DIR/touch" >"$DIR/untouched" &
exec 3>"$DIR/touch"
within 30 grep -q mapped "$DIR/untouched" || fail "nothing is mapped"
for line in 7 12 21 26; do
	frame=$(($(sed -n ${line}p "$DIR/frames") + line))
	printf '0x%x' $((frame * 4096)) >/sys/devices/system/memory/hard_offline_page
	echo $frame >>"$DIR/pool.log"
done
exec 3>&-
wait $! || fail "untouched: $(cat "$DIR/untouched")"

# All of it is accounted for.
bad_blocks() {
	awk '{ print int($1 / 512) }' "$DIR/pool.log" | sort -u | wc -l
}
nothing_is_held() {
	[ $(($(pool_bytes free_bytes) + $(pool_bytes bad_bytes))) = "$(pool_bytes total_bytes)" ]
}
within 10 nothing_is_held || fail "$(grep . $SYSFS/nodes/node0/*)"
[ "$(pool_bytes bad_bytes)" = $((2 * MIB * $(bad_blocks))) ] || fail "$(pool_bytes bad_bytes) bytes are bad, not $(bad_blocks) blocks"
[ "$(corrupted_kib)" = $((4 * $(sort -u "$DIR/pool.log" | wc -l))) ] || fail "HardwareCorrupted: $(corrupted_kib) kB"
hpmmap pool list --json | python3 -c '
import json, sys
assert json.load(sys.stdin)["nodes"][0]["bad_bytes"] == int(sys.argv[1])' "$(pool_bytes bad_bytes)"
hpmmap status --prometheus | grep -x "hpmmap_pool_bad_bytes{node=\"0\"} $(pool_bytes bad_bytes)" >/dev/null ||
	fail "not in the text for Prometheus"
dmesg | grep 'hpmmap: memory error at 0x[0-9a-f]*000, node 0, section' >/dev/null || fail "the kernel log does not tell"
# It names 16 of 31 processes that share a block.
dmesg | grep 'hpmmap:   and 15 more' >/dev/null || fail "the kernel log names all who share a block"

# Who takes all that is free gets none of it.
hpmmap run --strict -- "$PROGRAM" avoid $(($(pool_bytes free_bytes) - 16 * MIB)) "$DIR/pool.log"
nothing_is_held || within 10 nothing_is_held || fail "the last job has left something"

# Some of the memory blocks stay offline, by name; the others go back.
offline=$(offline_blocks)
expect_error 1 'memory[0-9,-]+ \(online: EHWPOISON, stays offline: memory errors\)' hpmmap pool remove --all
[ "$(pool_bytes total_bytes)" = 0 ] || fail "there are still pools"
bad=$(awk -v bytes="$BLOCK_BYTES" '{ print int($1 * 4096 / bytes) }' "$DIR/pool.log" | sort -un)
[ "$(offline_blocks)" = "$(wc -w <<<"$bad")" ] || fail "of $offline memory blocks $(offline_blocks) stay offline, not $bad"
for block in $bad; do
	[ "$(cat "/sys/devices/system/memory/memory$block/state")" = offline ] || fail "memory$block is online"
	if echo online 2>/dev/null >"/sys/devices/system/memory/memory$block/state"; then
		fail "memory$block was set online"
	fi
done

# Nothing was wrong with it: the errors were simulated.
sort -u "$DIR/pool.log" | while read -r frame; do
	echo "$frame" >$POISON/unpoison-pfn || fail "page frame $frame stays bad"
done
[ "$(corrupted_kib)" = 0 ] || fail "HardwareCorrupted: $(corrupted_kib) kB in the end"
for block in $bad; do
	echo online >"/sys/devices/system/memory/memory$block/state"
done
rmmod hwpoison-inject
rm -r "$DIR"

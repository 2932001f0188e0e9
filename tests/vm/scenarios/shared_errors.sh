#!/bin/bash
# Memory errors in files of hpmmapfs: SIGBUS and EIO for accesses to the page; it is never handed out again; all else works.
# pool: 256M
# timeout: 200
# tier: newest  sem_shared asks most of it on every kernel
# paths: kernel/fs/ kernel/mem/block/block.* kernel/as/life/failure.* tests/vm/programs/shared_errors.c
. "$(dirname "$0")/../guest/lib.sh"

DIR=$(mktemp -d)
POISON=/sys/kernel/debug/hwpoison
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs none /sys/kernel/debug
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"
mkdir "$DIR/files"
mount -t hpmmap none "$DIR/files"
# What fails must not leave memory taken for others.
trap 'umount "$DIR/files" 2>/dev/null || :' EXIT
for how in '' 'hpmmap run --'; do
	read -ra words <<<"$how"
	"${words[@]}" "$HPMMAP_ROOT/build/tests-vm/shared_errors" "$DIR/files/a" "$DIR/frames" || fail "$how: see above"
	cat "$DIR/frames" >>"$DIR/all"
done
umount "$DIR/files"

# It names 16 of 40 processes that ask for early signals, each with two mappings, in both runs.
named=$(dmesg | grep -c 'hpmmap: sending SIGBUS to told:')
[ "$named" = 32 ] || fail "the kernel log names $named processes of two times 40"
[ "$(dmesg | grep -c 'hpmmap: and to [2-9][0-9] more')" = 2 ] || fail "the kernel log does not tell how many more there are"

blocks=$(awk '{ print int($1 / 512) }' "$DIR/all" | sort -u | wc -l)
bad_and_free() {
	[ "$(pool_bytes bad_bytes)" = $((2 * MIB * blocks)) ] &&
		[ $(($(pool_bytes free_bytes) + $(pool_bytes bad_bytes))) = "$(pool_bytes total_bytes)" ]
}
within 10 bad_and_free || fail "of $blocks bad blocks: $(grep . $SYSFS/nodes/node0/*)"
[ "$(hpmmap pool limit --list --json | python3 -c '
import json, sys
print(sum(one["held_bytes"] or 0 for one in json.load(sys.stdin)["limits"]))')" = 0 ] || fail "somebody still pays: $(hpmmap pool limit --list)"

# They were simulated.
expect_error 1 'EHWPOISON|stays offline' hpmmap pool remove --all
bad=$(awk -v bytes="$BLOCK_BYTES" '{ print int($1 * 4096 / bytes) }' "$DIR/all" | sort -un)
sort -u "$DIR/all" | while read -r frame; do
	echo "$frame" >$POISON/unpoison-pfn || fail "page frame $frame stays bad"
done
for block in $bad; do
	echo online >"/sys/devices/system/memory/memory$block/state"
done
rmmod hwpoison-inject
rm -r "$DIR"

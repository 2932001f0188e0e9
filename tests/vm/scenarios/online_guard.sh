#!/bin/bash
# A block in a pool cannot be put online behind the module's back.
# pool: 256M
# paths: kernel/mem/pool/section.*
. "$(dirname "$0")/../guest/lib.sh"

blocks=$(hpmmap pool list --verbose --json | python3 -c '
import json, sys
print(*(block["memory_block"] for block in json.load(sys.stdin)["blocks"]))')
[ -n "$blocks" ] || fail "there is no block"
for block in $blocks; do
	state=/sys/devices/system/memory/memory$block/state
	for how in online online_movable online_kernel; do
		if echo $how 2>/dev/null >"$state"; then
			fail "memory$block in a pool was set $how"
		fi
		[ "$(cat "$state")" = offline ] || fail "memory$block is $(cat "$state")"
	done
	# An ACPI eject begins by setting it offline, which is no use where it is already.
	if echo 0 2>/tmp/error >/sys/devices/system/memory/memory$block/online; then
		fail "memory$block in a pool could be ejected"
	fi
	grep -q 'not permitted' /tmp/error || fail "$(cat /tmp/error)"
done
hpmmap run -- /bin/true

# Others are not affected.
hpmmap pool remove --all
for block in $blocks; do
	[ "$(cat /sys/devices/system/memory/memory$block/state)" = online ] || fail "memory$block is not online again"
done
block=${blocks%% *}
echo offline >"/sys/devices/system/memory/memory$block/state"
echo 0 >"/sys/devices/system/memory/memory$block/online"
echo online_movable >"/sys/devices/system/memory/memory$block/state"

#!/bin/bash
# Every allocation in every hooked call and every ioctl fails once.
# pool: 512M
# timeout: 1500
. "$(dirname "$0")/../guest/lib.sh"

debug=/sys/kernel/debug
faults=$HPMMAP_ROOT/build/tests-fuzz/faults
for attribute in failslab fail_page_alloc fail_usercopy; do
	[ -d "$debug/$attribute" ] || fail "this kernel has no $attribute"
	echo 0 >"$debug/$attribute/verbose"
done
for attribute in failslab fail_page_alloc; do
	echo N >"$debug/$attribute/ignore-gfp-wait"
done
echo N >"$debug/fail_page_alloc/ignore-gfp-highmem"
echo 0 >"$debug/fail_page_alloc/min-order"

hpmmap run --strict -- "$faults" calls
expect_pool_free
hpmmap run -- "$faults" calls
expect_pool_free
# So that the first launch installs the hooks.
unhooked() { [ "$(cat "$SYSFS/hooks_active")" = 0 ]; }
within 20 unhooked || fail "the hooks stay"
"$faults" ioctls
expect_pool_free
# Only what fails on behalf of the module is of interest in execve.
text=$(cat /sys/module/hpmmap/sections/.text)
size=$((16#$(awk '$1 == "hpmmap" { printf "%x", $2 }' /proc/modules)))
for attribute in failslab fail_page_alloc fail_usercopy; do
	echo "$text" >"$debug/$attribute/require-start"
	printf '%#x\n' $((text + size)) >"$debug/$attribute/require-end"
	echo 32 >"$debug/$attribute/stacktrace-depth"
done
"$faults" exec
expect_pool_free
for attribute in failslab fail_page_alloc fail_usercopy; do
	echo 0 >"$debug/$attribute/require-start"
	echo 0xffffffffffffffff >"$debug/$attribute/require-end"
done

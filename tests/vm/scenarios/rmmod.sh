#!/bin/bash
# The module cannot be unloaded while it is in use; unloading leaves no trace.
# pool: 128M
# paths: kernel/mem/pool/section.* kernel/task/ kernel/as/own/release.* kernel/as/life/share.*
. "$(dirname "$0")/../guest/lib.sh"

hpmmap run -- sleep 1000 &
job=$!
within 10 is_registered $job || fail "the job does not register"
expect 1 rmmod hpmmap
is_registered $job || fail "the job is gone"
kill $job
wait $job || true
expect_pool_free

# Memory in a pool would be lost.
expect 1 rmmod hpmmap
[ "$(pool_bytes total_bytes)" = $((128 * MIB)) ] || fail "the pool is gone"
hpmmap pool remove --all

for round in 1 2 3; do
	unload_module
	[ ! -e /dev/hpmmap ] && [ ! -e "$SYSFS" ] || fail "something of the module is left"
	load_module
	hpmmap pool add --size 128M
	hpmmap run -- /bin/true
	expect_pool_free
	hpmmap pool remove --all
done

unload_module
expect_error 1 'not loaded' hpmmap status
expect_error 125 'not loaded' hpmmap run -- true
expect_error 1 'not loaded' hpmmap pool add --size 128M
load_module

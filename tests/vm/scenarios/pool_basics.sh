#!/bin/bash
# Memory goes into the pools and comes back; every refusal is one clear line.
# pool: 0
# paths: kernel/mem/ kernel/chardev.* crates/hpmmap/src/pool/
. "$(dirname "$0")/../guest/lib.sh"

before=$(memtotal_kib)

hpmmap pool add --node 0 --size 256M
[ "$(pool_bytes total_bytes)" = $((256 * MIB)) ] || fail "the pool has $(pool_bytes total_bytes) bytes"
[ "$(pool_bytes free_bytes)" = $((256 * MIB)) ] || fail "the pool is not free"
[ "$(pool_bytes largest_free_bytes)" -ge $((2 * MIB)) ] || fail "there is no free block"
[ $((before - $(memtotal_kib))) = $((256 * 1024)) ] || fail "MemTotal went from $before to $(memtotal_kib) kB"

hpmmap pool add --size 128M
[ "$(pool_bytes total_bytes)" = $((384 * MIB)) ] || fail "the pool has $(pool_bytes total_bytes) bytes"
hpmmap pool remove --node 0 --size 256M
[ "$(pool_bytes total_bytes)" = $((128 * MIB)) ] || fail "the pool has $(pool_bytes total_bytes) bytes"
hpmmap pool remove --all
[ "$(pool_bytes total_bytes)" = 0 ] || fail "the pool has $(pool_bytes total_bytes) bytes"
[ "$(memtotal_kib)" = "$before" ] || fail "MemTotal went from $before to $(memtotal_kib) kB"

# What cannot be right.
expect 2 hpmmap pool add
expect 2 hpmmap pool add --size nonsense
expect 2 hpmmap pool remove
expect 2 hpmmap nonsense
expect_error 2 '128M|memory block|multiple' hpmmap pool add --size 1M
expect_error 2 'node 7|--node 7' hpmmap pool add --node 7 --size 128M

# What is right but cannot be had leaves everything as it was.
expect_error 1 . hpmmap pool add --size 512G
expect_error 1 . hpmmap pool remove --node 0 --size 128M
[ "$(pool_bytes total_bytes)" = 0 ] || fail "a refused request left $(pool_bytes total_bytes) bytes in the pool"
[ "$(memtotal_kib)" = "$before" ] || fail "a refused request changed MemTotal from $before to $(memtotal_kib) kB"
expect_error 125 'empty' hpmmap run -- true

# In use: refused, and the job goes on.
hpmmap pool add --size 128M
hpmmap run -- sleep 1000 &
job=$!
within 10 is_registered $job || fail "the job does not register"
expect_error 1 'use|busy|held' hpmmap pool remove --all
is_registered $job || fail "the job is gone"
kill $job
wait $job || true
expect_pool_free
hpmmap pool remove --all

# The service: what the file says, however often, in what its unit leaves it.
service() {
	HPMMAP_POOLS_CONF=$conf unshare --mount --net sh -c '
		mount --bind /sys/devices/system/memory /sys/devices/system/memory
		mount -o remount,bind,ro /sys
		mount -o remount,bind,ro / 2>/dev/null || true
		exec setpriv --bounding-set=-all,+sys_admin --inh-caps=-all --no-new-privs "$@"' sh \
		"$HPMMAP_ROOT/packaging/pools" "$@"
}
conf=$(mktemp)
printf '# pools\n0 256M' >"$conf"
service add
[ "$(pool_bytes total_bytes)" = $((256 * MIB)) ] || fail "a last line without an end: $(pool_bytes total_bytes) bytes"
service add
[ "$(pool_bytes total_bytes)" = $((256 * MIB)) ] || fail "added twice: $(pool_bytes total_bytes) bytes"
printf '7 1G\n0 384M\n' >"$conf"
said=$(service add 2>&1) && fail "a line that cannot be done is no failure: $said"
[[ $said == *":1: the pool of node 7 has not become 1G"* ]] || fail "it said: $said"
[ "$(pool_bytes total_bytes)" = $((384 * MIB)) ] || fail "after a line that fails: $(pool_bytes total_bytes) bytes"
service remove
[ "$(pool_bytes total_bytes)" = 0 ] || fail "the pool has $(pool_bytes total_bytes) bytes"
[ "$(memtotal_kib)" = "$before" ] || fail "MemTotal went from $before to $(memtotal_kib) kB"
rm "$conf"

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
expect_error 1 "Linux has .* of NUMA node 0 and keeps 2G unless 'leave' says less" hpmmap pool add --size 2G

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

# The service: what the file says, however often, in what its units leave it.
service() {
	unshare --mount --net sh -c '
		mount --bind /sys/devices/system/memory /sys/devices/system/memory
		mount -o remount,bind,ro /sys
		mount -o remount,bind,ro / 2>/dev/null || true
		exec setpriv --bounding-set=-all,+sys_admin --inh-caps=-all --no-new-privs "$@"' sh hpmmap pool "$@"
}
pool_is() { # MIB WHEN
	[ "$(pool_bytes total_bytes)" = $(($1 * MIB)) ] || fail "$2: $(pool_bytes total_bytes) bytes"
}
conf=$(mktemp)
printf '# pools\n0 256M' >"$conf"
service set --file "$conf"
pool_is 256 "a last line without an end"
first=$(hpmmap pool list --verbose)
service set --file "$conf"
pool_is 256 "set twice"
[ "$(hpmmap pool list --verbose)" = "$first" ] || fail "set again it has other blocks: $(hpmmap pool list --verbose)"
printf '7 1G\n0 384M # more\n' >"$conf"
said=$(service set --file "$conf" 2>&1) && fail "a line that cannot be done is no failure: $said"
[[ $said == *"$conf:1: there is no NUMA node 7 with memory; nodes with memory: 0"* ]] || fail "it said: $said"
pool_is 384 "after a line that fails"

# A job keeps what it holds, whatever the file says, and the rest goes when it has ended.
hpmmap run -- sleep 1000 &
job=$!
within 10 is_registered $job || fail "the job does not register"
service set --file "$conf" >/dev/null 2>&1 || true
pool_is 384 "set again while a job runs"
printf '0 0\n' >"$conf"
said=$(service set --file "$conf" 2>&1) && fail "what is in use cannot go: $said"
[[ $said == *"$conf:1: the pool has 128M instead of 0; in use: memory"*"held by jobs"* ]] || fail "it said: $said"
pool_is 128 "in use"
is_registered $job || fail "the job is gone"
kill $job
wait $job || true
expect_pool_free
service set --file "$conf"
pool_is 0 "nothing in use"
[ "$(memtotal_kib)" = "$before" ] || fail "MemTotal went from $before to $(memtotal_kib) kB"

# More than the node has is an error; more than Linux may give is taken so far.
printf '# big\n0 512G\n' >"$conf"
said=$(hpmmap pool set --file "$conf" 2>&1) && fail "512G were had: $said"
[[ $said == *"$conf:2: 512G is more than NUMA node 0 has: "* ]] || fail "it said: $said"
pool_is 0 "more than the node has"
total=$((MIB / 1024 * (before / 1024 / 128 * 128)))
printf '0 %sM\n' $((total / 1024)) >"$conf"
said=$(timeout -s TERM 240 hpmmap pool set --file "$conf" --timeout 1 2>&1) && fail "all was had: $said"
[[ $said == *"$conf:1: the pool has "*" instead of "*"; Linux has "*" of NUMA node 0 and keeps 2G unless 'leave' says less"* ]] || fail "it said: $said"
[ "$(pool_bytes total_bytes)" -gt 0 ] || fail "nothing was taken: $said"
[ "$(memtotal_kib)" -ge $((2 * MIB)) ] || fail "Linux has only $(memtotal_kib) kB: $said"
# As little as is said.
first=$(pool_bytes total_bytes)
printf 'leave 1792M\n%s\n' "$(cat "$conf")" >"$conf"
hpmmap pool set --file "$conf" --timeout 1 2>/dev/null || true
[ "$(pool_bytes total_bytes)" -gt "$first" ] || fail "the pool has not grown beyond $first bytes"
[ "$(memtotal_kib)" -ge $((1792 * 1024)) ] || fail "Linux has only $(memtotal_kib) kB"
printf '# nothing\n' >"$conf"
hpmmap pool set --file "$conf" | grep 'stay as they are' >/dev/null || fail "a file without lines is not told"
[ "$(pool_bytes total_bytes)" -gt 0 ] || fail "a file without lines emptied the pool"
service remove --all
pool_is 0 "given back"
[ "$(memtotal_kib)" = "$before" ] || fail "MemTotal went from $before to $(memtotal_kib) kB"
rm "$conf"

#!/bin/bash
# Memory comes from the nodes that were asked for, in order of distance or in turn.
# machine: numa
# pool: 0
. "$(dirname "$0")/../guest/lib.sh"

used() {
	local dir=$SYSFS/nodes/node$1
	[ -d "$dir" ] || { echo 0; return; }
	echo $(($(cat "$dir/total_bytes") - $(cat "$dir/free_bytes")))
}

# Holds 64 MB with these options of hpmmap run, on CPU 0; prints what each node gave.
holding() {
	taskset -c 0 hpmmap run "$@" -- python3 -c '
import mmap, os, time
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
open("/tmp/ready", "w").close()
time.sleep(120)' >&2 &
	local job=$!
	within 60 test -e /tmp/ready || fail "the job does not get ready"
	echo "$(($(used 0) / MIB)) $(($(used 1) / MIB))"
	rm /tmp/ready
	kill $job
	wait $job || true
	expect_pool_free
}

expect_error 2 'node' hpmmap pool add --size 128M
hpmmap pool add --node 1 --size 256M
[ "$(cat "$SYSFS/nodes/node1/total_bytes")" = $((256 * MIB)) ] || fail "node 1 has $(cat "$SYSFS/nodes/node1/total_bytes") bytes"

# Only the other node has a pool: that one is taken.
read -r zero one <<<"$(holding --strict)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "with a pool on node 1 only: $zero MB and $one MB"
expect_error 125 'node 0|empty' hpmmap run --node 0 -- true

hpmmap pool add --node 0 --size 256M
read -r zero one <<<"$(holding)"
[ "$zero" -ge 64 ] && [ "$one" = 0 ] || fail "on CPU 0, by default: $zero MB and $one MB"
read -r zero one <<<"$(holding --node 1)"
[ "$zero" = 0 ] && [ "$one" -ge 64 ] || fail "with --node 1: $zero MB and $one MB"
read -r zero one <<<"$(holding --interleave)"
difference=$((zero > one ? zero - one : one - zero))
[ "$zero" -ge 32 ] && [ "$one" -ge 32 ] && [ $difference -le 8 ] || fail "with --interleave: $zero MB and $one MB"

# A node's pool runs out: strict jobs bound to it get no more, though the other has some.
hpmmap run --strict --node 1 -- python3 -c '
import errno, mmap
try:
    mmap.mmap(-1, 300 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError as error:
    raise SystemExit(0 if error.errno == errno.ENOMEM else 1)
raise SystemExit("300 MB came from a pool of 256 MB")'

hpmmap pool remove --node 0 --all
[ "$(cat "$SYSFS/nodes/node1/total_bytes")" = $((256 * MIB)) ] || fail "node 1 lost memory with node 0"
hpmmap pool remove --all

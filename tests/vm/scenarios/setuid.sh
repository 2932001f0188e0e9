#!/bin/bash
# A set-user-ID program is never registered.
# pool: 128M
# paths: kernel/task/ tests/vm/programs/registered.c
. "$(dirname "$0")/../guest/lib.sh"

registered=$HPMMAP_ROOT/build/tests-vm/registered
mkdir -p /run/setuid
mount -t tmpfs -o suid,mode=755 tmpfs /run/setuid
cp "$registered" /run/setuid/plain
cp "$registered" /run/setuid/setuid
chmod 4755 /run/setuid/setuid

[ "$(as_member hpmmap run -- /run/setuid/plain)" = registered ] || fail "the plain program is not registered"
[ "$(as_member hpmmap run -- /run/setuid/setuid)" = native ] || fail "the set-user-ID program is registered"
[ "$(as_member hpmmap run -- sh -c '/run/setuid/setuid; :')" = native ] || fail "a set-user-ID child is registered"
# It has ended for good: what such a program executes is not registered either.
[ "$(as_member hpmmap run -- /run/setuid/setuid /run/setuid/plain)" = "$(printf 'native\nnative')" ] ||
	fail "the registration comes back after a set-user-ID program"

# What the member had it gives back itself before its first instruction, and zeroes some of it.
cp "$(command -v cat)" /run/setuid/cat
chmod 4755 /run/setuid/cat
zero_trace_start
free=$(as_member hpmmap run -- python3 -c '
import os, sys
held = b"x" * (32 << 20)
os.execv("/run/setuid/cat", ["cat", *sys.argv[1:]])' "$SYSFS/nodes/node0/free_bytes")
zero_trace_stop
[ "$free" = "$(pool_bytes total_bytes)" ] || fail "a set-user-ID program finds $free bytes free"
[ "$(zeroed cat)" -gt 0 ] || fail "somebody else gave back what a member had that executed a set-user-ID program"
umount /run/setuid

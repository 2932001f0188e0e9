#!/bin/bash
# Who is not in the group may not use the device; who is may not change the pools.
# pool: 256M
. "$(dirname "$0")/../guest/lib.sh"

[ "$(stat -c '%a %G' /dev/hpmmap)" = '660 hpmmap' ] || fail "/dev/hpmmap is $(stat -c '%a %G' /dev/hpmmap)"

expect_error 125 'permission|group' as_user hpmmap run -- true
expect_error 1 'permission|root|CAP_SYS_ADMIN' as_user hpmmap pool add --size 128M
expect_error 1 'permission|root|CAP_SYS_ADMIN' as_member hpmmap pool add --size 128M
expect_error 1 'permission|root|CAP_SYS_ADMIN' as_member hpmmap pool remove --all
expect_error 1 'permission|root|CAP_SYS_ADMIN' as_member hpmmap pool limit --default --size none
[ "$(pool_bytes total_bytes)" = $((256 * MIB)) ] || fail "the pool has $(pool_bytes total_bytes) bytes"

# Looking needs no right at all.
as_user hpmmap status --json | python3 -m json.tool >/dev/null
as_user hpmmap pool list --json | python3 -m json.tool >/dev/null

as_member hpmmap run -- sleep 1000 &
shell=$!
one() { [ "$(contexts)" = 1 ]; }
within 10 one || fail "the job of a member does not register"
job=$(cat "$SYSFS"/contexts/*/pid)
[ "$(context_of $job uid)" = $USER_ID ] || fail "the job is said to be of user $(context_of $job uid)"
kill $job
wait $shell || true

# The ioctls themselves, without the command's own checks.
as_member "$HPMMAP_ROOT/build/tests-vm/ioctls" member
"$HPMMAP_ROOT/build/tests-vm/ioctls" root

#!/bin/bash
# A limit holds for one user, over all of the user's jobs, and can be lifted.
# pool: 512M
. "$(dirname "$0")/../guest/lib.sh"

# How many pieces of 8 MB a strict job gets, at most 20.
pieces() {
	"$@" hpmmap run --strict -- python3 -c '
import errno, mmap
held = []
try:
    for _ in range(20):
        held.append(mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
except OSError as error:
    assert error.errno == errno.ENOMEM, error
print(len(held))'
}
MEMBER_ID=2002
other() { as_member "$@"; }

[ "$(pieces as_member)" = 20 ] || fail "without a limit not all was had"

hpmmap pool limit --user $MEMBER_ID --size 128M
got=$(pieces as_member)
echo "with a limit of 128M: $got pieces of 8 MB"
[ "$got" -ge 4 ] && [ "$got" -lt 16 ] || fail "with a limit of 128M a user got $got pieces of 8 MB"
[ "$(MEMBER_ID=2003 pieces other)" = 20 ] || fail "the limit of one user holds for another"
[ "$(pieces command)" = 20 ] || fail "the limit of one user holds for root"

# With other user IDs in a user namespace of one's own, as containers have them, it holds too.
in_namespace() {
	rm -f /tmp/unshared /tmp/mapped
	as_member unshare --user --keep-caps bash -c '
		echo $$ >/tmp/unshared
		until [ -e /tmp/mapped ]; do sleep 0.1; done
		exec setpriv --reuid 1 --keep-groups "$@"' bash "$@" &
	within 20 test -s /tmp/unshared || fail "there is no namespace"
	# What newuidmap does, by /etc/subuid.
	echo '0 200000 10' >"/proc/$(cat /tmp/unshared)/uid_map"
	touch /tmp/mapped
	wait $!
}
[ "$(in_namespace id -u)" = 1 ] || fail "the user in the namespace is $(in_namespace id -u)"
got=$(pieces in_namespace)
echo "in a user namespace: $got pieces of 8 MB"
[ "$got" -ge 4 ] && [ "$got" -lt 16 ] || fail "in a user namespace the user got $got pieces of 8 MB"

# The default is for those without their own.
hpmmap pool limit --default --size 96M
[ "$(cat "$SYSFS/user_limit_bytes")" = $((96 * MIB)) ] || fail "the default limit is $(cat "$SYSFS/user_limit_bytes")"
got=$(MEMBER_ID=2003 pieces other)
[ "$got" -ge 2 ] && [ "$got" -lt 12 ] || fail "with a default limit of 96M a user got $got pieces of 8 MB"

hpmmap pool limit --default --size none
hpmmap pool limit --user $MEMBER_ID --size none
[ "$(pieces as_member)" = 20 ] || fail "the limit was not lifted"
[ "$(cat "$SYSFS/user_limit_bytes")" = 0 ] || fail "the default limit was not lifted"

expect_error 2 '2M|multiple' hpmmap pool limit --user $MEMBER_ID --size 3000000

#!/bin/bash
# Users outside of the group cannot use the device; members cannot change the pools.
# Only their user and root see launches.
# takes: 20
# pool: 256M
# tier: newest  every kernel decides on rights in the same way
# paths: kernel/chardev.* kernel/sysfs.* kernel/mem/pool/pool.* kernel/as/own/show.* kernel/as/own/stats.* tests/vm/programs/ioctls.c
. "$(dirname "$0")/../guest/lib.sh"

for device in hpmmap xpmem; do
	[ "$(stat -c '%a %G' /dev/$device)" = '660 hpmmap' ] || fail "/dev/$device is $(stat -c '%a %G' /dev/$device)"
	[ "$(grep DEVMODE /sys/class/misc/$device/uevent)" = DEVMODE=0660 ] || fail "/dev/$device is made with $(cat /sys/class/misc/$device/uevent)"
	as_user sh -c "exec <>/dev/$device" 2>/dev/null && fail "/dev/$device is everybody's"
	as_member sh -c "exec <>/dev/$device" || fail "a member cannot open /dev/$device"
done

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
job=$(contexts pid)
[ "$(context_of $job uid)" = $USER_ID ] || fail "the job is said to be of user $(context_of $job uid)"

# Others do not see more than that it is there.
jobs=("$SYSFS/jobs/"*)
files=$(find "${jobs[@]}" -type f | wc -l)
[ "$files" -ge 7 ] || fail "there are only $files files of the job"
readable() { "$@" find "${jobs[@]}" -type f -exec sh -c 'cat "$1" >/dev/null 2>&1 && echo "$1"' sh {} \;; }
[ "$(readable as_member | wc -l)" = "$files" ] || fail "of $files files, their user cannot read all"
[ "$(readable command | wc -l)" = "$files" ] || fail "of $files files, root cannot read all"
[ "$(as_member cat $CONTEXTS | wc -l)" -ge 17 ] && [ "$(wc -l <$CONTEXTS)" -ge 17 ] || fail "$(as_member cat $CONTEXTS)"
MEMBER_ID=2003
[[ $(as_member cat $CONTEXTS) =~ ^id\ [0-9]+$ ]] || fail "another user reads $(as_member cat $CONTEXTS)"
# Nor through a program of more rights.
python3 -c '
import os
os.seteuid(2003)
contexts = open("/proc/hpmmap")
os.seteuid(0)
assert len(contexts.readlines()) == 1'
seen=$(readable as_member)
[ -z "$seen" ] || fail "another user reads $seen"
[ "$(find "${jobs[@]}" -type f ! -perm 400 | wc -l)" = 0 ] || fail "$(find "${jobs[@]}" -type f ! -perm 400)"
as_member hpmmap status | tee /tmp/status
grep -q '^No jobs of this user' /tmp/status && grep -q '^(1 process of other users' /tmp/status || fail "status as another user"
as_member hpmmap status --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
assert not status["contexts"] and not status["jobs"] and status["hidden_contexts"] == 1, status'
as_member hpmmap status --prometheus --per-launch >/tmp/status
! grep -E '^hpmmap_(job|launches)_' /tmp/status || fail "metrics of another user"
grep -q '^hpmmap_pool_free_bytes' /tmp/status || fail "no metrics of the pools"
MEMBER_ID=$USER_ID
as_member hpmmap status | grep -w sleep || fail "a user does not see his own job"
as_member hpmmap status --prometheus | grep '^hpmmap_launches_held_bytes' >/dev/null || fail "no metrics of one's own job"
hpmmap status | grep -w sleep || fail "root does not see the job"
kill $job
wait $shell || true
rm -f /tmp/rights.json
as_member hpmmap run --verbose --report /tmp/rights.json -- true 2>/tmp/rights.txt
grep -q undisturbed /tmp/rights.json && [ -s /tmp/rights.txt ] || fail "no report for an ordinary user"
rm -f /tmp/rights.json

# What smaps does not tell of a process, we do not either.
as_member hpmmap run -- python3 -c '
import ctypes, time
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
open("/tmp/undumpable", "w").close()
time.sleep(1000)' &
shell=$!
within 20 test -e /tmp/undumpable || fail "the job does not get ready"
rm -f /tmp/undumpable
job=$(contexts pid)
! as_member cat /proc/$job/smaps 2>/dev/null || fail "smaps of a process that is not dumpable can be read"
as_member hpmmap status | grep -w python3
as_member hpmmap status --json | python3 -c '
import json, sys
(one,) = json.load(sys.stdin)["contexts"]
assert one["mapped_2m_bytes"] is None and one["held_bytes"] > 0, one'
hpmmap status --json | python3 -c '
import json, sys
(one,) = json.load(sys.stdin)["contexts"]
assert one["mapped_2m_bytes"] + one["mapped_4k_bytes"] > 0, one'
kill $job
wait $shell || true

# The ioctls themselves, without the command's own checks.
as_member "$HPMMAP_ROOT/build/tests-vm/ioctls" member
"$HPMMAP_ROOT/build/tests-vm/ioctls" root

#!/bin/bash
# A limit holds for a user, over all of the user's launches, or for a cgroup with its descendants, and
# can be lifted. Memory is charged to the user and the cgroup of the process.
# pool: 512M
# tier: newest  every kernel decides on charges in the same way
# paths: kernel/mem/block/account.* kernel/mem/pool/alloc.* kernel/mem/block/payer.* kernel/as/own/job.* kernel/as/change/place.* kernel/as/own/reserve.* kernel/as/own/reuse.*
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

# Without a word of the administrator, half of it.
[ "$(cat "$SYSFS/user_limit_bytes")" = $((256 * MIB)) ] || fail "the default limit is $(cat "$SYSFS/user_limit_bytes")"
whole='
import mmap, sys
try:
    held = mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError:
    sys.exit(3)'
expect 3 as_member hpmmap run --strict -- python3 -c "$whole" 250
expect 0 as_member hpmmap run --strict -- python3 -c "$whole" 200
expect 0 hpmmap run --strict -- python3 -c "$whole" 300
# A launch prints a note about the default limit, which was not set; root has no limit.
said=$(as_member hpmmap run -- true 2>&1)
[[ $said == *'the default limit of every user (256M) leaves 256M of the 512M that are free in the pools: '*'ordinary memory'* ]] ||
	fail "a launch with the default limit says: $said"
[ -z "$(hpmmap run -- true 2>&1)" ] || fail "root is told of a limit: $(hpmmap run -- true 2>&1)"
hpmmap doctor | grep 'user-limit .* a user may hold 256M of the 512M' >/dev/null || fail "doctor does not tell the default limit: $(hpmmap doctor)"
hpmmap pool limit --user $MEMBER_ID --size 2M
expect_error 125 'the limit of user .* .2M. leaves 2M, and with --strict a program needs .* to start' as_member hpmmap run --strict -- true
hpmmap pool limit --user $MEMBER_ID --size default
hpmmap pool add --size 128M
[ "$(cat "$SYSFS/user_limit_bytes")" = $((320 * MIB)) ] || fail "of 640M the default limit is $(cat "$SYSFS/user_limit_bytes")"
hpmmap pool remove --size 128M
hpmmap pool limit --default --size 100%
expect 0 as_member hpmmap run --strict -- python3 -c "$whole" 300

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
hpmmap pool limit --user $MEMBER_ID --size default
[ "$(pieces as_member)" = 20 ] || fail "the limit was not lifted"
[ "$(cat "$SYSFS/user_limit_bytes")" = 0 ] || fail "the default limit was not lifted"

# A cgroup, and what lies below it; in Slurm's way, each job has one.
top=/sys/fs/cgroup/limits
mkdir -p $top/one $top/two
within_cgroup() { bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' bash "$@"; }
one() { within_cgroup $top/one "$@"; }
hpmmap pool limit --cgroup /limits --size 128M
got=$(pieces one)
echo "in a cgroup below one with a limit of 128M: $got pieces of 8 MB"
[ "$got" -ge 4 ] && [ "$got" -lt 16 ] || fail "in a cgroup with a limit of 128M root got $got pieces of 8 MB"
[ "$(pieces command)" = 20 ] || fail "the limit of a cgroup holds outside of it"
within_cgroup $top/two hpmmap run -- python3 -c '
import mmap, time
held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
open("/tmp/held", "w").close()
time.sleep(1000)' &
job=$!
within 30 test -e /tmp/held || fail "the job does not get ready"
rm /tmp/held
got=$(pieces one)
[ "$got" -lt 8 ] || fail "beside 64M in a sister cgroup, $got pieces of 8 MB"
hpmmap pool limit --list
hpmmap pool limit --list --json | python3 -c '
import json, sys
limits = {one["name"] or one["kind"]: one for one in json.load(sys.stdin)["limits"]}
assert limits["/limits"]["limit_bytes"] == 128 << 20 and limits["/limits"]["rule"] == "128M", limits
assert limits["/limits"]["held_bytes"] >= 64 << 20, limits
assert limits["/limits/two"]["held_bytes"] == limits["/limits"]["held_bytes"], limits
assert limits["/limits/two"]["limit_bytes"] is None and limits["/limits/two"]["rule"] is None, limits
assert limits["root"]["held_bytes"] >= 64 << 20 and limits["root"]["limit_bytes"] is None, limits
assert limits["default"]["rule"] == "none", limits'
# An ordinary user sees no other user.
[ "$(MEMBER_ID=2003 other hpmmap pool limit --list --json | python3 -c 'import json, sys
print(*{one["kind"] for one in json.load(sys.stdin)["limits"]})')" = default ] || fail "another user sees $(MEMBER_ID=2003 other hpmmap pool limit --list)"
# But of the cgroup it is in, and those above.
own=$(within_cgroup $top/two setpriv --reuid 2003 --regid 2003 --groups "$(getent group hpmmap | cut -d: -f3)" hpmmap pool limit --list --json |
	python3 -c '
import json, sys
print(*sorted(one["name"] for one in json.load(sys.stdin)["limits"] if one["kind"] == "cgroup"))')
[ "$own" = "/limits /limits/two" ] || fail "in a cgroup a user sees $own"
hpmmap pool limit --cgroup $top --size 32M
expect_error 125 'limit of cgroup /limits .32M. is reached' one hpmmap run --strict -- true
hpmmap pool limit --cgroup $top --size none
hpmmap pool limit --cgroup $top/one --size 16M
one hpmmap run --report /tmp/limits.json -- python3 -c "$whole" 100
grep -q 'the limit of cgroup /limits/one was reached' /tmp/limits.json || fail "the report does not name the limit: $(cat /tmp/limits.json)"
echo 1 >$top/two/cgroup.kill
wait $job || true
expect_error 1 'no cgroup' hpmmap pool limit --cgroup /nowhere --size 2M
expect_error 1 'root of all' hpmmap pool limit --cgroup / --size 2M
# The number of levels that count is bounded: a process below them counts for its ancestor at the last one.
last=$top$(printf '/d%.0s' {2..64})
mkdir -p $last/below/them
hpmmap pool limit --cgroup $last --size 16M
expect_error 1 'more than 64 levels' hpmmap pool limit --cgroup $last/below --size 2M
expect 3 within_cgroup $last/below/them hpmmap run --strict -- python3 -c "$whole" 200
hpmmap pool limit --cgroup $last --size none
within_cgroup $last/below/them hpmmap run --strict -- python3 -c "$whole" 100 || fail 'a process in a deep cgroup gets no memory'
find $top/d -depth -type d -exec rmdir {} +

# The charge follows the process: a child that becomes another user is charged to that user.
hpmmap pool limit --user 2005 --size 32M
hpmmap run --strict -- setpriv --reuid 2005 --clear-groups python3 -c "$whole" 100 && fail "what drops to user 2005 is not charged to them"
hpmmap run --strict -- python3 -c '
import mmap, os, sys
os.setuid(2005)
if os.fork() == 0:
    try:
        mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        os._exit(3)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) != 3)' || fail "a child after setuid is not charged to user 2005"

# So is a child that does not execute another program, and a process that is moved into a cgroup.
becomes='
import errno, mmap, os, sys
def have(n):
    try:
        return mmap.mmap(-1, n << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        assert error.errno == errno.ENOMEM, error
before = have(100)
assert before, "root gets nothing"
exec(sys.argv[1])
assert not have(100), "what becomes somebody else is charged as before"
assert have(8), "what becomes somebody else gets nothing"
'
expect 0 hpmmap run --strict -- python3 -c "$becomes" 'os.setuid(2005)'
expect 0 hpmmap run --strict -- python3 -c "$becomes" '
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.setuid(2005)'
mkdir $top/three
hpmmap pool limit --cgroup $top/three --size 32M
expect 0 hpmmap run --strict -- python3 -c "$becomes" "open('$top/three/cgroup.procs', 'w').write(str(os.getpid()))"
rmdir $top/three
# To and fro: however many users there were before.
expect 0 hpmmap run --strict -- python3 -c "$becomes" '
for uid in range(3000, 3020):
    os.setresuid(uid, 0, 0)
    have(2)
    if uid % 5 == 0 and os.fork() == 0:
        os._exit(0)
os.setresuid(0, 0, 0)
assert have(100), "root gets nothing any more"
os.setresuid(2005, 0, 0)'

# Memory kept for reuse is taken back for the limit of the user it is charged to, even if the process is another user now.
hpmmap pool limit --user 2005 --size 64M
hpmmap run -- python3 -c '
import mmap, os, time
UNINITIALIZED = 0x4000000
os.setresuid(2005, 0, 0)
mmap.mmap(-1, 48 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | UNINITIALIZED).close()
os.setresuid(0, 0, 0)
held = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
with open("/tmp/held", "w") as file:
    file.write(str(os.getpid()))
time.sleep(1000)' &
job=$!
within 30 test -s /tmp/held || fail "the job that keeps memory does not get ready"
MEMBER_ID=2005 expect 0 as_member hpmmap run --strict -- python3 -c "$whole" 40
kill -KILL "$(cat /tmp/held)"
wait $job || true
rm /tmp/held
hpmmap pool limit --user 2005 --size 32M

# Who has a limit has it, too, while the kernel does something for the process with others' credentials:
# a read of an overlayfs has the credentials of the mounter. held_by COMMAND...: what a process
# holds, in MB, whose reads touched 100.
reads='
import ctypes, mmap, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
SLOT, NR = 2 << 20, 50
held = mmap.mmap(-1, NR * SLOT, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
start = ctypes.addressof(ctypes.c_char.from_buffer(held))
fd = os.open(sys.argv[2], os.O_RDONLY)
def pread(i):
    assert libc.pread(fd, ctypes.c_void_p(start + i * SLOT), 1, 0) == 1
def call(nr, *args):
    ret = libc.syscall(nr, *args)
    assert ret >= 0, os.strerror(ctypes.get_errno())
    return ret
exec(sys.argv[1])
for i in range(NR):
    pread(i)
with open("/tmp/reads", "w") as file:
    file.write(str(os.getpid()))
time.sleep(1000)'
held_by() {
	rm -f /tmp/reads
	"$@" &
	within 60 test -s /tmp/reads || fail "the reads do not come to an end: $*"
	held=$(($(context_of "$(cat /tmp/reads)" held_bytes) / MIB))
	kill -KILL "$(cat /tmp/reads)"
	wait $! || true
}
mkdir /tmp/limits1 /tmp/limits2 /tmp/limits3
echo contents >/tmp/limits1/file
mount -t overlay overlay -o lowerdir=/tmp/limits1:/tmp/limits2 /tmp/limits3
held_by hpmmap run -- python3 -c "$reads" '' /tmp/limits3/file
[ $held -ge 100 ] || fail "root holds $held MB of what it has touched"
hpmmap pool limit --user $MEMBER_ID --size 32M
held_by as_member hpmmap run -- python3 -c "$reads" '' /tmp/limits3/file
[ $held -le 32 ] || fail "by reads of an overlayfs of root's somebody with a limit of 32M holds $held MB"
hpmmap pool limit --user $MEMBER_ID --size default
umount /tmp/limits3
# A thread that io_uring has made for a process has the credentials of before.
held_by hpmmap run -- python3 -c "$reads" '
params = (ctypes.c_uint32 * 30)()
ring = call(425, 4, params)  # io_uring_setup
array, sq_tail, cq_head = params[16], params[11], params[20]
queues = mmap.mmap(ring, 4096, mmap.MAP_SHARED)
sqes = mmap.mmap(ring, 4096, mmap.MAP_SHARED, offset=0x10000000)
done = 0
def pread(i):
    global done
    # IORING_OP_READ with IOSQE_ASYNC; io_uring_enter for one, with IORING_ENTER_GETEVENTS.
    sqes[:64] = struct.pack("<BBHiQQII32x", 22, 16, 0, fd, 0, start + i * SLOT, 1, 0)
    struct.pack_into("<I", queues, array + 4 * (done % 4), 0)
    done += 1
    struct.pack_into("<I", queues, sq_tail, done)
    assert call(426, ring, 1, 1, 1, None, 0) == 1
    struct.pack_into("<I", queues, cq_head, done)
pread(0)
os.setuid(2005)' /tmp/limits1/file
# With what root had before.
[ $held -le 72 ] || fail "by an io_uring of before setuid somebody with a limit of 32M holds $held MB"
rm -r /tmp/limits1 /tmp/limits2 /tmp/limits3

# A file with one line that is wrong: the others hold.
printf 'user 2006 4M\ncgroup /nowhere 8G # not there yet\n\ndefault 50%%\n' >/tmp/limits
expect_error 1 '/tmp/limits:2: no cgroup' hpmmap pool limit --load /tmp/limits
hpmmap pool limit --list | grep 'user *2006 *4M' >/dev/null || fail "the file's limits are not there"

# The file is complete for users; cgroups keep limits that others have set.
mkdir $top/three
hpmmap pool limit --cgroup $top/three --size 32M
hpmmap pool limit --user 2006 --size 8M
printf 'group daemon 6M\nuser 2007 4M\n' >/tmp/limits
hpmmap pool limit --load /tmp/limits
hpmmap pool limit --load /tmp/limits
limits=$(hpmmap pool limit --list)
echo "$limits" | grep 'user *2007 *4M' >/dev/null || fail "the limit of user 2007 is not there: $limits"
echo "$limits" | grep 'user *daemon *6M' >/dev/null || fail "the limit of the group member is missing: $limits"
echo "$limits" | grep 'user *200[56]' >/dev/null && fail "users without a line have limits: $limits"
echo "$limits" | grep 'default *- *50%' >/dev/null || fail "without a line the default is not 50%: $limits"
echo "$limits" | grep 'cgroup */limits/three *32M' >/dev/null || fail "the limit of a cgroup is gone: $limits"
hpmmap status --json | grep -A8 '"limits"' >/dev/null || fail "status does not have limits"
hpmmap status --prometheus | grep '^hpmmap_limit_bytes{kind="user",name="2007"} 4194304$' >/dev/null || fail "the metrics do not have the limit of user 2007"
rmdir $top/three
hpmmap pool limit --user 2007 --size default
hpmmap pool limit --user daemon --size default
hpmmap pool limit --user 2005 --size default
hpmmap pool limit --user 2006 --size default

# The lockdown of a batch system (docs/slurm.md): what is no batch job gets nothing, and a
# batch job what it was granted.
granted=/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7
login=/sys/fs/cgroup/user.slice/user-$MEMBER_ID.slice
mkdir -p $granted/step_0 $login
printf 'default none\ncgroup /user.slice 0\n' >/tmp/limits
hpmmap pool limit --load /tmp/limits
hpmmap pool limit --list | grep 'cgroup */user.slice *0 *0 ' >/dev/null || fail "the lockdown does not hold: $(hpmmap pool limit --list)"
hpmmap pool limit --cgroup $granted --size 128M
member=(setpriv --reuid "$MEMBER_ID" --regid "$MEMBER_ID" --groups "$(getent group hpmmap | cut -d: -f3)")
logged_in() { within_cgroup $login "${member[@]}" "$@"; }
said=$(logged_in hpmmap run -- true 2>&1) || fail "under a limit of 0 a program does not run: $said"
[[ $said == *'the limit of cgroup /user.slice (0) is reached: the launch gets ordinary memory'* ]] || fail "under a limit of 0 a launch says: $said"
expect_error 125 'the limit of cgroup /user.slice .0. is reached' logged_in hpmmap run --strict -- true
got=$(pieces within_cgroup $granted/step_0 "${member[@]}")
echo "in a batch job that was granted 128M: $got pieces of 8 MB"
[ "$got" -ge 4 ] && [ "$got" -lt 16 ] || fail "of 128M that were granted a batch job got $got pieces of 8 MB"
# A launch that comes to the login's cgroup goes on with ordinary memory.
within_cgroup $granted/step_0 hpmmap run --report /tmp/limits.json -- python3 -c "
import mmap, os
open('$login/cgroup.procs', 'w').write(str(os.getpid()))
held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held[::4096] = b'x' * (64 << 8)"
grep -q 'the limit of cgroup /user.slice was reached' /tmp/limits.json || fail "the report does not name the limit: $(cat /tmp/limits.json)"
hpmmap pool limit --cgroup /user.slice --size default
none_there() { [ -z "$(cat "$@")" ]; }
within 20 none_there $granted/step_0/cgroup.procs $login/cgroup.procs
rmdir $granted/step_0 $granted $login
hpmmap pool limit --user $MEMBER_ID --size default

# Cgroups come and go, with limits and jobs, and leave nothing.
for i in {1..10}; do
	mkdir $top/one/$i
	hpmmap pool limit --cgroup $top/one/$i --size 32M >/dev/null
	within_cgroup $top/one/$i hpmmap run -- true
	rmdir $top/one/$i
done
hpmmap pool limit --list >/dev/null
none_left() { grep -qx 'nr_dying_descendants 0' $top/cgroup.stat; }
within 20 none_left || fail "of cgroups that are gone: $(cat $top/cgroup.stat)"
rmdir $top/one $top/two $top
gone() { ! hpmmap pool limit --list | grep -E 'cgroup|user  *200' >/dev/null; }
within 20 gone || fail "there is left: $(hpmmap pool limit --list)"

expect_error 2 '2M|multiple' hpmmap pool limit --user $MEMBER_ID --size 3000000

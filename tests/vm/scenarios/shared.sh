#!/bin/bash
# Files whose memory is the pools': mounting and its options, who may have how much, what is shown, and
# that nothing goes away under anybody.
# pool: 512M
# timeout: 400
# takes: 60
# paths: kernel/fs/ kernel/mem/pinned.* kernel/mem/account.* kernel/mem/pool.* kernel/as/file.* tests/guest/sem_shared*.c tests/guest/shared.*
. "$(dirname "$0")/../guest/lib.sh"

DIR=/tmp/shared
mkdir -p $DIR
leave() {
	while mountpoint -q $DIR; do umount -l $DIR; done
	hpmmap pool limit --user $USER_ID --size default >/dev/null 2>&1 || true
}
trap leave EXIT
all=$(pool_bytes total_bytes)

mounted() { mount -t hpmmap -o "$1" none $DIR; }
# of DIRECTORY: size, used and available bytes, as df has them.
df_of() { df --block-size=1 --output=size,used,avail $DIR | tail -n 1 | xargs; }
held_by() {
	hpmmap pool limit --list --json | python3 -c '
import json, sys
print(sum(one["held_bytes"] for one in json.load(sys.stdin)["limits"] if one["name"] == sys.argv[1]))' "$1"
}

# What is wrong is refused, and the log says why.
refused() {
	local before
	before=$(dmesg | wc -l)
	mounted "$1" 2>/dev/null && fail "mount -o $1 is not refused"
	dmesg | tail -n +$((before + 1)) | grep -iE "hpmmap.*($2)" >/dev/null || fail "mount -o $1: the log says $(dmesg | tail -n +$((before + 1)))"
}
for size in abc -1 12x 101% 5%% 9E; do refused "size=$size" size; done
refused mode=9 mode
refused mode=100000 mode
refused uid=nosuchuser uid
refused gid=-1 gid
refused uid=4294967295 uid
refused sice=4M sice
! mountpoint -q $DIR || fail "something is mounted"

# What is right is what one gets.
mounted size=64M,uid=$USER_ID,gid=2003,mode=0750
[ "$(stat -c '%u %g %a' $DIR)" = "$USER_ID 2003 750" ] || fail "the directory is $(stat -c '%u %g %a' $DIR)"
[ "$(stat -f -c %T $DIR)" != tmpfs ] || fail "it is a tmpfs"
[ "$(df_of)" = "$((64 * MIB)) 0 $((64 * MIB))" ] || fail "df: $(df_of)"
options=$(awk -v dir=$DIR '$2 == dir { print $4 }' /proc/mounts)
for word in size=65536k uid=$USER_ID gid=2003 mode=750; do
	grep -qw "$word" <<<"$options" || fail "/proc/mounts does not say $word: $options"
done
umount $DIR
mount -t hpmmap -o "$options" none $DIR || fail "its own options are refused: $options"
umount $DIR
mounted size=3M
[ "$(df_of)" = "$((4 * MIB)) 0 $((4 * MIB))" ] || fail "of 3M: $(df_of)"
umount $DIR
mounted size=25%
[ "$(df_of)" = "$((all / 4)) 0 $((all / 4))" ] || fail "of 25%: $(df_of)"
umount $DIR
mount -t hpmmap none $DIR
[ "$(stat -c %a $DIR)" = 1777 ] || fail "without options the mode is $(stat -c %a $DIR)"
[ "$(df_of | cut -d' ' -f1)" = "$all" ] || fail "without a size: $(df_of)"
as_user fallocate -l 4M $DIR/mine
[ "$(stat -c '%U:%b' $DIR/mine)" = "$(stat -c %U $DIR/mine):8192" ] || fail "4M are $(stat -c %b $DIR/mine) blocks"
# Two of them have nothing in common.
mkdir -p $DIR-2
mount -t hpmmap -o size=8M none $DIR-2
[ ! -e $DIR-2/mine ] || fail "a file is in both"
umount $DIR-2
rmdir $DIR-2
umount $DIR
expect_pool_free

# Another size later: not less than what is used.
mounted size=32M
fallocate -l 20M $DIR/a
expect 1 fallocate -l 20M $DIR/b 2>/dev/null
[ "$(stat -c %s:%b $DIR/b)" = 0:0 ] || fail "what was refused has $(stat -c %s:%b $DIR/b)"
expect 32 mount -o remount,size=16M $DIR 2>/dev/null
[ "$(df_of)" = "$((32 * MIB)) $((20 * MIB)) $((12 * MIB))" ] || fail "after a refused remount: $(df_of)"
mount -o remount,size=48M $DIR
fallocate -l 20M $DIR/b
mount -o remount,size=40M,mode=0711 $DIR
[ "$(stat -c %a $DIR)" = 711 ] || fail "the mode stays $(stat -c %a $DIR)"
expect 1 fallocate -l 22M $DIR/b 2>/dev/null
mount -o remount,ro $DIR
expect 1 touch $DIR/c 2>/dev/null
mount -o remount,rw $DIR
[ "$(df_of)" = "$((40 * MIB)) $((40 * MIB)) 0" ] || fail "at last: $(df_of)"

# What there is of it, for everybody to see.
shown() { cat "$SYSFS/shared/$1"; }
[ "$(shown mounts) $(shown files) $(shown held_bytes) $(shown pinned_bytes)" = "1 2 $((40 * MIB)) 0" ] ||
	fail "in sysfs: $(grep . "$SYSFS"/shared/*)"
hpmmap status | grep -i 'shared memory in files: 2, 40M' || fail "status says: $(hpmmap status)"
hpmmap status --json | python3 -c 'import json, sys
assert json.load(sys.stdin)["shared"]["held_bytes"] == 40 << 20'
hpmmap status --prometheus | grep -x "hpmmap_shared_bytes $((40 * MIB))" >/dev/null || fail "not in the text for Prometheus"

# It is somebody's: the pools do not go, nor does the module, nor is it unmounted under a process.
expect_error 1 'use|busy' hpmmap pool remove --all
expect 1 rmmod hpmmap 2>/dev/null
exec 7<$DIR/a
expect 32 umount $DIR 2>/dev/null
exec 7<&-
sha256sum $DIR/a $DIR/b >/tmp/sums
echo 3 >/proc/sys/vm/drop_caches
echo 1 >/proc/sys/vm/compact_memory
sha256sum --quiet -c /tmp/sums || fail "memory that is not written anywhere was dropped"
# Nothing to swap to.
mkswap $DIR/a >/dev/null 2>&1
expect 255 swapon $DIR/a 2>/dev/null
rm $DIR/a $DIR/b
cp -a /usr/bin/env /etc/passwd $DIR/
cmp /etc/passwd $DIR/passwd && $DIR/env true || fail "copies are not what was copied"
tar -C $DIR -cf - . | tar -tf - >/dev/null
mv $DIR/passwd $DIR/moved && ln $DIR/moved $DIR/linked && rm $DIR/moved && cmp /etc/passwd $DIR/linked
rm $DIR/env $DIR/linked
umount $DIR
expect_pool_free

# Without a mount the file system knows who may: only root of the machine mounts, in no namespace of a user.
expect 1 as_member unshare --user --map-root-user --mount mount -t hpmmap none $DIR 2>/dev/null || true
as_member unshare --user --map-root-user --mount mount -t hpmmap none $DIR 2>/dev/null && fail "a user mounts it in a namespace"
# In a mount namespace it ends with it.
unshare --mount bash -c "mount -t hpmmap -o size=64M none $DIR && fallocate -l 32M $DIR/a && [ \$(stat -c %b $DIR/a) = 65536 ]"
expect_pool_free

# A user's limit counts all of it, jobs and files, whoever's the file is: who makes it larger pays.
mounted size=256M
hpmmap pool limit --user $USER_ID --size 32M
expect 1 as_user fallocate -l 40M $DIR/a 2>/dev/null
[ "$(stat -c %s:%b $DIR/a)" = 0:0 ] || fail "beyond the limit there is $(stat -c %s:%b $DIR/a)"
as_user fallocate -l 20M $DIR/a
[ "$(held_by $USER_ID)" = $((20 * MIB)) ] || [ "$(held_by "$(id -un $USER_ID 2>/dev/null || echo $USER_ID)")" = $((20 * MIB)) ] ||
	fail "the user holds $(hpmmap pool limit --list)"
expect 1 as_user truncate -s 34M $DIR/a 2>/dev/null
[ "$(stat -c %s $DIR/a)" = $((20 * MIB)) ] || fail "what was refused has $(stat -c %s $DIR/a)"
expect 1 as_user dd if=/dev/zero of=$DIR/b bs=16M count=1 2>/dev/null
[ "$(stat -c %b $DIR/b)" = 0 ] || fail "a refused write holds $(stat -c %b $DIR/b)"
whole='
import mmap, sys
try:
    held = mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
except OSError:
    sys.exit(3)'
expect 3 as_member hpmmap run --strict -- python3 -c "$whole" 20
# Root makes the user's file larger, and pays for that. Who owns it does not matter.
truncate -s 60M $DIR/a
[ "$(stat -c %b $DIR/a)" = $((60 * MIB / 512)) ] || fail "root did not get it"
chown 0 $DIR/a
expect 1 as_user fallocate -l 16M $DIR/b 2>/dev/null
as_user fallocate -l 12M $DIR/b
# Mapped and touched by another it is still the one's.
python3 -c '
import mmap
with open("'$DIR'/a", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(memory), 4096):
        memory[at] = 1'
truncate -s 0 $DIR/a
as_user fallocate -l 32M $DIR/b
rm -f $DIR/a $DIR/b
# What is in a pipe is theirs, too, when the file has given it up.
as_user python3 -c '
import ctypes, errno, mmap, os, time
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("'$DIR'/p", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 20 << 20)
memory = mmap.mmap(fd, 20 << 20)
page = ctypes.c_char.from_buffer(memory, 3 << 20)
pipe = os.pipe()
vec = (ctypes.c_size_t * 2)(ctypes.addressof(page), 4096)
assert libc.vmsplice(pipe[1], vec, 1, 0) == 4096
def grows(size):
    try:
        os.ftruncate(fd, size << 20)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return False
    return True
assert grows(0) and not grows(32) and grows(30) and grows(0)
assert os.read(pipe[0], 4096) == bytes(4096)
end = time.monotonic() + 20
while not grows(32):
    assert time.monotonic() < end, "it counts for ever"
    time.sleep(0.1)
os.unlink("'$DIR'/p")' || fail "what is pinned is not counted as the limit says"
lifted() { [ "$(hpmmap pool limit --list --json | python3 -c '
import json, sys
print(sum(one["held_bytes"] for one in json.load(sys.stdin)["limits"] if "'$USER_ID'" in str(one["name"])))')" = 0 ]; }
within 10 lifted || fail "the user still holds something: $(hpmmap pool limit --list)"
hpmmap pool limit --user $USER_ID --size default

# A cgroup's, which may go before its files do.
top=/sys/fs/cgroup/shared
mkdir $top $top/one
hpmmap pool limit --cgroup /shared --size 32M
within_cgroup() { bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' bash "$@"; }
expect 1 within_cgroup $top/one fallocate -l 40M $DIR/a 2>/dev/null
within_cgroup $top/one fallocate -l 30M $DIR/a
expect 1 within_cgroup $top fallocate -l 8M $DIR/b 2>/dev/null
rmdir $top/one
expect 1 within_cgroup $top fallocate -l 8M $DIR/b 2>/dev/null
[ "$(stat -c %b $DIR/a)" = $((30 * MIB / 512)) ] || fail "the file went with its cgroup"
rm $DIR/a
within 10 within_cgroup $top fallocate -l 32M $DIR/b || fail "what was given up still counts"
rm $DIR/b
hpmmap pool limit --cgroup /shared --size none
rmdir $top
umount $DIR
expect_pool_free

# The process that has a mapping is the last to have it; then all is back.
mounted size=64M
python3 -c '
import mmap, os, time
with open("'$DIR'/a", "w+b") as file:
    file.truncate(32 << 20)
    memory = mmap.mmap(file.fileno(), 0)
memory[:5] = b"hello"
open("/tmp/held", "w").close()
while os.path.exists("/tmp/held"):
    time.sleep(0.1)
assert memory[:5] == b"hello" and not any(memory[5:1 << 20])
memory[-5:] = b"there"
open("/tmp/held", "w").close()
time.sleep(1000)' &
process=$!
within 30 test -e /tmp/held || fail "it does not get ready"
umount -l $DIR
expect 1 rmmod hpmmap 2>/dev/null
[ "$(pool_bytes free_bytes)" -le $((all - 32 * MIB)) ] || fail "the memory is free, and somebody has it mapped"
rm /tmp/held
within 30 test -e /tmp/held || fail "the mapping does not live on"
kill -KILL $process
wait $process 2>/dev/null || true
rm /tmp/held
expect_pool_free

# As somebody without any rights, in what root has mounted, registered or not.
mounted size=256M,mode=1777
for program in sem_shared sem_shared_names sem_shared_maps sem_shared_io; do
	for how in '' 'hpmmap run --'; do
		read -ra words <<<"$how"
		as_member env HPMMAP_TEST_DIR=$DIR "${words[@]}" "$HPMMAP_ROOT/build/tests/$program" >/tmp/out || {
			grep -B 5 FAILED /tmp/out
			fail "$how $program as a user"
		}
		grep -qx "HPMMAP-TEST-PASS $program" /tmp/out || fail "$program says nothing"
		echo "$how $program as a user: $(grep -c '\[       OK' /tmp/out) tests, $(grep -c SKIPPED /tmp/out) skipped"
	done
done
[ -z "$(ls $DIR)" ] || fail "there is left: $(ls -R $DIR)"
umount $DIR
rmdir $DIR

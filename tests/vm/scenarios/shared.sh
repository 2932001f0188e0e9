#!/bin/bash
# Files of pool memory: mounting and its options, figures, and that files in use are kept.
# pool: 512M
# timeout: 400
# takes: 60
# paths: kernel/fs/ kernel/mem/pool/pinned.* kernel/mem/block/account.* kernel/mem/pool/pool.* kernel/as/map/file.* tests/guest/sem_shared*.c tests/guest/shared.*
. "$(dirname "$0")/../guest/lib.sh"

DIR=/tmp/shared
mkdir -p $DIR
leave() {
	while mountpoint -q $DIR; do umount -l $DIR; done
}
trap leave EXIT
all=$(pool_bytes total_bytes)

mounted() { mount -t hpmmap -o "$1" none $DIR; }
# of DIRECTORY: size, used and available bytes, as df has them.
df_of() { df --block-size=1 --output=size,used,avail $DIR | tail -n 1 | xargs; }

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
for inodes in abc -1 k 12x 5%; do refused "nr_inodes=$inodes" nr_inodes; done
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

# The number of files, directories and further names is limited, also for other users and after removals.
inodes_of() { df --output=itotal,iused,iavail $DIR | tail -n 1 | xargs; }
mounted size=8M,nr_inodes=6
[ "$(inodes_of)" = "6 1 5" ] || fail "df -i: $(inodes_of)"
grep " $DIR .*[ ,]nr_inodes=6," /proc/mounts >/dev/null || fail "/proc/mounts: $(grep " $DIR " /proc/mounts)"
as_user mkdir $DIR/d
as_user touch $DIR/d/a $DIR/d/b
as_user ln $DIR/d/a $DIR/d/c
as_user ln -s a $DIR/d/s
[ "$(inodes_of)" = "6 6 0" ] || fail "df -i of a full one: $(inodes_of)"
for make in "touch $DIR/x" "mkdir $DIR/x" "ln -s x $DIR/x" "ln $DIR/d/a $DIR/x" "mkfifo $DIR/x"; do
	expect_error 1 'No space left' as_user $make
done
as_user dd if=/dev/zero of=$DIR/d/a bs=1M count=1 status=none || fail "a file that is there cannot be written to"
expect 32 mount -o remount,nr_inodes=5 $DIR 2>/dev/null
# A name that goes, a name that another one replaces, and a file that is open without one.
as_user rm $DIR/d/a
[ "$(inodes_of)" = "6 5 1" ] || fail "after rm of one of two names: $(inodes_of)"
as_user ln $DIR/d/c $DIR/d/a
as_user mv $DIR/d/b $DIR/d/a
[ "$(inodes_of)" = "6 5 1" ] || fail "after mv over one of two names: $(inodes_of)"
exec 7<$DIR/d/c
as_user rm $DIR/d/c
[ "$(inodes_of)" = "6 5 1" ] || fail "after rm of an open file: $(inodes_of)"
exec 7<&-
[ "$(inodes_of)" = "6 4 2" ] || fail "after it was closed: $(inodes_of)"
as_user rm -r $DIR/d
[ "$(inodes_of)" = "6 1 5" ] || fail "after all: $(inodes_of)"
mount -o remount,nr_inodes=1k $DIR
[ "$(inodes_of)" = "1024 1 1023" ] || fail "after the remount: $(inodes_of)"
umount $DIR
mounted nr_inodes=0
[ "$(inodes_of)" = "0 0 0" ] || fail "without a limit: $(inodes_of)"
umount $DIR
mounted size=8M
inodes=$(df --output=itotal $DIR | tail -n 1)
[ "$inodes" -le $(($(memtotal_kib) / 256 + 1)) ] && [ "$inodes" -ge $(($(memtotal_kib) / 300)) ] ||
	fail "of $(memtotal_kib) KB there are $inodes inodes"
umount $DIR

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
[ "$(stat -c %a $DIR)" = 1777 ] || fail "a remount changes the mode to $(stat -c %a $DIR)"
expect 1 fallocate -l 22M $DIR/b 2>/dev/null
mount -o remount,ro $DIR
expect 1 touch $DIR/c 2>/dev/null
mount -o remount,rw $DIR
[ "$(df_of)" = "$((40 * MIB)) $((40 * MIB)) 0" ] || fail "at last: $(df_of)"

# Its figures, which all users may see.
shown() { cat "$SYSFS/shared/$1"; }
[ "$(shown mounts) $(shown files) $(shown held_bytes) $(shown pinned_bytes)" = "1 2 $((40 * MIB)) 0" ] ||
	fail "in sysfs: $(grep . "$SYSFS"/shared/*)"
hpmmap status | grep -i 'shared memory in files: 2, 40M' || fail "status says: $(hpmmap status)"
hpmmap status --json | python3 -c 'import json, sys
assert json.load(sys.stdin)["shared"]["held_bytes"] == 40 << 20'
hpmmap status --prometheus | grep -x "hpmmap_shared_bytes $((40 * MIB))" >/dev/null || fail "not in the text for Prometheus"

# Memory in use: neither the pools nor the module can be removed, nor the file system unmounted under a process.
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

# Files are charged: the limits of the user who makes them larger hold, also over several file systems, and
# count until the last of a file has gone.
set_pool 512M
top=/sys/fs/cgroup/shared
mkdir -p $top $DIR-2
MEMBER_ID=2002
hpmmap pool limit --user $MEMBER_ID --size 32M
mounted size=128M
mount -t hpmmap -o size=128M none $DIR-2
as_member fallocate -l 24M $DIR/a
expect 1 as_member fallocate -l 12M $DIR-2/b 2>/dev/null
[ "$(stat -c %s:%b $DIR-2/b)" = 0:0 ] || fail "beyond the limit there are $(stat -c %s:%b $DIR-2/b)"
as_member fallocate -l 8M $DIR-2/b
expect 1 as_member fallocate -l 10M $DIR-2/b 2>/dev/null
# The writer of a file is charged, not its owner; root has no limit.
chmod 666 $DIR/a $DIR-2/b
fallocate -l 12M $DIR-2/b
MEMBER_ID=2003 as_member truncate -s 26M $DIR/a
MEMBER_ID=2003 as_member dd if=/dev/zero of=$DIR/a bs=2M count=1 seek=12 conv=notrunc status=none
as_member truncate -s 4M $DIR/a
as_member fallocate -o 4M -l 16M $DIR/a
exec 7<$DIR/a
rm $DIR/a
expect 1 as_member fallocate -l 8M $DIR/c 2>/dev/null
exec 7<&-
as_member fallocate -l 20M $DIR/c
hpmmap pool limit --user $MEMBER_ID --size default
rm $DIR/c $DIR-2/b
hpmmap pool limit --cgroup /shared --size 16M
in_cgroup() { bash -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' $top "$@"; }
in_cgroup fallocate -l 16M $DIR/a
expect 1 in_cgroup fallocate -l 2M $DIR/b 2>/dev/null
fallocate -l 2M $DIR/b
rm $DIR/a
in_cgroup fallocate -l 16M $DIR-2/a
hpmmap pool limit --cgroup /shared --size none
umount $DIR $DIR-2
rmdir $DIR-2 $top
expect_pool_free

# Only root of the machine may mount it, in no user namespace.
as_member unshare --user --map-root-user --mount mount -t hpmmap none $DIR 2>/dev/null && fail "a user mounts it in a namespace"
# In a mount namespace it ends with it.
unshare --mount bash -c "mount -t hpmmap -o size=64M none $DIR && fallocate -l 32M $DIR/a && [ \$(stat -c %b $DIR/a) = 65536 ]"
expect_pool_free

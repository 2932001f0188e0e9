#!/bin/bash
# QEMU's memory of a guest in the pools: a memory-backend-file in hpmmapfs, registered or not, and a
# memory-backend-memfd, registered; also on a mount with pagesize=. The guest writes to all of it, and finds what it has
# written; so does a reader of the file.
# pool: 512M
# timeout: 300
# takes: 40
# machine: apps
# tier: all  sem_shared_maps and sem_shared_job ask the same of programs of our own
# paths: kernel/fs/ kernel/call/shared.c tests/vm/programs/apps/firmware.S tests/vm/programs/apps/qemu.sh tests/vm/guest/apps.sh tests/vm/guest/watch.sh
. "$(dirname "$0")/../guest/apps.sh"
. "$(dirname "$0")/../guest/watch.sh"

DIR=/tmp/shared-qemu
SIZE=$((32 * SCALE))M
mkdir -p $DIR /tmp/images
mount -t hpmmap -o size=256M none $DIR
leave() {
	umount -l $DIR 2>/dev/null || true
	rm -rf /tmp/images
	trace_end
}
trap leave EXIT

# The buffer of translated code is mapped whole, by default a part of all memory; what may be merged is Linux's.
QEMU=(bash "$APPS/qemu.sh" /tmp/watch-seen
	qemu-system-x86_64 -machine "microvm,pit=off,pic=off,rtc=off,mem-merge=off,memory-backend=ram" -accel "tcg,thread=single,tb-size=8"
	-m "$SIZE" -bios "$BUILT/firmware.bin" -nodefaults -no-user-config -display none -serial stdio -no-reboot)
# backend PATH: a file, whose mapping begins at a multiple of 2 MB.
backend() {
	echo "memory-backend-file,id=ram,mem-path=$1,size=$SIZE,share=on,align=2M"
}
# same_memory: what is in the file that QEMU leaves.
same_memory() {
	cmp /tmp/images/ram $DIR/ram || fail "what the guest has written differs"
	rm $DIR/ram
}

touch /tmp/watch-seen
run_once native "${QEMU[@]}" -object "$(backend /tmp/images/ram)"
cat "$WORK/native"
grep -q ', wrong 00000000$' "$WORK/native" || fail "the firmware is wrong"

# Whoever has a file of hpmmapfs need not be registered.
watch_start
run_once file "${QEMU[@]}" -object "$(backend $DIR/ram)"
watch_end $((32 * SCALE))
diff "$WORK/native" "$WORK/file" || fail "with a file of hpmmapfs the guest does something else (+)"
same_memory

watch_start
same_as native file-job "${REGISTERED[@]}" "${QEMU[@]}" -object "$(backend $DIR/ram)"
watch_end $((32 * SCALE))
took qemu-system-x86 8
same_memory

# With pagesize= QEMU finds out how to align, and does not start where there is not enough memory, or by a private mapping.
umount $DIR
mount -t hpmmap -o size=$((64 * SCALE))M,pagesize=2M none $DIR
watch_start
run_once pagesize "${QEMU[@]}" -object "memory-backend-file,id=ram,mem-path=$DIR/ram,size=$SIZE,share=on"
watch_end $((32 * SCALE))
diff "$WORK/native" "$WORK/pagesize" || fail "with pagesize=2M the guest does something else (+)"
same_memory
# refused PATTERN SIZE OPTION
refused() {
	if "${QEMU[@]}" -m "$2" -object "memory-backend-file,id=ram,mem-path=$DIR/ram,size=$2,$3" </dev/null >/tmp/said 2>&1; then
		fail "QEMU starts with $2 and $3"
	fi
	cat /tmp/said
	grep -q "unable to map backing store for guest RAM: $1" /tmp/said || fail "that is not what QEMU says"
	rm -f $DIR/ram
}
refused 'Cannot allocate memory' $((128 * SCALE))M share=on
refused 'Operation not supported' "$SIZE" share=off

# A memfd that is not sealed is the pools' without being asked for.
watch_start internal
same_as native memfd "${REGISTERED[@]}" "${QEMU[@]}" -object "memory-backend-memfd,id=ram,size=$SIZE,share=on,seal=off"
watch_end $((32 * SCALE))

umount $DIR
rmdir $DIR
expect_pool_free

#!/bin/bash
# The memory of a virtual machine in files of hpmmapfs: what virtio-mem, free page reporting and a balloon give up
# goes back to the pools, a migration and a snapshot leave none behind, a memory error reaches the guest, and QEMU may
# be killed at any moment.
# machine: vm
# pool: 768M
# timeout: 600
# takes: 240
# scales: yes
# tier: all  an emulated machine in an emulated machine is slow
# paths: kernel/fs/ tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup
POISON=/sys/kernel/debug/hwpoison
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"
DIR=/tmp/vm-memory
mkdir -p $DIR
mount -t hpmmap -o pagesize=2M none $DIR
ALL=$(pool_bytes free_bytes)
leave() {
	pkill -9 -P $$ 2>/dev/null || true
	umount -l $DIR 2>/dev/null || true
}
trap leave EXIT

# taken: of the pools, in MB.
taken() {
	echo $(((ALL - $(pool_bytes free_bytes)) / MIB))
}
# tell WHAT: so that the log has the figures.
tell() {
	local up
	read -r up _ </proc/uptime
	echo "$up $*: $(taken) MB taken"
}
# takes_less MB, takes_more MB: the pools get it back, or give it.
takes_less() {
	[ "$(taken)" -le "$1" ]
}
takes_more() {
	[ "$(taken)" -ge "$1" ]
}
# backend ID SIZE
backend() {
	echo "memory-backend-file,id=$1,mem-path=$DIR/$3,size=$2,share=on"
}
# vm NAME FILE OPTION...: a machine of 192 MB, and up to 128 MB more.
vm() {
	local name=$1 file=$2
	shift 2
	inner_start "$name" -m 192M,slots=2,maxmem=1G -machine memory-backend=ram -object "$(backend ram 192M "$file")" \
		-object "$(backend more 128M "$file-more")" -device virtio-mem-pci,id=more0,memdev=more,requested-size=0,block-size=2M \
		-device virtio-balloon-pci,id=balloon,free-page-reporting=on "$@"
}
fill='mount -t tmpfs -o size=100% tmp /mnt; dd if=/dev/urandom of=/mnt/a bs=1M count=COUNT 2>/dev/null; md5sum /mnt/a'

# So that what virtio-mem gave can go.
INNER_APPEND+=" memhp_default_state=online_movable"
vm a ram
inner_up a
tell "up"
# What the machine does not use is reported within seconds.
within 60 takes_less 150 || fail "free page reporting gave nothing back: $(taken) MB"
reported=$(taken)
tell "reported"
sum=$(inner a "${fill/COUNT/40}")
tell "40 MB written"
[ "$(inner a 'md5sum /mnt/a')" = "$sum" ] || fail "its memory changed"

# virtio-mem.
before=$(taken)
inner_qmp a qom-set '"path": "/machine/peripheral/more0", "property": "requested-size", "value": 134217728' >/dev/null
plugged() {
	inner a "[ \$(awk '/MemTotal/ { print \$2 }' /proc/meminfo) $1 ]"
}
within 60 plugged '-gt 230000' || fail "virtio-mem gave the machine nothing"
inner a "mkdir /mnt/b; dd if=/dev/urandom of=/mnt/b/b bs=1M count=50 2>/dev/null"
tell "50 MB more in what virtio-mem gave"
takes_more $((before + 30)) || fail "virtio-mem took no memory of the pools"
inner a 'rm -r /mnt/b; echo 3 >/proc/sys/vm/drop_caches'
inner_qmp a qom-set '"path": "/machine/peripheral/more0", "property": "requested-size", "value": 0' >/dev/null
within 60 takes_less $((before + 16)) || fail "virtio-mem gave nothing back: $(taken) MB, before $before"
tell "virtio-mem at 0"
inner_qmp a qom-get '"path": "/machine/peripheral/more0", "property": "size"'

# The balloon has what was written and freed before.
inner a 'rm /mnt/a'
inner_qmp a balloon '"value": 134217728' >/dev/null
ballooned() {
	inner_qmp a query-balloon | grep '"actual": 134217728' >/dev/null
}
within 60 ballooned || fail "the balloon is not full: $(inner_qmp a query-balloon)"
within 60 takes_less $((reported + 16)) || fail "the balloon gave nothing back: $(taken) MB"
tell "balloon at 128 MB"
inner_qmp a balloon '"value": 201326592' >/dev/null
sum=$(inner a "${fill/COUNT/40}")
tell "balloon empty, 40 MB written"

# Live, to another QEMU on this host; then to a file and back.
vm b ram2 -incoming unix:$DIR.sock
within 60 test -S $DIR.sock || fail "the other QEMU does not listen"
inner_qmp a migrate "\"uri\": \"unix:$DIR.sock\"" >/dev/null
migrated() {
	inner_qmp "$1" query-migrate | grep '"status": "completed"' >/dev/null
}
within 120 migrated a || fail "migration: $(inner_qmp a query-migrate)"
inner_kill a
rm $DIR/ram $DIR/ram-more
[ "$(inner b 'md5sum /mnt/a')" = "$sum" ] || fail "the migrated machine's memory differs"
tell "migrated"
inner_qmp b stop >/dev/null
inner_qmp b migrate "\"uri\": \"exec:cat >$DIR.state\"" >/dev/null
within 120 migrated b || fail "snapshot: $(inner_qmp b query-migrate)"
inner_kill b
rm $DIR/ram2 $DIR/ram2-more
within 10 takes_less 0 || fail "$(taken) MB stay after a migration"
tell "a snapshot, no machine"

# Killed at any moment; every other one is a daemon.
for ((i = 0; i < 4 * ${HPMMAP_TEST_SCALE:-1}; i++)); do
	option=()
	[ $((i % 2)) = 0 ] || option=(-daemonize)
	vm k ram "${option[@]}"
	sleep $((RANDOM % 4)).$((RANDOM % 10))
	inner_kill k
	rm -f $DIR/ram $DIR/ram-more
	within 10 takes_less 0 || fail "$(taken) MB stay after a kill"
done
tell "killed"

# What was saved goes on.
vm c ram -incoming "exec:cat $DIR.state"
[ "$(inner c 'md5sum /mnt/a')" = "$sum" ] || fail "the memory of the snapshot differs"
tell "restored"
rm $DIR.state

# A memory error in what the machine has.
page=$(python3 - "$(cat $INNER/c/pid)" $DIR/ram <<'PYTHON'
import struct, sys
pid, path = sys.argv[1:]
start = next(int(line.split("-")[0], 16) for line in open(f"/proc/{pid}/maps") if line.rstrip().endswith(path))
with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
    for at in range(64 << 20, 192 << 20, 2 << 20):
        pagemap.seek((start + at) // 4096 * 8)
        entry, = struct.unpack("Q", pagemap.read(8))
        if entry >> 63:
            print(entry & (1 << 55) - 1)
            break
PYTHON
)
echo "$page" >$POISON/corrupt-pfn
reported() {
	grep -q 'Guest MCE' $INNER/c/log
}
within 30 reported || fail "QEMU was told of no memory error: $(cat $INNER/c/log)"
tell "memory error in page frame $page"
cat $INNER/c/log
inner_lives c && inner c 'dmesg | grep -iE "mce|hardware error|memory failure"' || tail -n 20 $INNER/c/console
inner_kill c
rm $DIR/ram $DIR/ram-more
[ "$(pool_bytes bad_bytes)" = $((2 * MIB)) ] && within 10 takes_less 2 || fail "$(taken) MB stay after a memory error"
umount $DIR
rmdir $DIR
# It was simulated.
expect_error 1 'EHWPOISON|stays offline' hpmmap pool remove --all
echo "$page" >$POISON/unpoison-pfn
echo online >"/sys/devices/system/memory/memory$((page * 4096 / BLOCK_BYTES))/state"
rmmod hwpoison-inject

#!/bin/bash
# The memory of a virtual machine in files of hpmmapfs: what virtio-mem and free page reporting give up goes back to
# the pools, what a balloon had goes back after it, a migration and a snapshot leave none behind, and a memory error
# reaches the guest. vm_kills has kill -9 at any moment.
# machine: vm
# pool: 768M
# timeout: 600
# takes: 300
# tier: all  an emulated machine in an emulated machine is slow
# paths: kernel/fs/ tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

# So that what virtio-mem gave can go.
INNER_APPEND+=" memhp_default_state=online_movable"
inner_setup
POISON=/sys/kernel/debug/hwpoison
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
modprobe hwpoison-inject || skip "this kernel has no hwpoison-inject"
DIR=/tmp/vm-memory
inner_ram $DIR
ALL=$(pool_bytes free_bytes)
MARK=/tmp/vm-mark
head -c 4096 /dev/urandom >$MARK

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
# A file of 40 MB whose pages are all the same.
fill="base64 -d >/tmp/page <<X
$(base64 -w 0 $MARK)
X
grep -q ' /mnt ' /proc/mounts || mount -t tmpfs -o size=100% tmp /mnt
for i in \$(seq 16); do cat /tmp/page; done >/tmp/pages
for i in \$(seq 16); do cat /tmp/pages; done >/tmp/more
for i in \$(seq 40); do cat /tmp/more; done >/mnt/a; md5sum /mnt/a"

vm a ram
inner_up a
tell "up"
# What the machine does not use is reported within seconds.
within 60 takes_less 150 || fail "free page reporting gave nothing back: $(taken) MB"
reported=$(taken)
tell "reported"
sum=$(inner a "$fill")
tell "40 MB written"
[ "$(inner a 'md5sum /mnt/a')" = "$sum" ] || fail "its memory changed: $sum"

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

# A balloon of 64 MB. QEMU's requests have 256 pages of 4 KB and a page of the file has 512, so nothing comes back of it;
# the guest's kernel writes to the pages. Reporting gives them back when it is empty.
inner a 'rm /mnt/a'
within 60 takes_less $((reported + 16)) || fail "what was removed is not reported: $(taken) MB"
inner_qmp a balloon '"value": 134217728' >/dev/null
ballooned() {
	inner_qmp a query-balloon | grep "\"actual\": $1" >/dev/null
}
within 60 ballooned 134217728 || fail "the balloon is not full: $(inner_qmp a query-balloon)"
tell "balloon of 64 MB"
takes_less $((reported + 80)) || fail "the balloon takes more than its pages: $(taken) MB"
inner_qmp a balloon '"value": 201326592' >/dev/null
within 60 ballooned 201326592 || fail "the balloon is not empty: $(inner_qmp a query-balloon)"
within 60 takes_less $((reported + 16)) || fail "what the balloon had does not come back: $(taken) MB"
tell "balloon empty"
sum=$(inner a "$fill")
tell "40 MB written"

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

# What was saved goes on: it was stopped.
vm c ram -incoming "exec:cat $DIR.state"
loaded() {
	inner_qmp c query-status | grep '"status": "paused"' >/dev/null
}
within 120 loaded || fail "the snapshot is not loaded: $(inner_qmp c query-status)"
inner_qmp c cont >/dev/null
[ "$(inner c 'md5sum /mnt/a')" = "$sum" ] || fail "the memory of the snapshot differs"
tell "restored"
rm $DIR.state

# A memory error in a block that has nothing but pages of the file: the rest of the guest goes on until it is told.
read -r page frame <<<"$(python3 - "$(cat $INNER/c/pid)" $DIR/ram $MARK <<'PYTHON'
import struct
import sys

BLOCK, PAGE = 2 << 20, 4096
pid, ram, mark = sys.argv[1:]
with open(mark, "rb") as file:
    begin = file.read(64)
with open(ram, "rb", buffering=0) as file:
    blocks = iter(lambda: file.read(BLOCK), b"")
    block = next(n for n, data in enumerate(blocks) if all(data.startswith(begin, at) for at in range(0, BLOCK, PAGE)))
with open(f"/proc/{pid}/maps") as maps:
    start = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(ram))
with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
    pagemap.seek((start + block * BLOCK) // PAGE * 8)
    (entry,) = struct.unpack("Q", pagemap.read(8))
assert entry >> 63, hex(entry)
print(entry & (1 << 55) - 1, f"{block * BLOCK:x}")
PYTHON
)"
echo "$page" >$POISON/corrupt-pfn
# The emulated CPU offers no recovery, so the guest's kernel stops, and with it QEMU (-no-reboot).
within 60 inner_gone c || fail "the guest was told of no memory error: $(cat $INNER/c/log)"
cat $INNER/c/log $INNER/c/console
tell "memory error in page frame $page, address $frame of the guest"
grep -q "Guest MCE Memory Error .* GUEST addr 0x$frame of type BUS_MCEERR_AO injected" $INNER/c/log ||
	fail "QEMU was told of no memory error"
grep -q 'mce: .*Machine Check Exception' $INNER/c/console && grep -q "mce: .* ADDR $frame " $INNER/c/console ||
	fail "the guest saw no machine check"
rm $DIR/ram $DIR/ram-more
[ "$(pool_bytes bad_bytes)" = $((2 * MIB)) ] && within 10 takes_less 2 || fail "$(taken) MB stay after a memory error"
umount $DIR
rmdir $DIR
# It was simulated.
expect_error 1 'EHWPOISON|stays offline' hpmmap pool remove --all
echo "$page" >$POISON/unpoison-pfn
echo online >"/sys/devices/system/memory/memory$((page * 4096 / BLOCK_BYTES))/state"
rmmod hwpoison-inject

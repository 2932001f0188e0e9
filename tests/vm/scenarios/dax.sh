#!/bin/bash
# Memory that dax/kmem has added (CXL memory, HBM) goes into a pool, and its driver cannot remove it.
# machine: dax
# pool: 0
# takes: 20
# tier: newest  taking memory blocks offline is the same for all memory
# paths: kernel/mem/pool/section.*
. "$(dirname "$0")/../guest/lib.sh"

modprobe -a nd_e820 nd_pmem dax_pmem device_dax kmem 2>/dev/null || skip "the kernel has no dax/kmem"
echo offline >/sys/devices/system/memory/auto_online_blocks
nd=/sys/bus/nd/devices
within 20 test -e $nd/namespace0.0 || skip "the guest has no persistent memory"
seed=$(cat $nd/region0/dax_seed)
within 20 test -e /sys/bus/nd/drivers/nd_pmem/namespace0.0
echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
echo 2097152 >$nd/$seed/align
cat /proc/sys/kernel/random/uuid >$nd/$seed/uuid
echo ram >$nd/$seed/mode
echo namespace0.0 >$nd/$seed/namespace
echo $seed >/sys/bus/nd/drivers/dax_pmem/bind
device=$(ls /sys/bus/dax/devices)
echo "$device" >/sys/bus/dax/drivers/device_dax/unbind
echo "$device" >/sys/bus/dax/drivers/kmem/new_id
within 20 grep -q 'System RAM (kmem)' /proc/iomem || fail "kmem adds nothing"
start=$((0x$(sed -n 's/^ *\([0-9a-f]*\)-.*System RAM (kmem)$/\1/p' /proc/iomem | head -1)))
memory=/sys/devices/system/memory/memory$((start / BLOCK_BYTES))

python3 - $start "$BLOCK_BYTES" <<'PYTHON'
import fcntl, os, struct, sys
start, length = map(int, sys.argv[1:])
add = struct.pack("IIQQiI", 32, 0, start, length, -1, 0)
fcntl.ioctl(os.open("/dev/hpmmap", os.O_RDWR), 0xC020B601, add)
PYTHON
hpmmap run --strict -- python3 -c '
import mmap, sys
m = mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[:] = b"x" * len(m)
with open("/sys/bus/dax/drivers/kmem/unbind", "w") as file:
    file.write(sys.argv[1])
assert m[:] == b"x" * len(m), "the memory is not what it was"
m[:] = b"y" * len(m)' "$device" || fail "a process does not survive it"
[ -e "$memory" ] || fail "the memory is gone"
[ "$(pool_bytes total_bytes)" = "$BLOCK_BYTES" ] || fail "the pool has $(pool_bytes total_bytes) bytes"
expect_pool_free
hpmmap pool remove --all
[ "$(cat "$memory/state")" = online ] || fail "memory that has left the pool is $(cat "$memory/state")"
echo offline >"$memory/state"
# The driver, which has let it go, can remove it no more until the next boot.
offline_blocks >/run/offline_blocks_left

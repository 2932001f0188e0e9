#!/bin/bash
# O_DIRECT moves data between a block device and memory of a job.
# pool: 512M
# paths: kernel/mem/block/block.* kernel/as/map/pgmap.* kernel/as/life/vmops.*
. "$(dirname "$0")/../guest/lib.sh"

modprobe brd rd_nr=1 rd_size=$((64 * 1024)) || skip "this kernel has no RAM disk"
head -c $((48 * MIB)) /dev/urandom >/tmp/data
hpmmap run --strict -- dd if=/tmp/data of=/dev/ram0 bs=4M oflag=direct status=none
hpmmap run --strict -- dd if=/dev/ram0 of=/tmp/copy bs=4M count=12 iflag=direct status=none
cmp /tmp/data /tmp/copy
# From pieces that straddle 2 MB boundaries, by 512 bytes.
hpmmap run --strict -- dd if=/dev/ram0 of=/tmp/copy bs=3145216 iflag=direct,count_bytes count=$((48 * MIB)) status=none
cmp /tmp/data /tmp/copy
rm /tmp/data /tmp/copy
rmmod brd

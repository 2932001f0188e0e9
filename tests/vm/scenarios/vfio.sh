#!/bin/bash
# Passthrough: a device behind an IOMMU reads and writes pool memory that VFIO has mapped for it. The IOMMU's
# entries are of 2 MB or 1 GB. Memory that its process gives up, or that was a killed process's, is not reused before
# the device has let go.
# machine: gigabytes
# pool: 3584M
# timeout: 300
# takes: 70
# tier: newest  pins, and what becomes of pinned blocks, are the same functions on every kernel
# paths: kernel/mem/block/block.* kernel/mem/pool/pinned.* kernel/as/ kernel/fs/ tests/vm/programs/vfio_dma.c
. "$(dirname "$0")/../guest/lib.sh"

modprobe -q vfio-pci && modprobe -q vfio_iommu_type1 || skip "this kernel has no VFIO"
device=$(grep -lx 0x11e8 /sys/bus/pci/devices/*/device) || skip "the machine has no such device"
device=$(basename "$(dirname "$device")")
group=$(basename "$(readlink "/sys/bus/pci/devices/$device/iommu_group")") || skip "the machine has no IOMMU"
echo 1234 11e8 >/sys/bus/pci/drivers/vfio-pci/new_id
within 10 test -e "/dev/vfio/$group" || fail "no /dev/vfio/$group"
hpmmap pool limit --default --size 100% >/dev/null
dma=("$HPMMAP_ROOT/build/tests-vm/vfio_dma" "$group" "$device")

# The entries that Intel's driver makes are counted by their size.
probe=$TRACING/events/kprobes/iommu_entries
counted=
if grep -qw intel_iommu_map_pages /proc/kallsyms; then
	counted=1
	echo 'p:iommu_entries intel_iommu_map_pages size=%cx n=%r8' >$TRACING/kprobe_events
fi
# expect_entries 1G 2M: how many of them were made. Those of 4 KB are for a page that the program has besides, and for
# a try of VFIO's.
expect_entries() {
	[ -n "$counted" ] || return 0
	awk -v want="$1 $2" '/^{ size:/ { n[$3] += $NF }
		END {
			got = n[1073741824] + 0 " " n[2097152] + 0
			print "entries of 1 GB, 2 MB and 4 KB:", got, n[4096] + 0
			exit got != want || n[4096] > 3
		}' /tmp/entries || fail "not $1 entries of 1 GB and $2 of 2 MB"
}

# start COMMAND...: the program, whose entries are counted.
start() {
	[ -z "$counted" ] || echo 'hist:keys=size:vals=n' >$probe/trigger
	serve mapped "$@"
	[ -z "$counted" ] || { cat $probe/hist >/tmp/entries && echo '!hist:keys=size:vals=n' >$probe/trigger; }
}

# Private memory; a child gets copies, the device keeps what its process has.
start hpmmap run --strict -- "${dma[@]}" $((64 * MIB)) private
expect_entries 0 32
order verify intact
order write written
order verify intact
order fork forked
order touch touched
order verify intact
nothing_pinned || fail "mapped memory counts as given up and pinned"

# It is unmapped.
order unmap unmapped
expect_pinned 64
"${TAKE_ALL[@]}"
order verify intact
order write written
"${TAKE_ALL[@]}"
order verify intact
order release released
within 10 nothing_pinned || fail "$(pool_bytes pinned_bytes) bytes stay pinned"

# The process is killed while the device writes.
order map mapped
order busy busy
kill -KILL $job
"${TAKE_ALL[@]}"
served
expect_pool_free

# A gigabyte of one entry, which stays whole.
start hpmmap run --strict --page-size 1G -- "${dma[@]}" $((1024 * MIB)) private
if [ "$(cat $SYSFS/gigabytes)" = yes ]; then
	grep -qx 'entries_1g 1' $SYSFS/jobs/*/stat || fail "no entry of 1 GB"
	grep -qx 'splits_1g 0' $SYSFS/jobs/*/stat || fail "the entry of 1 GB is split"
	expect_entries 1 0
fi
order write written
order verify intact
order unmap unmapped
expect_pinned 1024
order busy busy
kill -KILL $job
"${TAKE_ALL[@]}"
served
expect_pool_free

# A file: cut off, punched, removed with its mount.
mkdir -p /tmp/vfio-files
mount -t hpmmap none /tmp/vfio-files
start "${dma[@]}" $((64 * MIB)) /tmp/vfio-files/a
expect_entries 0 32
order punch punched
"${TAKE_ALL[@]}"
order zeros intact
order write written
order cut empty
expect_pinned 64
"${TAKE_ALL[@]}"
order verify intact
rm /tmp/vfio-files/a
umount -l /tmp/vfio-files
expect 1 rmmod hpmmap 2>/dev/null
order verify intact
order busy busy
kill -KILL $job
"${TAKE_ALL[@]}"
served
expect_pool_free
rmdir /tmp/vfio-files

[ -z "$counted" ] || echo >$TRACING/kprobe_events
echo "$device" >/sys/bus/pci/drivers/vfio-pci/unbind

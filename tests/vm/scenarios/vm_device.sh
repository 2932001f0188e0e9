#!/bin/bash
# A virtual machine on pool memory drives a disk and a network card by VFIO: it reads and writes the disk and pings.
# The start of a machine with a device zeroes nothing, beside hugetlb: by the CPU time of QEMU, which counts instructions
# here.
# machine: vm-devices
# pool: 3584M
# takes: 330
# timeout: 1200
# tier: all  an emulated machine in an emulated machine is slow
# paths: kernel/fs/ kernel/mem/pool/pinned.* tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup
for module in vfio-pci vfio_iommu_type1; do
	modprobe -q $module || skip "this kernel has no $module"
done
DIR=/tmp/vm-device
mkdir -p $DIR/{huge,2M,1G}
hpmmap pool limit --default --size 100% >/dev/null
devices=()
leave() {
	pkill -9 -P $$ 2>/dev/null || true
	umount -l $DIR/{huge,2M,1G} 2>/dev/null || true
	echo 0 >/proc/sys/vm/nr_hugepages
	for device in "${devices[@]}"; do
		echo >"/sys/bus/pci/devices/$device/driver_override"
		echo "$device" >/sys/bus/pci/drivers/vfio-pci/unbind
	done
}
trap leave EXIT

# take CLASS: the PCI device of this class goes to vfio-pci.
take() {
	local device
	device=$(grep -l "^$1" /sys/bus/pci/devices/*/class | head -n 1) || skip "the machine has no device of class $1"
	device=${device%/class}
	[ -e "$device/iommu_group" ] || skip "the machine has no IOMMU"
	[ ! -e "$device/driver" ] || echo "${device##*/}" >"$device/driver/unbind"
	echo vfio-pci >"$device/driver_override"
	echo "${device##*/}" >/sys/bus/pci/drivers_probe
	[ "$(basename "$(readlink "$device/driver")")" = vfio-pci ] || fail "${device##*/} does not go to vfio-pci"
	devices+=("${device##*/}")
}
take 0x0108
take 0x0200
echo "devices: ${devices[*]}"
backend() {
	mountpoint -q "$3" || mount -t "$1" -o "pagesize=$2" none "$3"
	echo "memory-backend-file,mem-path=$3,share=on"
}

clean() {
	[ "$(pool_bytes clean_bytes)" -ge $((1024 * MIB)) ]
}
# start KIND BACKEND: QEMU with the disk is ready, and has not let the machine run. Millions of instructions of all its
# threads, and the blocks that they zeroed.
start() {
	local ran rest total=0
	zero_trace_start
	inner_start "$1" -S -m 1024M -machine memory-backend=ram -object "$2,id=ram,size=1024M,prealloc=on" \
		-device "vfio-pci,host=${devices[0]}"
	inner_qmp "$1" query-status
	for task in "/proc/$(cat "$INNER/$1/pid")"/task/*; do
		read -r ran rest <"$task/schedstat"
		total=$((total + ran))
	done
	zero_trace_stop
	inner_kill "$1"
	MILLIONS=$((total / 1000000)) ZEROED=$(zeroed qemu-system-x86)
	echo "start with a device, $1: $MILLIONS million instructions, $ZEROED blocks zeroed"
}
sizes=(2M)
[ "$(cat /sys/kernel/hpmmap/gigabytes)" != yes ] || sizes=(1G 2M)
most=0
for size in "${sizes[@]}"; do
	within 60 clean || fail "$(pool_bytes clean_bytes) of $(pool_bytes free_bytes) bytes are clean"
	start "pool-$size" "$(backend hpmmap "$size" "$DIR/$size")"
	[ "$ZEROED" = 0 ] || fail "it zeroes"
	[ "$MILLIONS" -le $most ] || most=$MILLIONS
	expect_pool_free
done
echo 512 >/proc/sys/vm/nr_hugepages
start hugetlb "$(backend hugetlbfs 2M $DIR/huge)"
umount $DIR/huge
echo 0 >/proc/sys/vm/nr_hugepages
# To zero a gigabyte takes 134 million.
[ "$MILLIONS" -ge $((most + 130)) ] || fail "hugetlb takes $MILLIONS million, the pools $most"

# Booted, with its own drivers.
INNER_OUTER=yes
ram=$(backend hpmmap 2M $DIR/2M)
inner_start m -m 512M -machine memory-backend=ram -object "$ram,id=ram,size=512M,prealloc=on" \
	-device "vfio-pci,host=${devices[0]}" -device "vfio-pci,host=${devices[1]}"
inner_up m
# shellcheck disable=SC2016 # it expands there
inner m 'chroot /outer modprobe nvme; chroot /outer modprobe e1000e
i=0; until [ -b /dev/nvme0n1 ] || [ $((i += 1)) -gt 60 ]; do sleep 1; done
ls -l /dev/nvme0n1; cat /proc/partitions'
disk=$(inner m "dd if=/dev/nvme0n1 bs=512 count=$(($(stat -c %s "$HPMMAP_ROOT/tests/vm/suite.py") / 512)) 2>/dev/null | md5sum")
here=$(head -c $(($(stat -c %s "$HPMMAP_ROOT/tests/vm/suite.py") / 512 * 512)) "$HPMMAP_ROOT/tests/vm/suite.py" | md5sum)
[ "$disk" = "$here" ] || fail "the disk reads $disk, not $here"
inner m 'set -e
dd if=/dev/urandom of=/tmp/a bs=4096 count=4 2>/dev/null
dd if=/tmp/a of=/dev/nvme0n1 bs=4096 oflag=direct 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
dd if=/dev/nvme0n1 of=/tmp/b bs=4096 count=4 iflag=direct 2>/dev/null
cmp /tmp/a /tmp/b' || fail "what it writes to the disk is not there"
# shellcheck disable=SC2016 # it expands there
inner m 'name=$(ls /sys/bus/pci/drivers/e1000e/*/net) && ip addr add 10.0.2.15/24 dev $name && ip link set $name up
sleep 5; ping -c 3 -W 20 10.0.2.2' || fail "no answer by the network card"
grep -E "nvme|enp|eth" /proc/interrupts || true
inner m 'grep -E "nvme|eth|enp" /proc/interrupts'
# Killed with both devices active.
inner m 'dd if=/dev/nvme0n1 of=/dev/null bs=4096 iflag=direct 2>/dev/null; (while :; do dd if=/dev/nvme0n1 of=/dev/null bs=4096 iflag=direct; done) >/dev/null 2>&1 & true'
inner_kill m
expect_pool_free
umount $DIR/2M
[ "${#sizes[@]}" = 1 ] || umount $DIR/1G

#!/bin/bash
# The RAM of a virtual machine by pages of 4 KB, THP, hugetlb and files of the pools, each by itself in one boot:
# nested entries by size, exits for RAM while 256 MB are touched, page tables. Prints a table of them.
# machine: vm-gigabytes
# pool: 3584M
# takes: 430
# timeout: 2400
# tier: all  six boots of an emulated machine in an emulated machine
# paths: kernel/fs/ kernel/as/map/gigabyte.* tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

inner_setup
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
DIR=/tmp/vm-entries
KVM=/sys/kernel/debug/kvm
# The size of the last machine, which has whole gigabytes: ENTRIES_LARGE.
LARGE=${ENTRIES_LARGE:-3072}
mkdir -p $DIR/{exits,huge,2M,1G}
thp=/sys/kernel/mm/transparent_hugepage/enabled
thp_before=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
pages=/proc/sys/vm/nr_hugepages
hpmmap pool limit --default --size 100% >/dev/null
instance=/sys/kernel/tracing/instances/vm-entries
mkdir $instance
echo 'hist:keys=exit_reason' >$instance/events/kvm/kvm_exit/trigger
leave() {
	pkill -9 -P $$ 2>/dev/null || true
	umount -l $DIR/{huge,2M,1G} 2>/dev/null || true
	echo 0 >$pages
	echo "$thp_before" >$thp
	echo '!hist:keys=exit_reason' >$instance/events/kvm/kvm_exit/trigger
	rmdir $instance
}
trap leave EXIT

# exits WHAT: by reason so far, into a file.
exits() {
	sed -nE 's/^\{ exit_reason: +([0-9]+) \} hitcount: +([0-9]+)/\1 \2/p' $instance/events/kvm/kvm_exit/hist >$DIR/exits/"$1"
}
# nested_faults A B: between the two; SVM's reason for a guest-physical address without a nested entry. All reasons
# go to the log.
nested_faults() {
	awk 'NR == FNR { before[$1] = $2; next } $2 > before[$1] { printf " %#x:%d", $1, $2 - before[$1] } END { print "" }' \
		$DIR/exits/"$1" $DIR/exits/"$2" >$DIR/said
	echo "exits between $1 and $2:$(cat $DIR/said)" >&2
	grep -o ' 0x400:[0-9]*' $DIR/said | cut -d: -f2 | grep . || echo 0
}
meminfo() {
	awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo
}

# machine KIND MB BACKEND: boots it, touches 256 MB twice, then all the rest. Sets the figures.
machine() {
	local kind=$1 tables
	echo "$kind, $2 MB" >&2
	inner_start "$kind" -m "$2M" -machine memory-backend=ram -object "$3,id=ram,size=$2M,prealloc=on"
	inner_up "$kind"
	inner "$kind" 'mount -t tmpfs -o size=100% tmp /mnt'
	exits up
	inner "$kind" 'dd if=/dev/zero of=/mnt/a bs=1M count=256 2>/dev/null'
	exits first
	inner "$kind" 'dd if=/dev/zero of=/mnt/a bs=1M count=256 conv=notrunc 2>/dev/null'
	exits again
	# shellcheck disable=SC2016 # it expands there
	inner "$kind" 'dd if=/dev/zero of=/mnt/b bs=1M count=$(awk "/MemAvailable/ { print int(\$2 / 1024) - 24 }" /proc/meminfo) 2>/dev/null'
	of_4k=$(cat $KVM/pages_4k) of_2m=$(cat $KVM/pages_2m) of_1g=$(cat $KVM/pages_1g)
	mapped=$((of_4k / 256 + 2 * of_2m + 1024 * of_1g))
	first=$(nested_faults up first) again=$(nested_faults first again)
	# Adds up what CPUs have counted each by itself.
	cat /proc/sys/vm/stat_refresh
	tables=$(meminfo SecPageTables)
	local host
	host=$(awk '/^VmPTE/ { print $2 }' "/proc/$(cat "$INNER/$kind/pid")/status")
	echo "$kind|$2|$of_4k|$of_2m|$of_1g|$first|$again|${tables:--}|$host" >>$DIR/table
	inner_kill "$kind"
	# What was mapped: all but what the kernel keeps for itself and never touches.
	[ "$mapped" -ge $(($2 * 85 / 100)) ] || fail "$kind: entries for $mapped MB of $2"
	[ "$again" -le 8 ] || fail "$kind: $again nested faults at memory that was touched before"
}
# of_blocks MB: no entry of 4 KB but beside the holes of a PC's first megabytes.
of_blocks() {
	[ "$of_4k" -lt 1024 ] && [ "$of_1g" = 0 ] && [ "$of_2m" -ge $(($1 * 85 / 200)) ] || fail "not by blocks"
	[ "$first" -le 160 ] || fail "$first nested faults for 128 blocks"
}
backend() {
	mount -t "$1" -o "pagesize=$2" none "$3"
	echo "memory-backend-file,mem-path=$3,share=on"
}

echo never >$thp
machine 4k 1024 memory-backend-ram
[ "$of_2m" = 0 ] && [ "$of_1g" = 0 ] && [ "$first" -ge 60000 ] || fail "entries are larger than its pages"
echo madvise >$thp
machine thp 1024 memory-backend-ram
of_blocks 1024
echo 512 >$pages
[ "$(cat $pages)" = 512 ] || fail "only $(cat $pages) pages of hugetlb"
machine hugetlb 1024 "$(backend hugetlbfs 2M $DIR/huge)"
of_blocks 1024
umount $DIR/huge
echo 0 >$pages

machine pool-2M 1024 "$(backend hpmmap 2M $DIR/2M)"
of_blocks 1024
expect_pool_free
if [ "$(cat /sys/kernel/hpmmap/gigabytes)" = yes ]; then
	ram=$(backend hpmmap 1G $DIR/1G)
	# All of it is the first gigabyte, which has holes.
	machine pool-1G 1024 "$ram"
	of_blocks 1024
	expect_pool_free
	# A PC of 3 GB and more has 2 GB below 4 GB.
	machine pool-1G-large "$LARGE" "$ram"
	[ "$of_1g" = $((LARGE / 1024 - 1)) ] || fail "$of_1g entries of 1 GB"
	[ "$of_4k" -lt 1024 ] || fail "$of_4k entries of 4 KB"
	[ "$first" -le 160 ] || fail "$first nested faults for 256 MB"
	expect_pool_free
else
	echo "no entries of 1 GB: $(cat /sys/kernel/hpmmap/gigabytes)"
	machine pool-2M-large "$LARGE" "memory-backend-file,mem-path=$DIR/2M,share=on"
	of_blocks "$LARGE"
	expect_pool_free
fi
sed '1i RAM|MB|4 KB|2 MB|1 GB|first|again|KVM KB|QEMU KB' $DIR/table | tr '|' '\t'

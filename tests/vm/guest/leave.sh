#!/bin/bash
# The last item of a guest: give everything back and check that all of it is there.
. "$(dirname "$0")/lib.sh"

if [ "$(pool_bytes total_bytes)" != 0 ]; then
	hpmmap pool remove --all
fi
[ "$(pool_bytes total_bytes)" = 0 ] || fail "there are still pools"
[ ! -e /run/offline_blocks_left ] || HPMMAP_OFFLINE_BLOCKS=$(cat /run/offline_blocks_left)
[ "$(offline_blocks)" = "$HPMMAP_OFFLINE_BLOCKS" ] ||
	fail "$(offline_blocks) memory blocks are offline, at the start it was $HPMMAP_OFFLINE_BLOCKS"
[ "$(memtotal_kib)" = "$HPMMAP_MEMTOTAL_KIB" ] ||
	fail "MemTotal is $(memtotal_kib) kB, at the start it was $HPMMAP_MEMTOTAL_KIB kB"
unload_module
[ ! -e /dev/hpmmap ] || fail "/dev/hpmmap is still there"
[ ! -e "$SYSFS" ] || fail "$SYSFS is still there"
if is_debug_kernel; then
	# What the module has lost; an object counts only some seconds after its last use.
	sleep 6
	echo scan >/sys/kernel/debug/kmemleak
	leaks=$(cat /sys/kernel/debug/kmemleak)
	[ -z "$leaks" ] || { head -n 60 <<<"$leaks"; fail "kmemleak: $(grep -c '^unreferenced object' <<<"$leaks") objects"; }
fi
# Use a good part of what came back: a bad page would show in the kernel log.
mkdir -p /tmp/fill
mount -t tmpfs -o size=100% tmpfs /tmp/fill
fallocate -l 512M /tmp/fill/zeros
umount /tmp/fill
echo "MemTotal $(memtotal_kib) kB as at the start, module unloaded"

#!/bin/bash
# crash.sh with|without. Runs in the guest: loads a crash kernel that dumps the pools, or
# does not, lets a job and a process that is none fill memory with marks, and crashes.
. "$(dirname "$0")/../vm/guest/lib.sh"

tools=$HPMMAP_ROOT/build/kdump
MEGABYTES=48
# Debian's makedumpfile does not know the huge pages of 6.12: these are small.
echo never >/sys/kernel/mm/transparent_hugepage/enabled

set_pool 256M
load=(env "LD_LIBRARY_PATH=$tools/root/usr/lib/x86_64-linux-gnu" "$tools/root/sbin/kexec"
	--load-panic --kexec-syscall "/boot/vmlinuz-$HPMMAP_KVER" --initrd="$tools/initrd"
	--append="console=ttyS0 rdinit=/init nr_cpus=1 reset_devices irqpoll panic=1 quiet")
case ${1:-} in
with) "${load[@]}" ;;
without) "$HPMMAP_ROOT/packaging/kdump-load" "${load[@]}" ;;
*) fail "usage: crash.sh with|without" ;;
esac
[ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] || fail "no crash kernel is loaded"

hpmmap run --strict -- "$tools/marker" fill job $MEGABYTES >/tmp/job &
"$tools/marker" fill linux $MEGABYTES >/tmp/linux &
within 60 grep pages /tmp/job && within 60 grep pages /tmp/linux || fail "the memory was not filled"
echo "kdump-test: about to crash" >/dev/kmsg
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
sleep 60
fail "the machine has not crashed"

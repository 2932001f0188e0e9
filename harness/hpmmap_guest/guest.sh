#!/bin/bash
# Runs in the guest as root: guest.sh WORKDIR. Prepares the machine, runs
# WORKDIR/script and reports on its standard output with lines that hold the
# nonce of this run, so that nothing a program prints can be taken for them.
# The settings come from WORKDIR/settings. busybox, which virtme-ng needs anyway,
# starts faster than the programs that it replaces.
set -uo pipefail

work=$1
# NONCE ROOT KVER MODULE CACHED
. "$work/settings"

finish() {
	printf '\nHPMMAP-GUEST-DMESG-BEGIN:%s\n' "$NONCE"
	dmesg
	printf '\nHPMMAP-GUEST-DMESG-END:%s\n' "$NONCE"
	printf 'HPMMAP-GUEST-EXIT:%s:%s\n' "$1" "$NONCE"
	exit 0
}

fail() {
	echo "guest: $*"
	finish 125
}

exec </dev/null 2>&1
echo "HPMMAP-GUEST-OUTPUT:$NONCE"
export HOME=/root LANG=C.UTF-8 TERM=dumb USER=root
export PATH=$ROOT/build:$ROOT/build/tests:$ROOT/build/bench:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HPMMAP_ROOT=$ROOT HPMMAP_KVER=$KVER HPMMAP_MODULE=$MODULE
# Files show the progress: lines can get lost, and the script must not run twice.
: >"$work/booted"
cd "$ROOT" || fail "cannot enter $ROOT"
if [ "$CACHED" = 1 ]; then
	options=trans=virtio,version=9p2000.L,cache=loose,msize=512000
	busybox mount -t 9p -o ro,$options cached-usr /usr || fail "cannot mount /usr"
	mkdir /run/cached-build
	busybox mount -t 9p -o $options cached-build /run/cached-build || fail "cannot mount build"
	# Read only by the guest; it writes results beside some of the programs.
	for built in hpmmap hpmmap-bench hpmmap-trace lib tests tests-fuzz tests-vm unit conformance/conformance bench/apps bench/bench-alloc bench/bench-noise bench/bench-vm; do
		[ ! -e "build/$built" ] || busybox mount -o bind "/run/cached-build/$built" "build/$built" || fail "cannot mount build/$built"
	done
fi
# A kernel that is not installed has no modules in /lib/modules.
if [ -d "build/kernels/$KVER" ]; then
	mount -t tmpfs modules /usr/lib/modules && ln -s "$ROOT/build/kernels/$KVER/lib/modules/$KVER" /usr/lib/modules/ ||
		fail "cannot set up /usr/lib/modules"
fi
# Only important messages go to the console; the log at the end has all.
dmesg --console-level warn
busybox ip link set lo up
ulimit -c 0
echo -1 >/proc/sys/kernel/perf_event_paranoid
[ ! -e /proc/sys/kernel/yama ] || echo 0 >/proc/sys/kernel/yama/ptrace_scope
[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing

if [ -n "$MODULE" ]; then
	grep -q '^hpmmap:' /etc/group || echo hpmmap:x:64999: >>/etc/group
	insmod "$MODULE" || fail "the module does not load"
	for _ in {1..50}; do
		[ -c /dev/hpmmap ] && break
		sleep 0.1
	done
	[ -c /dev/hpmmap ] || fail "the module is loaded but there is no /dev/hpmmap"
	[ -d /sys/kernel/hpmmap ] || fail "the module is loaded but there is no /sys/kernel/hpmmap"
	for device in /dev/hpmmap /dev/xpmem; do
		[ ! -c $device ] || { chown root:hpmmap $device && chmod 0660 $device; } || fail "cannot set the rights of $device"
	done
fi

: >"$work/started"
bash "$work/script"
finish $?

#!/bin/bash
# Runs in the guest: runner.sh LIST NONCE. Each line of LIST is an item:
#
#   NAME TIMEOUT POOL COMMAND
#
# Each runs in a session of its own with pools of the size POOL (- for "as they
# are"), and must leave nothing behind: no process, no context, all pool memory
# free. Its outcome is printed between lines with the nonce.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
set +e

list=$1
nonce=$2
HPMMAP_MEMTOTAL_KIB=$(memtotal_kib)
HPMMAP_OFFLINE_BLOCKS=$(offline_blocks)
export HPMMAP_MEMTOTAL_KIB HPMMAP_OFFLINE_BLOCKS

token() {
	printf '\nHPMMAP-ITEM-%s:%s\n' "$1" "$nonce"
}

# Whether nothing of a session is left. Orphans that have ended stay zombies: virtme-ng's init reaps none.
# After each item, and ps(1) takes longer to start than this takes.
is_over() {
	local process state parent group session rest
	for process in /proc/[0-9]*/stat; do
		{ read -r rest <"$process"; } 2>/dev/null || continue
		read -r state parent group session _ <<<"${rest##*) }"
		[ "$session" != "$1" ] || [ "$state" = Z ] || return 1
	done
}

# What the kernel has said since the last time.
told=0
news() {
	local lines
	mapfile -t -s $told lines < <(busybox dmesg)
	told=$((told + ${#lines[@]}))
	[ ${#lines[@]} = 0 ] || printf '%s\n' "${lines[@]}"
}

run_item() {
	local timeout=$1 pool=$2 command=$3 status=0 pid
	if [ "$pool" != - ]; then
		set_pool "$pool" || { echo "FAIL: cannot make the pools $pool"; return 1; }
	fi
	setsid timeout --kill-after=10 "$timeout" bash -c "$command" </dev/null &
	pid=$!
	wait $pid
	status=$?
	[ $status != 124 ] && [ $status != 137 ] || echo "FAIL: not done after $timeout s"

	# Children that were killed with their parents may still be ending.
	if ! within 5 is_over $pid; then
		if [ $status = 0 ]; then
			echo "FAIL: processes were left behind:"
			ps --sid $pid --format pid,stat,wchan:24,args
			status=1
		fi
		! pkill -KILL --session $pid || sleep 1
	fi
	# Files of a test that has failed would be missing from the pools of all that follow.
	if [ $status != 0 ] && [ $status != 77 ]; then
		awk '$3 == "hpmmap" { print $2 }' /proc/mounts | xargs -r umount --lazy
	fi
	if [ -d "$SYSFS" ] && ! (expect_pool_free); then
		[ $status != 0 ] || status=1
	fi
	return $status
}

failed=0
# Of the boot.
news >/dev/null
while read -r name timeout pool command; do
	token "BEGIN:$name"
	run_item "$timeout" "$pool" "$command"
	status=$?
	[ $status = 0 ] || [ $status = 77 ] || failed=1
	token "DMESG:$name"
	news
	token "END:$name:$status"
done 3<&0 <"$list"
exit $failed

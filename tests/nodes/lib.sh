# shellcheck shell=bash
# Shared by the scripts that run on a node: they are put behind it.
set -uo pipefail
MIB=$((1 << 20))
POOL=/sys/kernel/hpmmap/nodes/node0/total_bytes

fail() {
	echo "FAILED: $*"
	systemctl --no-pager --failed
	journalctl --no-pager -b -u hpmmap-pools -u hpmmap-limits -u systemd-modules-load | tail -n 40
	exit 1
}

step() { echo "== $*"; }

pool_is() { # MIB WHEN
	[ "$(cat $POOL 2>/dev/null)" = $(($1 * MIB)) ] || fail "$2: the pool has $(cat $POOL 2>/dev/null) bytes instead of $1M"
}

memtotal() { awk '/^MemTotal:/ { print $2 }' /proc/meminfo; }

within() { # SECONDS COMMAND...
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.5
	done
}

registered() { [ -n "$(ls /sys/kernel/hpmmap/contexts 2>/dev/null)" ]; }
no_jobs() { [ -z "$(ls /sys/kernel/hpmmap/contexts 2>/dev/null)" ]; }

as_alice() { runuser -u alice -- "$@"; }

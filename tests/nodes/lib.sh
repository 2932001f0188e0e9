# shellcheck shell=bash
# Shared by the scripts that run on the first node of a cluster: each is appended to this.
set -uo pipefail
# How many there are: n1 to nN.
NODES=$(sed -n 's/.*\<cluster\.nodes=\([0-9]*\).*/\1/p' /proc/cmdline)
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

# Total size of the pools, which must be free.
pool_is_free() {
	local total free
	total=$(cat $POOL) && free=$(cat ${POOL%total_bytes}free_bytes) && [ "$total" = "$free" ]
}

# The packages go, and nothing is left.
purge() {
	local left
	DEBIAN_FRONTEND=noninteractive apt-get -q -y purge 'hpmmap*' 'libhpmmap*' >/tmp/said 2>&1 || fail "purge: $(cat /tmp/said)"
	[ ! -e /sys/kernel/hpmmap ] || fail 'the module is still loaded'
	grep -l offline /sys/devices/system/memory/memory*/state && fail 'memory blocks are still offline'
	dmesg | grep -o 'hpmmap: .*' | tail -n 3
	left=$(find / -xdev -iname '*hpmmap*' -not -path '/proc/*' -not -path '/var/tmp/debs*' -not -path '/var/log/*' 2>/dev/null)
	[ -z "$left" ] || fail "left behind: $left"
	getent group hpmmap && fail 'the group is left'
	[ ! -e /boot/grub/grub.cfg ] || ! grep hpmmap /boot/grub/grub.cfg || fail 'GRUB still knows of it'
	[ "$(memtotal)" = "$(cat /var/lib/memtotal)" ] || fail "MemTotal is $(memtotal) kB, before the pools it was $(cat /var/lib/memtotal) kB"
	echo "nothing left on $(hostname)"
}

registered() { [ -n "$(cat /proc/hpmmap 2>/dev/null)" ]; }
# Fails without the module: then it cannot be told.
no_jobs() {
	local there
	there=$(cat /proc/hpmmap) && [ -z "$there" ]
}

as_alice() { runuser -u alice -- "$@"; }
as() { # USER COMMAND...
	local user=$1
	shift
	runuser -u "$user" -- env -C /tmp "$@" 2>&1
}

# dd has a buffer as large as a block: so many MB of memory, or "memory exhausted".
need() { echo "dd if=/dev/zero of=/dev/null bs=${1}M count=1 status=none"; }

# Whether Slurm has all nodes, and nothing to do.
idle() { [ "$(sinfo -h -o '%T %D' 2>/dev/null)" = "idle $NODES" ]; }
no_queue() {
	local jobs
	jobs=$(squeue -h) && [ -z "$jobs" ]
}

answers() { scontrol ping | grep -q 'is UP'; }
# Of jobs, within so many seconds: all nodes are idle, no context, all memory of the pools.
nothing_left() { # [SECONDS]
	within "${1:-120}" idle || fail "the nodes are not idle: $(sinfo -N)"
	everywhere 'within 60 no_jobs && within 60 pool_is_free' || fail "$(everywhere 'cat /proc/hpmmap; hpmmap pool list')"
}

# What Slurm says of a failure, too; for scripts that have it.
slurm_fails_loudly() {
	eval "plain_$(declare -f fail)"
	fail() {
		echo "FAILED: $*"
		sinfo -R
		squeue
		everywhere "hostname; tail -n 40 /var/log/slurm/*.log"
		hpmmap status
		plain_fail "$@"
	}
}

# NODE SCRIPT: runs it there as root, with the functions that are here; what it prints, and its status.
on() { command on "$1" "$(declare -p NODES MIB POOL); set -uo pipefail; $(declare -f); $2"; }

# SCRIPT: on each of them, one after the other; the first status that is not 0.
everywhere() {
	local n
	for n in $(seq 1 "$NODES"); do
		on "n$n" "$1" || return
	done
}

# From here on Linux's call trace of an OOM kill is no complaint.
oom_is_wanted() { echo 'hpmmap-test: the OOM killer is wanted' >/dev/kmsg; }

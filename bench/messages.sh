#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: see README.md. Prints a table for 2 and for 4 ranks, or for the
# number of ranks that is given: messages.sh [RANKS].
set -euo pipefail

WINDOWS=/sys/kernel/hpmmap/windows
# sizes KILOBYTES...: prints them as bytes, with commas.
sizes() {
	printf '%s\n' "$@" | awk '{ printf "%s%d", (NR > 1 ? "," : ""), $1 * 1024 }'
}
SMALL=0,8,64,512,$(sizes 1 2 4 8 16)
MIDDLE=$(sizes 1 4 16 64 256 1024)
# Of many ranks few messages: what their page tables take is looked for.
rounds=8 MANY="alltoall:$(sizes 64)"
TWO="pingpong:$SMALL,$(sizes 32 64 256 1024 4096 16384) sendrecv:$MIDDLE exchange:$MIDDLE rate:8,64,512,$(sizes 4 16 64 256)"
FOUR="sendrecv:$MIDDLE exchange:$MIDDLE halo:$MIDDLE rate:8,64,512,$(sizes 4 16 64 256) barrier:0 bcast:$MIDDLE reduce:$MIDDLE \
allreduce:16,$MIDDLE alltoall:$MIDDLE"

# Many ranks have some 50 MB each, with their libraries' data and their stacks.
hpmmap pool add --node 0 --size "$([ $# = 0 ] && echo 1536M || echo 4608M)" --leave 256M >/dev/null
sleep 5
# The emulator counts each round of a repeated string instruction: one for each byte here.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1

# compare RANKS PATTERNS NAME MECHANISM COMMAND...: adds to the table what messages cost that way; the mechanism's
# component is ours for XPMEM, else Debian's.
compare() {
	local ranks=$1 patterns=$2 name=$3 mechanism=$4 before after got
	shift 4
	before=$(cat $WINDOWS/faults)
	got=$(
		if [ "$mechanism" = xpmem ]; then
			set -a
			. build/openmpi/environment
		fi
		export OMPI_MCA_btl_vader_single_copy_mechanism=$mechanism
		# shellcheck disable=SC2086 # several words
		"$@" mpirun.openmpi -n "$ranks" build/bench/messages $rounds $patterns
	)
	after=$(cat $WINDOWS/faults)
	# Otherwise they would have gone another way than they should have.
	if [ "$mechanism" = xpmem ] && [ "$before" = "$after" ]; then
		echo "messages: $name: no message went over a window" >&2
		exit 1
	fi
	[ -n "$table" ] || table=$(echo "pattern bytes"; awk '{ print $1, $2 }' <<<"$got")
	table=$(paste -d' ' <(echo "$table") <(echo "$name"; awk '{ print $3 }' <<<"$got"))
}

all() { # RANKS PATTERNS
	table=
	compare "$@" copied none
	compare "$@" cma cma
	compare "$@" xpmem xpmem
	compare "$@" registered:copied none hpmmap run --strict --
	compare "$@" registered:cma cma hpmmap run --strict --
	compare "$@" registered:xpmem xpmem hpmmap run --strict --
	echo "$1 ranks:"
	column -t <<<"$table"
}

case ${1:-} in
'')
	all 2 "$TWO"
	all 4 "$FOUR"
	;;
*)
	rounds=2
	all "$1" "$MANY"
	;;
esac
hpmmap pool remove --all >/dev/null

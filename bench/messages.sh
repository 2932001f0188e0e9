#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs in a guest that counts instructions as nanoseconds: see README.md.
set -euo pipefail

WINDOWS=/sys/kernel/hpmmap/windows
SIZES=()
for kilobytes in 1 4 16 64 256 1024 4096 16384; do SIZES+=($((kilobytes << 10))); done

hpmmap pool add --node 0 --size 1G --leave 256M >/dev/null
sleep 5
# The emulator counts each round of a repeated string instruction: one for each byte here.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader OMPI_MCA_pml=ob1

# compare NAME MECHANISM COMMAND...: adds to the table what messages cost that way; the mechanism's
# component is ours for XPMEM, else Debian's.
table=$(printf '%s\n' bytes "${SIZES[@]}")
compare() {
	local name=$1 mechanism=$2 before after got
	shift 2
	before=$(cat $WINDOWS/faults)
	got=$(
		if [ "$mechanism" = xpmem ]; then
			set -a
			. build/openmpi/environment
		fi
		export OMPI_MCA_btl_vader_single_copy_mechanism=$mechanism
		"$@" mpirun.openmpi -n 2 build/bench/messages 8 "${SIZES[@]}"
	)
	after=$(cat $WINDOWS/faults)
	# Otherwise they would have gone another way than they should have.
	if [ "$mechanism" = xpmem ] && [ "$before" = "$after" ]; then
		echo "messages: $name: no message went over a window" >&2
		exit 1
	fi
	table=$(paste -d' ' <(echo "$table") <(echo "$name"; awk '{ print $2 }' <<<"$got"))
}

compare copied none
compare cma cma
compare xpmem xpmem
compare registered:copied none hpmmap run --strict --
compare registered:cma cma hpmmap run --strict --
compare registered:xpmem xpmem hpmmap run --strict --
column -t <<<"$table"
hpmmap pool remove --all >/dev/null

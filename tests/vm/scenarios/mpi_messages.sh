#!/bin/bash
# Messages over windows, by libxpmem: Open MPI's vader, 2 and 4 ranks, registered as a whole, rank by rank, and
# not; UCX's xpmem transport, by its own test, under Open MPI and under MPICH.
# pool: 1G
# timeout: 600
# takes: 180
# machine: apps
# windows: yes
# tier: all  the components are built from Debian's source packages, which have to be fetched
# paths: integrations/ lib/ tests/vm/programs/mpi_windows.c kernel/xpmem.* kernel/as/view/attach.* kernel/as/map/window.*
. "$(dirname "$0")/../guest/lib.sh"

program=$HPMMAP_ROOT/build/tests-vm/mpi_windows
for what in openmpi ucx; do
	[ -e "$HPMMAP_ROOT/build/$what/environment" ] || skip "integrations/$what/build has not been run"
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

window_faults() {
	cat $SYSFS/windows/faults
}
# with ENVIRONMENT COMMAND...: as integrations/ENVIRONMENT/build has said.
with() (
	set -a
	. "$HPMMAP_ROOT/build/$1/environment"
	set +a
	"${@:2}"
)
# run RANKS COMMAND...: all results are right; sets faults: how many windows had.
run() {
	local ranks=$1 got before
	shift
	before=$(window_faults)
	got=$("$@" 2>&1) || fail "$* says: $got"
	[ "$got" = "$ranks ranks, 0 failures" ] || fail "$* says: $got"
	faults=$(($(window_faults) - before))
	echo "$(date +%T) $*: $faults faults in windows"
}
# over_windows: as run, and the messages have gone over windows.
over_windows() {
	run "$@"
	[ $faults -gt 0 ] || fail "no message went over a window"
}

# Open MPI's vader. As Debian has it none goes over windows.
run 2 mpirun.openmpi --mca btl self,vader --mca pml ob1 -n 2 "$program.openmpi" $((1 << 20))
[ "$faults" = 0 ] || fail "there are windows without XPMEM"
for ranks in 2 4; do
	over_windows $ranks with openmpi mpirun.openmpi -n $ranks "$program.openmpi" $((4 << 20))
	over_windows $ranks with openmpi hpmmap run -- mpirun.openmpi -n $ranks "$program.openmpi"
	expect_pool_free
	over_windows $ranks with openmpi mpirun.openmpi -n $ranks hpmmap run -- "$program.openmpi" $((4 << 20))
	expect_pool_free
done

# UCX: its own test, and as what the MPI libraries have for other nodes.
listens() {
	[ -n "$(ss --no-header --listening --tcp 'sport = :13337')" ]
}
perftest() {
	local before server
	before=$(window_faults)
	with ucx "$@" ucx_perftest -c 0 >/tmp/server 2>&1 &
	server=$!
	within 30 listens || { cat /tmp/server; fail "ucx_perftest does not listen"; }
	with ucx "$@" ucx_perftest localhost -c 1 -t tag_bw -s 65536 -n 200 -w 10 >/tmp/client 2>&1 || { cat /tmp/client; fail "ucx_perftest"; }
	wait $server || { cat /tmp/server; fail "the server of ucx_perftest"; }
	grep Final: /tmp/client || { cat /tmp/client; fail "ucx_perftest says nothing"; }
	[ "$(window_faults)" -gt "$before" ] || fail "no message of ucx_perftest went over a window"
}
perftest
perftest hpmmap run --
expect_pool_free
over_windows 2 with ucx hpmmap run -- mpirun.openmpi -n 2 "$program.openmpi" $((1 << 20))
over_windows 2 with ucx hpmmap run -- mpirun.mpich -genv MPIR_CVAR_NOLOCAL 1 -n 2 "$program.mpich" $((1 << 20))
expect_pool_free

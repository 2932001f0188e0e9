#!/bin/bash
# Open MPI and MPICH, 4 ranks, registered as a whole or rank by rank: the same numbers.
# takes: 45
# machine: apps
# pool: 1G
# timeout: 240
# scales: yes
# tier: newest  what programs see of a kernel, the test programs ask on every one
# paths: tests/vm/programs/apps/mpi.c kernel/task/ tests/vm/guest/apps.sh
. "$(dirname "$0")/../guest/apps.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
export OMPI_MCA_hwloc_base_binding_policy=none TMPDIR=/tmp
# Ranks that wait must let others run: there are more of them than CPUs.
export OMPI_MCA_mpi_yield_when_idle=1

run_once native mpirun.openmpi -n 4 "$BUILT/mpi.openmpi" "$SCALE"
# Both compute the same.
for mpi in openmpi mpich; do
	same_as native $mpi "${REGISTERED[@]}" mpirun.$mpi -n 4 "$BUILT/mpi.$mpi" "$SCALE"
	took mpi.$mpi 60 4
	same_as native $mpi-ranks mpirun.$mpi -n 4 "${REGISTERED[@]}" "$BUILT/mpi.$mpi" "$SCALE"
	took mpi.$mpi 60 4
done
cat "$WORK/openmpi"

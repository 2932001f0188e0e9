#!/bin/bash
# Two MPI ranks compute the same with and without HPMMAP, however they are started.
# pool: 1G
# timeout: 300
# tier: newest  inherit and setuid ask on every kernel what starting programs does
# paths: kernel/task/
. "$(dirname "$0")/../guest/lib.sh"

cat >/tmp/melt.in <<'INPUT'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
thermo 20
run 40
INPUT

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1 OMPI_MCA_hwloc_base_binding_policy=none
export OMP_NUM_THREADS=1 TMPDIR=/tmp

# The lines of thermodynamic output, which tell of every atom.
physics() {
	"$@" -in /tmp/melt.in -log none -screen /tmp/out >/tmp/err 2>&1 || { cat /tmp/out /tmp/err; fail "$*"; }
	awk '/^Step/ { on = 1 } /^Loop time/ { on = 0 } on' /tmp/out
}
native=$(physics mpirun -n 2 lmp)
[ "$(wc -l <<<"$native")" = 4 ] || fail "LAMMPS prints: $native"
outside=$(physics hpmmap run -- mpirun -n 2 lmp)
[ "$outside" = "$native" ] || fail "under 'hpmmap run mpirun' the results are: $outside instead of $native"
inside=$(physics mpirun -n 2 hpmmap run --strict -- lmp)
[ "$inside" = "$native" ] || fail "under 'mpirun hpmmap run' the results are: $inside instead of $native"
echo "$native"

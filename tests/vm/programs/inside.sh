#!/bin/bash
# inside.sh MINICG: HPCC, LAMMPS and a mini-application, each by itself, in an empty directory. Prints what must be
# the same wherever they run: norms, residuals, errors, energies and a checksum, and no times.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self OMPI_MCA_pml=ob1
export OMPI_MCA_ess_singleton_isolated=1 OMP_NUM_THREADS=1

# Matrices of 256, one process.
sed -E '6s/^1000 /256 /; 8s/^80 /32 /; 11,12s/^2 /1 /' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
hpcc
grep -E '^(Success|HPL_(N|RnormI|Anorm1|Xnorm1|XnormI)|PTRANS_residual|.*RandomAccess.*_Errors|MPIFFT_maxErr)=' hpccoutf.txt
# Not lines with CPU times: there is none where it is 0.
grep -oE '^Found [0-9]+ errors in [0-9]+ locations|avg error less than [^ ]+ on all|[0-9]+ tests completed and .*|^\|\|Ax-b.*' hpccoutf.txt |
	sort | uniq -c

cat >in.lj <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 10
run 50
END
lmp -in in.lj -log none | sed -n '/^ *Step/,/^Loop time/{/^Loop time/!p}'

"$1" --json --size 8 --iterations 40 | grep -oE '"(verified|residual|checksum)": [^,]*'

# A program of MPI on two nodes, over TCP: no page fault on either, and reports of both; collectives across both,
# of Open MPI and MPICH; then the packages are removed.
# nodes: 2
# files: cg.c ../vm/programs/mpi_hosts.c ../vm/programs/mpi_cost.c
# timeout: 2400

slurm_fails_loudly
PROGRAM=/tmp/program
# As cg.c has them: unknowns along a side, and bytes of a block.
SIZE='160 16777216'
# No other way from one rank to another.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp

as_user() { as_alice env -C /tmp HOME=/home/alice "$@" 2>&1; }
# Numbers of page faults, one a line, of what the program said of itself.
faults_of() { sed -n 's/^rank .* on n[12]: \([0-9]*\) faults, .* 0 wrong$/\1/p' <<<"$1"; }
# Linux counts as a fault of the process, too, what the module has it prepare within mmap where a page table is
# wanting: at most one for each of the seven pieces of memory that are allocated. Of what the program touches
# there is none, and a report says so.
no_faults() { # WHAT SAID
	[ "$(faults_of "$2" | awk '$1 <= 7' | wc -l)" = 2 ] || fail "$1: there are not two ranks without page faults: $2"
	[ "$(grep -oE 'on n[12]:' <<<"$2" | sort)" = $'on n1:\non n2:' ] || fail "$1: the ranks are not on two nodes: $2"
}
# Each task's line of a report.
reported() { # WHAT SAID
	local task
	for task in 0 1; do
		grep "hpmmap: task $task: peak [1-9][0-9]* MB of the pools, 0 page faults, 0 fallbacks to ordinary memory, 0 calls refused" <<<"$2" ||
			fail "$1: task $task is not reported so: $2"
	done
}
all_is_free() {
	everywhere 'within 30 no_jobs || fail "contexts are left"; within 30 pool_is_free || fail "the pool is not free: $(hpmmap pool list)"' ||
		fail "after $1"
}

step 'two nodes'
within 240 idle || fail "the nodes are not idle: $(sinfo)"
everywhere 'pool_is 512 "after the boot"; hpmmap pool limit --user alice --size none' || fail 'a node has no pool'
srun --mpi=list
HOME=/root mpicc -O2 -o /srv/cg /srv/cg.c -lm || fail 'mpicc'
as_user salloc -N2 sbcast /srv/cg $PROGRAM || fail 'sbcast'

step 'natively'
said=$(as_user srun --mpi=pmix -N2 -n2 $PROGRAM $SIZE) || fail "srun: $said"
echo "$said"
# Those of 4 KB, or fewer of 2 MB.
[ "$(faults_of "$said" | awk '$1 > 100' | wc -l)" = 2 ] || fail 'there are not two ranks with page faults'

step 'srun'
said=$(as_user srun --mpi=pmix -N2 -n2 --hpmmap=strict,report --gres=hpmmap:256M $PROGRAM $SIZE) || fail "srun: $said"
echo "$said"
no_faults srun "$said"
reported srun "$said"
all_is_free srun

step 'salloc, and each node holds the job to its grant'
as_user salloc -N2 --hpmmap=report --gres=hpmmap:256M sh -c "srun --mpi=pmix -N2 -n2 $PROGRAM $SIZE; srun -N2 -n2 sleep 600" >/tmp/salloc &
job=$!
held() { everywhere 'hpmmap pool limit --list | grep "job_[0-9].* 256M"' >/dev/null; }
within 240 held || fail "the job is not held to its grant on both nodes: $(cat /tmp/salloc)"
has_run() { [ "$(grep -c 'hpmmap: task [01]:' /tmp/salloc)" = 2 ]; }
within 240 has_run || fail "it has not run: $(cat /tmp/salloc)"
as_user scancel --user alice
wait $job
cat /tmp/salloc
no_faults salloc "$(cat /tmp/salloc)"
all_is_free salloc

step 'mpirun in a batch job'
cat >/tmp/batch <<-END
	#!/bin/sh
	mpirun -n 2 --map-by ppr:1:node $PROGRAM $SIZE
END
as_user sbatch --wait --export=ALL --output=/tmp/batch.out -N2 -n2 --hpmmap=strict --gres=hpmmap:256M /tmp/batch || fail "sbatch: $(cat /tmp/batch.out)"
cat /tmp/batch.out
no_faults mpirun "$(cat /tmp/batch.out)"
all_is_free mpirun
idle || fail "the nodes are $(sinfo)"

step 'collectives across both, in place on each'
LIBRARIES=/usr/lib/x86_64-linux-gnu/hpmmap
for mpi in openmpi mpich; do
	for program in mpi_hosts mpi_cost; do
		HOME=/root mpicc.$mpi -O2 -D_GNU_SOURCE -pthread -o /srv/$program.$mpi /srv/$program.c || fail "mpicc.$mpi"
		as_user salloc -N2 sbcast /srv/$program.$mpi /tmp/$program.$mpi || fail 'sbcast'
	done
done
# MPI LIBRARY|"" MIN_BYTES PROGRAM ARGUMENTS: two ranks on each node.
collectives() {
	local mpi=$1 preload=$2 least=$3
	shift 3
	case $mpi in
	openmpi) set -- mpirun.openmpi -n 4 --map-by ppr:2:node -x LD_PRELOAD="$preload" -x HPMMAP_MPI_MIN_BYTES="$least" "$@" ;;
	mpich) set -- mpirun.mpich -n 4 -ppn 2 -genv LD_PRELOAD "$preload" -genv HPMMAP_MPI_MIN_BYTES "$least" "$@" ;;
	esac
	as_user salloc -Q -N2 -n4 --ntasks-per-node=2 --hpmmap --gres=hpmmap:256M env OMPI_MCA_btl=self,vader,tcp "$@"
}
windows() { everywhere 'cat /sys/kernel/hpmmap/windows/faults'; }
for mpi in openmpi mpich; do
	before=$(windows)
	library=$LIBRARIES/$mpi/libhpmmap_mpi.so
	said=$(collectives $mpi $library 1 /tmp/mpi_hosts.$mpi 60 200000) || fail "$mpi: $said"
	[ "$said" = '4 ranks, 0 failures' ] || fail "$mpi: $said"
	# On each of the two.
	[ "$(diff <(echo "$before") <(windows) | grep -c '^>')" = 2 ] || fail "$mpi: no windows were used on both: $before $(windows)"
	echo "$mpi: $said"
done
# Time, which says nothing of instructions: ranks wait by looking. tests/vm/scenarios/mpi_hosts_cost.sh counts.
before=$(collectives openmpi '' 4096 /tmp/mpi_cost.openmpi 2 65536) || fail "mpi_cost: $before"
after=$(collectives openmpi $LIBRARIES/openmpi/libhpmmap_mpi.so 4096 /tmp/mpi_cost.openmpi 2 65536) || fail "mpi_cost in place: $after"
paste -d' ' <(echo "$before") <(echo "$after") |
	awk '{ printf "%s of %d: %.0f thousand ticks, the library alone %.0f\n", $1, $2, $6, $3 }'
all_is_free collectives

step 'purged on both'
everywhere purge || fail 'purge'

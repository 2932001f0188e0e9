# Slurm's --hpmmap=isolate: the CPUs of a batch job are a partition while it lives, however it ends, and the host is
# as before in the end. Two jobs at once have their own CPUs, and the memory that they were promised to the last block.
# suites: trixie
# cpus: 4
# timeout: 1800
# files: ../vm/guest/host_state.py
slurm_fails_loudly

ISOLATED=/sys/fs/cgroup/cpuset.cpus.isolated
RECORDS=/run/hpmmap/partitions
# How many CPUs are in a list.
count() { python3 -c 'import sys; print(sum(int(one.split("-")[-1]) - int(one.split("-")[0]) + 1 for one in sys.argv[1].split(",") if one))' "$1"; }
no_partition() { [ -z "$(cat $ISOLATED)" ] && ! compgen -G "$RECORDS/*" >/dev/null && [ ! -e $RECORDS/.host ]; }
partitions() { [ "$(compgen -G "$RECORDS/slurm_*" | wc -l)" = "$1" ]; }
# Services that come and go have files of their own.
as_before() { # WHEN
	local left
	within 240 idle || fail "$1: the node is $(sinfo -h -o %T)"
	within 30 no_partition || fail "$1: there is a partition: $(hpmmap partition list)"
	left=$(python3 /srv/host_state.py /tmp/after /tmp/before | grep -v -e 'None -> ' -e ' -> None' -e 'are as before$')
	[ -z "$left" ] || fail "$1, not as before: $left"
}
# A task that does not run isolated, after one line that has these words.
one_line() { # WORDS SRUN-OPTION...
	local words=$1
	shift
	said=$(as alice srun --hpmmap=no,isolate "$@" echo 'it runs') || fail "srun: $said"
	echo "$said"
	[[ $(echo "$said" | grep -c hpmmap:) = 1 && $said == *"CPUs are not isolated: "*"$words"* && $said == *'it runs'* ]] ||
		fail "it is not one line with '$words'"
	no_partition || fail "$words: there is a partition"
}
# Which CPUs the kernel leaves alone, and which the task has.
cat >/usr/local/bin/look <<-'END'
	#!/bin/sh
	echo "$1 $(cat /sys/fs/cgroup/cpuset.cpus.isolated) $(sed -n s/^Cpus_allowed_list:.//p /proc/self/status) $OMP_PLACES"
END
chmod 755 /usr/local/bin/look

within 120 idle || fail "the node is not idle: $(sinfo; tail /var/log/slurm/*.log)"
hpmmap pool limit --default --size none
hpmmap pool limit --user alice --size none
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug

step 'where it cannot be'
one_line 'this site does not allow it'
sed -i 's/^optional hpmmap.so$/& isolate=yes/' /etc/slurm/plugstack.conf.d/hpmmap.conf
one_line 'ConstrainCores=yes'
echo ConstrainCores=yes >>/etc/slurm/cgroup.conf
systemctl restart slurmd
within 120 idle || fail "the node is not idle: $(sinfo)"
as alice srun true || fail 'no job runs with ConstrainCores'
within 60 idle || fail 'the node is not idle'
python3 /srv/host_state.py /tmp/before
one_line 'leaves no CPU for everything else' --exclusive
as_before 'refused'

step 'tasks have their CPUs alone'
said=$(as alice srun -n2 --hpmmap=isolate,report --gres=hpmmap:64M sh -c "look task; hpmmap partition list") || fail "srun: $said"
echo "$said"
read -r _ isolated cpu places <<<"$(echo "$said" | grep -m1 '^task ')"
[ "$(count "$isolated")" = 2 ] || fail "CPUs $isolated are isolated, not two"
[ "$(count "$cpu") $places" = '1 threads' ] || fail "a task has CPUs $cpu, and OMP_PLACES=$places"
[ "$(echo "$said" | grep '^task ' | sort -u | wc -l)" = 2 ] || fail 'both tasks have the same CPU'
echo "$said" | grep "^slurm_[0-9]* *$isolated .*ready, isolated" >/dev/null || fail 'the list does not have it'
[ "$(echo "$said" | grep -c 'hpmmap: task')" = 2 ] || fail 'there are not two reports'
as_before 'srun'

step 'a batch job and its steps'
cat >/tmp/batch <<-END
	#!/bin/sh
	look batch
	srun -n2 look step
	srun -n1 --exact look one
	hpmmap run --partition slurm_\$SLURM_JOB_ID -- true
END
as alice sbatch --wait -n2 --output=/tmp/batch.out --hpmmap=isolate /tmp/batch || true
cat /tmp/batch.out
read -r _ isolated cpu _ <<<"$(grep -m1 '^batch' /tmp/batch.out)"
[ "$(count "$isolated") $cpu" = "2 $isolated" ] || fail "the script has CPUs $cpu of $isolated"
[ "$(grep -c "^step $isolated [0-9] threads" /tmp/batch.out)" = 2 ] || fail 'its step has not its CPUs'
grep "^one $isolated [0-9] threads" /tmp/batch.out >/dev/null || fail 'its step of one task has not its CPU'
grep 'no permission to run in partition' /tmp/batch.out >/dev/null || fail 'a user gets into it by hpmmap run'
as_before 'sbatch'

step 'two jobs at once, with all that they were promised'
# Takes all it can get, 2 MB by 2 MB; then it waits.
cat >/usr/local/bin/take <<-'END'
	#!/usr/bin/python3
	import mmap, os, sys, time
	held, name = [], "/tmp/" + sys.argv[1]
	open(name + ".new", "w").close()
	try:
	    while True:
	        held.append(mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
	except (OSError, MemoryError):
	    pass
	os.rename(name + ".new", name)
	while not os.path.exists(name + ".end"):
	    time.sleep(0.1)
END
chmod 755 /usr/local/bin/take
for user in alice bob; do
	as $user srun --hpmmap=strict,isolate --gres=hpmmap:256M sh -c "look task; exec take $user" >/tmp/$user.out 2>&1 &
done
both_took() { [ -e /tmp/alice ] && [ -e /tmp/bob ]; }
within 120 both_took || fail "$(cat /tmp/alice.out /tmp/bob.out)"
cat /tmp/alice.out /tmp/bob.out
[ "$(cat ${POOL%total_bytes}free_bytes)" = 0 ] || fail "of what was promised $(cat ${POOL%total_bytes}free_bytes) bytes are free"
hpmmap pool limit --list
[ "$(hpmmap pool limit --list | grep -c '^cgroup .*/job_[0-9]* .*256M *256M')" -ge 2 ] || fail 'a job does not hold what it was promised'
partitions 2 || fail "there are not two partitions: $(hpmmap partition list)"
[ "$(count "$(cat $ISOLATED)")" = 2 ] || fail "CPUs $(cat $ISOLATED) are isolated"
touch /tmp/alice.end
within 60 partitions 1 || fail 'the partition of alice stays'
[ "$(count "$(cat $ISOLATED)")" = 1 ] || fail "beside bob CPUs $(cat $ISOLATED) are isolated"
touch /tmp/bob.end
wait
as_before 'two jobs'

step 'cancelled'
start() {
	job=$(as alice sbatch --parsable --no-requeue -n2 --hpmmap=isolate --output=/tmp/job.out --wrap 'srun sleep 1000; sleep 1000') || fail "sbatch: $job"
	within 120 pgrep -u alice -x sleep >/dev/null || fail 'the job does not run'
	partitions 1 || fail "there is no partition: $(cat /tmp/job.out)"
}
start
as alice scancel "$job"
as_before 'scancel'

step 'slurmstepd is killed'
scope=$(echo /sys/fs/cgroup/system.slice/*slurmstepd.scope)
start
pkill -KILL -f "^slurmstepd: \[${job}[.]" || fail 'there is no slurmstepd'
sleep 2
pgrep -u alice -x sleep >/dev/null || fail 'what it ran is gone already'
as alice scancel "$job"
as_before 'slurmstepd killed'
pgrep -u alice -x sleep && fail 'what a slurmstepd left that was killed still runs'
compgen -G "$scope/job_*" && fail 'cgroups of the job are left'
said=$(as alice srun -n3 --hpmmap=isolate look task) || fail "the next job: $said"
[ "$(count "$(echo "$said" | grep -m1 '^task ' | cut -d' ' -f2)")" = 3 ] || fail "the next job is not isolated: $said"
as_before 'the next job'

step 'what no epilog has undone'
mkdir $scope/job_9999
echo 3 >$scope/job_9999/cpuset.cpus
hpmmap partition create slurm_9999 --of-cgroup ${scope#/sys/fs/cgroup}/job_9999 >/dev/null || fail 'no partition'
said=$(as alice srun -n4 echo 'it runs') || fail "beside what is left no job runs: $said"
rmdir $scope/job_9999
as_before 'the prolog'

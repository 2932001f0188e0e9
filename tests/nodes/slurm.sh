# Slurm on the node: tasks under HPMMAP, jobs limited to their grants, nothing left.
# timeout: 1800

slurm_fails_loudly

step 'Slurm is up, after the pools'
pool_is 512 'after the boot'
began() { systemctl show -p "$2" --value "$1"; }
[ "$(began hpmmap-pools ActiveEnterTimestampMonotonic)" -le "$(began slurmd ExecMainStartTimestampMonotonic)" ] ||
	fail 'slurmd started before the pools were made'
within 120 idle || fail "the node is not idle: $(sinfo; tail /var/log/slurm/*.log)"
[ "$(hpmmap pool list --gres)" = 'Name=hpmmap Count=512M Flags=CountOnly' ] || fail "$(hpmmap pool list --gres)"
hpmmap pool limit --user alice --size none
hpmmap pool limit --default --size none

# Until the other task is there, and long enough that it sees this one, too.
sees_two() {
	cat <<-'END'
		for i in $(seq 120); do
			n=$(grep -c ^pid /proc/hpmmap)
			[ $n -lt 2 ] || break
			sleep 0.5
		done
		echo $n
		sleep 5
	END
}

step 'a task is registered, and reported'
said=$(as alice srun -n2 --hpmmap=strict,report sh -c "$(need 40); $(sees_two)") || fail "srun: $said"
echo "$said"
[ "$(echo "$said" | grep -cx '[2-9]')" = 2 ] || fail 'both tasks see two processes at least'
[ "$(echo "$said" | grep -c 'hpmmap: task [01]: peak [1-9][0-9]* MB of the pools')" = 2 ] || fail 'there are not two reports'
# Before that srun may say that the job has to wait.
last_line() { echo "${1##*$'\n'}"; }
said=$(as alice srun sh -c 'grep -c ^id /proc/hpmmap || :')
[ "$(last_line "$said")" = 0 ] || fail "without the option: $said"
said=$(as alice env SLURM_HPMMAP=yes srun sh -c 'grep -c ^id /proc/hpmmap || :')
[[ $(last_line "$said") == [1-9] ]] || fail "the variable does nothing: $said"
said=$(as alice srun --hpmmap=stric true) && fail "a wrong word is taken: $said"
[[ $said == *"'stric' is none of"* ]] || fail "it said: $said"

step 'steps have it from their job'
said=$(as alice salloc --hpmmap sh -c 'srun sh -c "grep -c ^id /proc/hpmmap"') || fail "salloc: $said"
echo "$said" | grep -x '[1-9]' || fail "the step of salloc --hpmmap has none: $said"

step 'a job is held to its grant'
said=$(as alice srun --hpmmap=strict --gres=hpmmap:200M sh -c "$(need 100)") || fail "100 MB of 200M: $said"
said=$(as alice srun --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 100)") && fail '100 MB of 64M were had'
echo "$said" | grep -i 'memory exhausted' || fail "it said: $said"
said=$(as alice srun --hpmmap=report --gres=hpmmap:64M sh -c "$(need 100)") || fail "100 MB of 64M, with ordinary memory: $said"
echo "$said" | grep 'peak [1-6]\?[0-9] MB of the pools, .* [1-9][0-9]* fallbacks to ordinary memory' || fail "it said: $said"
# Both tasks together.
said=$(as alice srun -n2 --hpmmap=strict --gres=hpmmap:128M sh -c "$(need 80)"' && sleep 1') && fail "twice 80 MB of 128M were had: $said"
echo "$said" | grep -i 'memory exhausted' || fail "it said: $said"

step 'in whatever way it comes to the pools'
# By the command in a step without the option.
said=$(as alice srun --gres=hpmmap:64M hpmmap run --strict -- sh -c "$(need 40)") || fail "40 MB of 64M: $said"
said=$(as alice srun --gres=hpmmap:64M hpmmap run --strict -- sh -c "$(need 100)") && fail '100 MB of 64M were had with hpmmap run'
echo "$said" | grep -i 'memory exhausted' || fail "it said: $said"
# By a mark, in a job whose first step had nothing of HPMMAP.
cp /bin/dd /tmp/marked
hpmmap mark --strict /tmp/marked
cat >/tmp/batch <<-END
	#!/bin/sh
	$(need 1)
	$(need 40 | sed s:dd:/tmp/marked:) && echo 'forty were had'
	srun $(need 100 | sed s:dd:/tmp/marked:) && echo 'a hundred were had'
END
as alice sbatch --wait --output=/tmp/batch.out --gres=hpmmap:64M /tmp/batch
cat /tmp/batch.out
grep -x 'forty were had' /tmp/batch.out || fail '40 MB of 64M were not had by a mark'
grep -x 'a hundred were had' /tmp/batch.out && fail '100 MB of 64M were had by a mark'
grep -i 'memory exhausted' /tmp/batch.out || fail 'it was not for want of memory'
rm /tmp/marked

step 'strangers, where the site says that they are held'
said=$(as alice srun --hpmmap=strict sh -c "$(need 100)") || fail "without a grant, 100 MB: $said"
words=/etc/slurm/plugstack.conf.d/hpmmap.conf
cp $words /tmp/words
sed -i 's/^optional hpmmap.so$/& hold=all/' $words
said=$(as alice srun hpmmap run --strict -- sh -c "$(need 40)") && fail "a stranger has 40 MB: $said"
echo "$said"
[[ $said == *'no memory for the launch: the limit of cgroup '*'(0) is reached'* || $said == *'memory exhausted'* ]] ||
	fail 'it was not for want of memory'
said=$(as alice srun -n2 --hpmmap=strict,report sh -c "$(need 40) && echo it runs") || fail "the task of a stranger does not run: $said"
echo "$said"
[ "$(echo "$said" | grep -c hpmmap)" = 1 ] || fail 'it is not one line'
[[ $said == *'granted no --gres=hpmmap'* && $(echo "$said" | grep -c 'it runs') = 2 ]] || fail "it said: $said"
said=$(as alice srun --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 40)") || fail "40 MB of 64M: $said"
# An exclusive job is granted all of the node.
said=$(as alice srun --exclusive --hpmmap=strict sh -c "$(need 300)") || fail "300 MB of the whole node: $said"
cp /tmp/words $words

step 'two users at once'
as alice srun --hpmmap=strict,report --gres=hpmmap:256M sh -c "$(need 200) && sleep 1 && $(need 200)" >/tmp/alice 2>&1 &
alice=$!
as bob srun --hpmmap=strict,report --gres=hpmmap:256M sh -c "$(need 200) && sleep 1 && $(need 300)" >/tmp/bob 2>&1 && fail 'bob got 300 MB of 256M'
wait $alice || fail "alice: $(cat /tmp/alice)"
cat /tmp/alice /tmp/bob
grep -i 'memory exhausted' /tmp/bob || fail 'bob was not refused for want of memory'
grep 'hpmmap: task 0: peak 2[0-5][0-9] MB of the pools, .* 0 calls refused' /tmp/alice || fail "alice's report does not say what she had"
grep 'hpmmap: task 0: peak 2[0-5][0-9] MB of the pools, .* [1-9][0-9]* calls refused' /tmp/bob || fail "bob's report has no refused calls"

step 'a batch job and its steps'
cat >/tmp/batch <<-END
	#!/bin/sh
	$(need 40)
	srun sh -c '$(need 60); grep -c ^id /proc/hpmmap'
END
as alice sbatch --wait --output=/tmp/batch.out --hpmmap=strict,page-size=2M,report --gres=hpmmap:256M /tmp/batch ||
	fail "sbatch: $(cat /tmp/batch.out)"
cat /tmp/batch.out
[ "$(grep -c 'hpmmap: task 0: peak [1-9][0-9]* MB of the pools' /tmp/batch.out)" = 2 ] || fail 'the script and its step have not two reports'
grep -x '[1-9]' /tmp/batch.out || fail 'the step of sbatch --hpmmap is not registered'

step 'killed, cancelled, out of memory'
oom_is_wanted
as alice srun --hpmmap=strict,report --gres=hpmmap:128M sh -c 'sleep 600' >/tmp/killed 2>&1 &
job=$!
within 60 registered || fail 'the job does not register'
within 60 pkill -KILL -u alice -x sleep || fail 'the job does not run'
wait $job && fail 'the job was not killed'
cat /tmp/killed
grep 'hpmmap: task 0: peak' /tmp/killed || fail 'a task that was killed is not reported'
as alice srun --hpmmap --gres=hpmmap:128M sleep 600 >/tmp/killed 2>&1 &
job=$!
within 60 registered || fail 'the job does not register'
as alice scancel --full --user alice
wait $job && fail 'the job was not cancelled'
within 60 no_jobs || fail 'what was cancelled is still registered'
# Beyond the grant there is ordinary memory, up to --mem.
said=$(as alice srun --hpmmap=report --gres=hpmmap:32M --mem=100M sh -c "$(need 400)") && fail "400 MB of 32M and 100M were had: $said"
echo "$said"
[[ ${said,,} == *oom* || ${said,,} == *'out of memory'* ]] || fail "it was not for want of memory: $said"
within 30 pool_is_free || fail "the pool is not free: $(hpmmap pool list)"

within 60 no_queue || fail 'there are jobs left'
within 30 no_jobs || fail "contexts are left: $(cat /proc/hpmmap)"
within 30 pool_is_free || fail "the pool is not free: $(hpmmap pool list)"
hpmmap pool limit --list
hpmmap pool limit --list | grep job_ && fail 'limits of jobs that are gone are left'
idle || fail "the node is $(sinfo -h -o %T)"

step 'without the module'
systemctl stop hpmmap-pools && modprobe -r hpmmap || fail 'the module does not go'
said=$(as alice srun --hpmmap=strict sh -c 'echo it runs') || fail "srun: $said"
echo "$said"
[ "$(echo "$said" | grep -c hpmmap)" = 1 ] || fail 'it is not one line'
[[ $said == *'it runs'* && $said == *'the module is not loaded'* ]] || fail 'the task does not run, or nothing is said'
idle || fail "the node is $(sinfo -h -o %T)"

# A hundred short jobs of two users: some end well, others are cancelled or killed, reach their grant,
# or run out of memory. Nothing is left of them.
# timeout: 1800
slurm_fails_loudly

step 'a hundred jobs'
oom_is_wanted
within 120 idle || fail "the node is not idle: $(sinfo)"
hpmmap pool limit --user alice --size none
hpmmap pool limit --default --size none
# How the first of them has ended is known when the last one has.
echo 'MinJobAge=7200' >>/etc/slurm/slurm.conf
scontrol reconfigure || fail 'reconfigure'

mkdir -m 1777 /tmp/jobs
cat >/tmp/jobs/job <<-END
	#!/bin/sh
	out=/tmp/jobs/\$(id -un).\$SLURM_ARRAY_TASK_ID
	case \$((SLURM_ARRAY_TASK_ID % 5)) in
	0) $(need 30) && seq 20000 | sort -rn | cksum >\$out ;;
	1) exec sleep 900 ;;
	2) echo \$\$ >\$out.pid; exec sleep 900 ;;
	3) exec $(need 100) ;;
	4) exec $(need 200) ;;
	esac
END
right=$(seq 20000 | sort -rn | cksum)
started=$SECONDS
for user in alice bob; do
	submit() { as $user sbatch --parsable --oversubscribe --mem=60M --output="/tmp/jobs/$user.%a.out" "$@" /tmp/jobs/job; }
	some=$(submit --array=0-45:5,1-46:5,2-47:5,3-48:5 --hpmmap=strict,report --gres=hpmmap:64M) || fail "sbatch: $some"
	# Beyond its grant it gets ordinary memory, up to --mem.
	submit --array=4-49:5 --hpmmap=report --gres=hpmmap:16M || fail 'sbatch'
	# Before they run.
	as $user scancel "${some}_41" "${some}_46" || fail 'scancel'
done

# Those that wait for it are killed, or cancelled by their users, until there are none. Asking
# takes what others could use of the CPU, too.
hurt() {
	local file user id
	sleep 3
	for file in /tmp/jobs/*.pid; do
		[ -s "$file" ] && kill -KILL "$(cat "$file")" && rm "$file"
	done
	while read -r user id; do
		[[ $id =~ _[0-9]*[16]$ ]] && as "$user" scancel "$id"
	done < <(squeue -h -t running -o '%u %i')
	no_queue
}
within 1200 hurt || fail "there are jobs left: $(squeue)"
echo "$((SECONDS - started)) s"

step 'how they have ended'
squeue -h -t all -o '%K %T' | awk '{ print $1 % 5, $2 }' | sort | uniq -c | tee /tmp/ended
# Slurm has no record of an array's job that was cancelled before it ran.
cat >/tmp/wanted <<-END
	 20 0 COMPLETED
	 16 1 CANCELLED
	 20 2 FAILED
	 20 3 FAILED
	 20 4 OUT_OF_MEMORY
END
diff -b /tmp/wanted /tmp/ended || fail 'they have not ended as they should'
[ -z "$(ls /tmp/jobs/*.4[16].out 2>/dev/null)" ] || fail 'jobs have run that were cancelled before'
[ "$(cat /tmp/jobs/*[05] | grep -cxF "$right")" = 20 ] || fail "results are wrong: $(cat /tmp/jobs/*[05])"
reports() { cat /tmp/jobs/*.*["$1"].out | grep -c "hpmmap: task 0: peak [0-9]* MB of the pools, $2"; }
[ "$(reports 05 '.* 0 calls refused')" = 20 ] || fail 'jobs that ended well have other reports'
[ "$(reports 27 '.* 0 calls refused')" = 20 ] || fail 'jobs that were killed have other reports'
[ "$(reports 38 '.* [1-9][0-9]* calls refused')" = 20 ] || fail 'jobs that were refused memory have other reports'
[ "$(reports 49 '.* [1-9][0-9]* fallbacks to ordinary memory')" = 20 ] || fail 'jobs that ran out of memory have other reports'

step 'nothing is left'
within 30 no_jobs || fail "contexts are left: $(cat /proc/hpmmap)"
within 30 pool_is_free || fail "the pool is not free: $(hpmmap pool list)"
hpmmap pool limit --list | grep job_ && fail 'limits of jobs that are gone are left'
within 30 idle || fail "the node is $(sinfo -h -o %T)"
systemctl stop hpmmap-pools && modprobe -r hpmmap || fail 'the module does not go'

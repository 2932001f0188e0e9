# Daemons on a node fail and restart while jobs run: no block is left behind, and jobs of other
# users end with the right result.
# nodes: 2
# reboots: yes
# timeout: 1800
slurm_fails_loudly

# Holds 42 MB until it is told to end, and tells whether they are as they were.
everywhere "cat >/usr/local/bin/work <<-'END'
	#!/usr/bin/perl
	my (\$name, \$text) = (shift, 'hpmmap-');
	my \$held = \$text x (6 << 20);
	open(my \$file, '>', \"/tmp/\$name.runs\");
	close(\$file);
	select(undef, undef, undef, 0.2) until -e \"/tmp/\$name.end\";
	print unpack('%32C*', \$held) == unpack('%32C*', \$text) * (6 << 20) % 2 ** 32 ? 'right' : 'wrong', qq(\n);
END
chmod 755 /usr/local/bin/work
hpmmap pool limit --default --size none
hpmmap pool limit --user alice --size none"

declare -A node_of id_of
start() { # NAME USER NODE
	node_of[$1]=$3
	on "$3" "rm -f /tmp/$1.*"
	id_of[$1]=$(as "$2" sbatch --parsable --no-requeue --oversubscribe -w "$3" --mem=100M --hpmmap=strict,report \
		--gres=hpmmap:128M --output="/tmp/$1.out" --wrap "exec work $1") || fail "sbatch: ${id_of[$1]}"
	within 120 on "$3" "[ -e /tmp/$1.runs ]" || fail "$1 does not run"
}
gone() { # NAME: slurmctld answers that it has it no more
	local said
	said=$(squeue -h -j "${id_of[$1]}" 2>&1) && [ -z "$said" ] || [[ $said == *'Invalid job id'* ]]
}
state() { scontrol -o show job "${id_of[$1]}" | grep -o 'JobState=[A-Z_]*'; }
ends_right() { # NAME
	within 180 gone "$1" || fail "$1 does not end"
	on "${node_of[$1]}" "cat /tmp/$1.out"
	on "${node_of[$1]}" "grep -qx right /tmp/$1.out" || fail "$1 has not the right result"
	[ "$(state "$1")" = JobState=COMPLETED ] || fail "$1: $(state "$1")"
}
finish() { # NAME
	on "${node_of[$1]}" "touch /tmp/$1.end"
	ends_right "$1"
}
# A task of alice's runs with ordinary memory, after one line that has these words.
one_line() { # WORDS
	said=$(as alice srun -w n2 --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 20) && echo it runs") || fail "srun: $said"
	echo "$said"
	[[ $(echo "$said" | grep -c hpmmap) = 1 && $said == *"$1"* && $said == *'it runs'* ]] || fail "it is not one line with '$1'"
	said=$(sinfo -h -n n2 -o %T)
	[[ -n $said && $said != drain* ]] || fail "the node is '$said'"
}

step 'slurmstepd is killed'
within 180 idle || fail "the nodes are not idle: $(sinfo -N)"
start stays bob n2
start orphan alice n2
on n2 "pkill -KILL -f '^slurmstepd: \[${id_of[orphan]}[.]'" || fail 'there is no slurmstepd'
sleep 2
on n2 'pgrep -u alice -x work >/dev/null' || fail 'what it ran is gone already'
as alice scancel "${id_of[orphan]}"
within 180 gone orphan || fail 'the job without slurmstepd does not end'
on n2 'within 30 eval "! pgrep -u alice -x work >/dev/null"' || fail 'what a slurmstepd left that was killed still runs'
on n2 'grep "hpmmap: job .* killed" /var/log/slurm/slurmd.log' || fail 'it was not ended by the epilog'
finish stays
nothing_left

step 'munged is down when a job ends'
start stays bob n2
start ends alice n2
on n2 'systemctl stop munge; touch /tmp/ends.end; within 60 eval "! pgrep -u alice -x work >/dev/null"' || fail 'the job of alice does not end'
sleep 5
on n2 'systemctl start munge'
ends_right ends
finish stays
nothing_left

step 'daemons read their configuration again, and are restarted'
start first bob n1
start second alice n2
scontrol reconfigure || fail 'reconfigure'
on n2 'systemctl restart slurmd'
systemctl restart slurmctld slurmd
within 60 answers || fail 'slurmctld does not answer'
as bob srun -w n2 --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 20)" || fail 'a job beside them'
finish first
finish second
nothing_left

step 'the pool is smaller than Slurm thinks'
start stays bob n2
on n2 'echo "0 256M" >/etc/hpmmap/pools && hpmmap pool set && pool_is 256 "made smaller"' || fail 'the pool was not made smaller'
said=$(as alice srun -w n2 --hpmmap=strict,report --gres=hpmmap:384M sh -c "$(need 300)") && fail '300 MB of 256M were had'
echo "$said"
[[ $said == *'memory exhausted'* && $said == *'hpmmap: task 0: peak'* ]] || fail 'it was not for want of memory'
as alice srun -w n2 --hpmmap --gres=hpmmap:384M --mem=500M sh -c "$(need 300)" || fail '300 MB with ordinary memory failed'
finish stays
nothing_left

step 'the pool is gone, and the module'
on n2 'hpmmap pool remove --all' || fail 'the pool does not go'
one_line 'there is no pool on these nodes'
on n2 'systemctl stop hpmmap-pools; modprobe -r hpmmap' || fail 'the module does not go'
one_line 'the module is not loaded'
on n2 'echo "0 512M" >/etc/hpmmap/pools; systemctl start hpmmap-pools; pool_is 512 "started again"' || fail 'the pool is not there again'
nothing_left

step 'a node is rebooted'
start stays bob n1
start dies alice n2
boot_id() { timeout 10 /usr/local/sbin/on n2 'cat /proc/sys/kernel/random/boot_id' 2>/dev/null; }
before=$(boot_id)
on n2 'systemctl --no-block reboot'
another() { now=$(boot_id) && [ "$now" != "$before" ]; }
within 400 another || fail 'n2 does not come back'
within 120 on n2 'systemctl -q is-active hpmmap-pools' || fail 'the service of n2 is not active'
on n2 'pool_is 512 rebooted' || fail 'the pool of n2 is not there again'
within 180 gone dies || fail 'the job of n2 does not end'
state dies
[[ $(state dies) =~ ^JobState=(FAILED|NODE_FAIL|CANCELLED)$ ]] || fail "the job of n2 is $(state dies)"
n2_is_idle() { [ "$(sinfo -h -n n2 -o %T)" = idle ]; }
within 180 n2_is_idle || fail "n2 is not idle: $(sinfo -N -R)"
as alice srun -w n2 --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 20)" || fail 'n2 runs no jobs'
finish stays
nothing_left

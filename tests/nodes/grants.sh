# What jobs are held to where nodes grant different sizes, and where slurmctld does not answer; on Debian 13
# an epilog that is in the job's cgroup.
# nodes: 2
# timeout: 1800
slurm_fails_loudly

restarted() {
	systemctl restart slurmctld
	within 60 answers || fail 'slurmctld does not answer'
	everywhere 'systemctl restart slurmd'
	within 120 idle || fail "the nodes are not idle: $(sinfo -N)"
}
held() { on "$1" 'hpmmap pool limit --list' | grep -E "job_[0-9]+ +$2 " >/dev/null; } # NODE SIZE

step 'two nodes that grant different sizes'
within 240 idle || fail "the nodes are not idle: $(sinfo -N)"
everywhere "hpmmap pool limit --default --size none
sed -i '/^NodeName=/ { s/n\[1-2\]/n1/; p; s/=n1/=n2/; s/512M/256M/ }' /etc/slurm/nodes.conf"
on n2 'echo "0 256M" >/etc/hpmmap/pools && hpmmap pool set && sed -i s/512M/256M/ /etc/slurm/gres.conf' || fail 'n2 has no smaller pool'
restarted
as alice srun -N2 -n2 --exclusive --hpmmap=strict sleep 600 >/tmp/sleeps &
sleeps=$!
within 120 held n1 512M || fail "n1 does not hold the job to all it has: $(hpmmap pool limit --list; cat /tmp/sleeps)"
within 30 held n2 256M || fail "n2 does not hold the job to all it has: $(on n2 'hpmmap pool limit --list')"
as alice scancel --user alice
wait $sleeps
nothing_left

step 'slurmctld does not answer'
# Somebody accepts what is sent to it.
on n2 "systemd-run --quiet --unit=deaf perl -MIO::Socket::INET -e 'IO::Socket::INET->new(LocalAddr => q(127.0.0.9:6817), Listen => 99) and sleep'
cp /etc/hosts /tmp/hosts; sed -i 's/^10.0.0.1 /127.0.0.9 /' /etc/hosts; within 30 systemctl -q is-active deaf"
one_line() { # WORDS: that has these, and the task runs
	local began=$SECONDS
	said=$(as alice timeout 300 srun -w n2 --hpmmap=report --gres=hpmmap:64M sh -c "$(need 40) && echo it runs")
	echo "$said, after $((SECONDS - began)) s"
	[[ $(echo "$said" | grep -c "$1") = 1 && $said == *'it runs'* ]] || fail "it is not one line with '$1'"
}
one_line 'the job is not held to what it was granted'
words=/etc/slurm/plugstack.conf.d/hpmmap.conf
on n2 "cp $words /tmp/words; sed -i 's/^optional hpmmap.so\$/& hold=all/' $words"
one_line 'the job has none of the pools here until'
on n2 "cp /tmp/words $words; cp /tmp/hosts /etc/hosts; systemctl stop deaf; pkill -KILL -x slurmstepd; true"
nothing_left 400

grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release && { echo 'done'; exit; }
step 'the epilog is in the cgroup of the job'
everywhere "echo 'PrologFlags=Contain,RunInJob' >>/etc/slurm/slurm.conf"
restarted
on n2 "cat >/usr/local/bin/work <<-'END'
	#!/usr/bin/perl
	my \$held = 'x' x (40 << 20);
	sleep;
END
chmod 755 /usr/local/bin/work"
orphan=$(as alice sbatch --parsable --no-requeue -w n2 --mem=100M --hpmmap=strict --gres=hpmmap:128M --wrap 'exec work') || fail "sbatch: $orphan"
within 120 on n2 'pgrep -u alice -x work >/dev/null && registered' || fail 'the job does not run'
on n2 "pkill -KILL -f '^slurmstepd: \[$orphan[.]batch\]'" || fail 'there is no slurmstepd'
sleep 2
on n2 'pgrep -u alice -x work >/dev/null' || fail 'what it ran is gone already'
as alice scancel "$orphan"
on n2 'within 60 eval "! pgrep -u alice -x work >/dev/null"' || fail 'what a slurmstepd left that was killed still runs'
on n2 'grep -h "hpmmap: job .* killed" /var/log/slurm/slurmd.log /var/log/syslog 2>/dev/null; journalctl --no-pager -b | grep "hpmmap: job .* killed"; true'
nothing_left 200
as alice srun -w n2 --hpmmap=strict --gres=hpmmap:64M sh -c "$(need 20)" || fail 'n2 runs no jobs'
echo 'done'

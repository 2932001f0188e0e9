# Limits of jobs if nodes grant different sizes, and if slurmctld does not answer.
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
within 30 systemctl -q is-active deaf" || fail 'nobody listens'
one_line() { # WORDS: that has these, and the task runs
	local began=$SECONDS
	on n2 "cp /etc/hosts /tmp/hosts; sed -i 's/^10.0.0.1 /127.0.0.9 /' /etc/hosts"
	said=$(as alice timeout 300 srun -w n2 --hpmmap=report --gres=hpmmap:64M sh -c "$(need 40) && echo it runs")
	echo "$said, after $((SECONDS - began)) s"
	[[ $(echo "$said" | grep -c "$1") = 1 && $said == *'it runs'* ]] || fail "it is not one line with '$1'"
	# Each slurmstepd of a step would go on trying to tell slurmctld of the end.
	on n2 'cp /tmp/hosts /etc/hosts; pkill -KILL -f "^slurmstepd: [[][0-9]"; true'
	nothing_left 300
}
one_line 'the job is not held to its grant'
words=/etc/slurm/plugstack.conf.d/hpmmap.conf
on n2 "cp $words /tmp/words; sed -i 's/^optional hpmmap.so\$/& hold=all/' $words"
one_line 'so it may hold no pool memory here'
on n2 "cp /tmp/words $words; systemctl stop deaf"
echo 'done'

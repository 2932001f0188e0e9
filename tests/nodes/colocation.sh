# The co-location study on two nodes, in an allocation of Slurm: stopped, gone on with, a node lost; nothing is left set.
# nodes: 2
# suites: bookworm
# timeout: 3600

slurm_fails_loudly
STUDY=/root/study
# There is one network, and nothing else is to be looked for.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=10.0.0.0/24

settings() {
	everywhere 'cat /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/sched_schedstats /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages $POOL; ls -d /var/tmp/hpmmap-colocation-* 2>/dev/null; ps -e -o comm= | grep -xE "make|cc1|mpirun|orted|lmp"; true'
}
unchanged() { settings | diff /tmp/settings - >/tmp/changed; }
study() { # OPTION...
	salloc --quiet -N2 --exclusive --mem=1500 hpmmap bench colocation --verbose "$@"
}
ended() { [ "$(cat $STUDY/runs.jsonl 2>/dev/null | wc -l)" -ge "$1" ] || ! kill -0 $pid; }

step 'two nodes'
within 240 idle || fail "the nodes are not idle: $(sinfo)"
everywhere 'echo madvise >/sys/kernel/mm/transparent_hugepage/enabled'
settings | tee /tmp/settings

step 'what cannot be'
refused() { # WORDS OPTION...
	local words=$1 said
	shift
	said=$(study --out /tmp/none "$@" 2>&1) && fail "it was not refused: $*"
	[[ $said == *"$words"* ]] || fail "it said: $said"
	[ ! -e /tmp/none ] || fail 'it has begun'
	echo "$said"
}
refused '--hosts: n3 is not in this allocation of Slurm, which has n1, n2' --hosts n1,n3
refused '3 nodes cannot be had of 2 hosts' --hosts n1,n2 --nodes 3
on n2 'mv /usr/bin/hpmmap /usr/bin/hpmmap.away'
refused 'n2 cannot be used: ' --hosts n1,n2
on n2 'mv /usr/bin/hpmmap.away /usr/bin/hpmmap; echo 0 >/sys/devices/system/cpu/cpu1/online'
refused 'n2 has 1 CPUs (0) in 1 nodes, n1 has 2 (0-1) in 1' --hosts n1,n2
on n2 'echo 1 >/sys/devices/system/cpu/cpu1/online'

step 'stopped'
study --hosts n1,n2 --quick --prepare --workload lammps --iterations 4 --manager thp,hpmmap --repeat 1 --memory 64M --out $STUDY >/tmp/said 2>&1 &
pid=$!
within 900 ended 2 || fail "no two runs have ended: $(cat /tmp/said)"
# The command that runs the study, not its agent.
pkill -TERM -x -P "$(pgrep -x salloc)" hpmmap || fail "there is no command: $(cat /tmp/said)"
wait $pid && fail "the study did not fail: $(cat /tmp/said)"
cat /tmp/said
grep 'interrupted after [23] of 8 runs; go on with: hpmmap bench colocation --resume' /tmp/said || fail 'the end does not say how to go on'
within 60 unchanged || fail "left changed: $(cat /tmp/changed)"
within 60 idle || fail "the nodes are $(sinfo)"

step 'a node is not to be reached for two minutes'
before=$(wc -l <$STUDY/runs.jsonl)
study --resume $STUDY >/tmp/said 2>&1 &
pid=$!
within 600 ended $((before + 1)) || fail "no run has ended: $(cat /tmp/said)"
on n2 'link=$(basename /sys/class/net/e*); systemd-run --quiet sh -c "sleep 4; networkctl down $link; sleep 120; networkctl up $link"'
began=$SECONDS
wait $pid && fail "the study did not fail: $(cat /tmp/said)"
tail -n 5 /tmp/said
echo "told after $((SECONDS - began)) s"
[ $((SECONDS - began)) -lt 180 ] || fail 'it took too long'
grep 'n2 lost: ' /tmp/said || fail 'it does not say which'
within 500 idle || fail "the nodes are $(sinfo)"
within 120 unchanged || fail "left changed: $(cat /tmp/changed)"

step 'gone on with'
study --resume $STUDY >/tmp/said 2>&1 || fail "the study: $(cat /tmp/said)"
cat /tmp/said
for words in 'lammps on 2 nodes: runtimes' 'lammps: seconds on so many nodes' 'LAMMPS (lammps) beside C' 'emulated'; do
	grep -F "$words" /tmp/said >/dev/null || fail "no '$words' in the report"
done
within 60 unchanged || fail "left changed: $(cat /tmp/changed)"
perl -MJSON::PP -0777 -ne '
my $s = decode_json($_);
$s->{ended} == 8 && !@{$s->{failures}} && !@{$s->{left_out}} or die "not all have ended well\n";
my @two = grep { $_->{nodes} == 2 } @{$s->{cells}};
@two == 4 or die "not four combinations on two nodes\n";
for my $c (@two) {
	join(" ", map { $_->{host} } @{$c->{hosts}}) eq "n1 n2" or die "not two hosts\n";
	for my $h (@{$c->{hosts}}) {
		print "$c->{manager} $c->{neighbour} ", JSON::PP->new->canonical->encode($h), "\n";
		$h->{seconds} > 0 && defined $h->{late_faults} or die "no figures\n";
		next unless $c->{manager} eq "hpmmap";
		$h->{fallbacks} == 0 && $h->{reserved_peak_bytes} > 20 << 20 or die "not of the pools\n";
	}
}
' $STUDY/summary.json || fail 'the summary is not right'
for file in report.html lammps-1.svg lammps-2.svg lammps-nodes.svg; do
	[ -s $STUDY/$file ] || fail "there is no $file"
done
grep -c . $STUDY/runs.jsonl
dmesg | grep -E 'hpmmap: .*(BUG|WARN)' && fail 'the module complains'
echo 'done'

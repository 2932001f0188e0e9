# The co-location study on two nodes, in an allocation of Slurm: stopped, continued, a node lost; no setting is left.
# nodes: 2
# suites: bookworm
# files: study.lib
# timeout: 3600

slurm_fails_loudly
. /srv/study.lib

study() { # OPTION...
	salloc --quiet -N2 --exclusive --mem=1500 hpmmap bench colocation --verbose "$@"
}
ended() { [ "$(cat $STUDY/runs.jsonl 2>/dev/null | wc -l)" -ge "$1" ] || ! kill -0 $pid; }

step 'two nodes'
within 240 idle || fail "the nodes are not idle: $(sinfo)"
remember_settings

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
on n2 'mv /usr/bin/hpmmap-bench /usr/bin/hpmmap-bench.away'
refused 'n2 cannot be used: ' --hosts n1,n2
on n2 'mv /usr/bin/hpmmap-bench.away /usr/bin/hpmmap-bench; echo 0 >/sys/devices/system/cpu/cpu1/online'
refused 'n2 has 1 CPUs (0) in 1 nodes, n1 has 2 (0-1) in 1' --hosts n1,n2
on n2 'echo 1 >/sys/devices/system/cpu/cpu1/online'

step 'stopped'
study --hosts n1,n2 --quick --prepare --workload lammps --iterations 4 --manager thp,hpmmap --repeat 1 --memory 64M --out $STUDY >/tmp/said 2>&1 &
pid=$!
within 900 ended 2 || fail "no two runs have ended: $(cat /tmp/said)"
# The command that runs the study, not its agent.
pkill -TERM -x -P "$(pgrep -x salloc)" hpmmap-bench || fail "there is no command: $(cat /tmp/said)"
wait $pid && fail "the study did not fail: $(cat /tmp/said)"
cat /tmp/said
grep 'interrupted after [23] of 8 runs; go on with: hpmmap bench colocation --resume' /tmp/said || fail 'the end does not say how to go on'
all_set_back
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
all_set_back 120

step 'gone on with'
study --resume $STUDY >/tmp/said 2>&1 || fail "the study: $(cat /tmp/said)"
cat /tmp/said
has_words /tmp/said 'lammps on 2 nodes: runtimes' 'lammps: seconds on so many nodes' 'LAMMPS (lammps) beside C' 'emulated'
all_set_back
summary_is 8 2 4
for file in report.html lammps-1.svg lammps-2.svg lammps-nodes.svg; do
	[ -s $STUDY/$file ] || fail "there is no $file"
done
grep -c . $STUDY/runs.jsonl
dmesg | grep -E 'hpmmap: .*(BUG|WARN)' && fail 'the module complains'
echo 'done'

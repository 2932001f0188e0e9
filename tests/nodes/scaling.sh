# The co-location study on 1, 2 and 4 nodes without Slurm: hosts are reached by ssh. Then one of them is unreachable.
# nodes: 4
# suites: bookworm
# files: study.lib
# memory: 2560M
# timeout: 5400

. /srv/study.lib
export HOME=/root
HOSTS=n1,n2,n3,n4

study() { hpmmap bench colocation --verbose "$@"; }

step 'four nodes that know each other'
within 240 everywhere true || fail 'not all nodes are there'
systemctl stop slurmctld
everywhere 'systemctl stop slurmd'
install -d -m 700 /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 || fail 'ssh-keygen'
everywhere "mkdir -p -m 700 /root/.ssh; echo '$(cat /root/.ssh/id_ed25519.pub)' >/root/.ssh/authorized_keys"
for n in 2 3 4; do
	echo "n$n $(on n$n 'within 120 systemctl -q is-active ssh; cat /etc/ssh/ssh_host_ed25519_key.pub')"
done >/root/.ssh/known_hosts
remember_settings

step 'a study'
study --hosts $HOSTS --quick --prepare --workload lammps,minicg --iterations 3 --manager thp,hpmmap --repeat 1 --memory 64M --out $STUDY >/tmp/said 2>&1 ||
	fail "the study: $(cat /tmp/said)"
cat /tmp/said
has_words /tmp/said 'lammps on 4 nodes: runtimes' 'minicg on 4 nodes: runtimes' 'lammps: seconds on so many nodes' 'LAMMPS (lammps) beside C'
all_set_back
summary_is 24 4 8
# For bench/study, on one line.
echo "summary $(tr -d '\n' <$STUDY/summary.json)"

step 'a host that lets nobody in'
on n3 'mv /root/.ssh/authorized_keys /root/.ssh/away'
said=$(study --hosts $HOSTS --quick --out /tmp/none 2>&1) && fail 'it was not refused'
echo "$said"
[[ $said == *'n3 cannot be used: '*'Permission denied'* ]] || fail 'it does not say why'
[ ! -e /tmp/none ] || fail 'it has begun'
all_set_back
dmesg | grep -E 'hpmmap: .*(BUG|WARN)' && fail 'the module complains'
echo 'done'

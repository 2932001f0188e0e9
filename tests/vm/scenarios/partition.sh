#!/bin/bash
# Partitions: what leaves their CPUs, that all comes back as it was, whoever is killed when; users, ranks, and what
# is refused. 12 rounds with kills; 40 in the longer runs, and with HPMMAP_TEST_SCALE=5 200.
# scales: yes
# machine: partition
# pool: 512M
# takes: 100
# timeout: 900
# paths: crates/hpmmap/src/partition/* crates/hpmmap/src/verbs/partition.rs tests/vm/guest/host_state.py tests/vm/guest/partition_kills.py
. "$(dirname "$0")/../guest/lib.sh"

guest=$HPMMAP_ROOT/tests/vm/guest
export PYTHONDONTWRITEBYTECODE=1
grep -qw cpuset /sys/fs/cgroup/cgroup.controllers || fail "this guest has no cpusets"
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
cpus_of() { sed -n 's/^Cpus_allowed_list:\t//p' "/proc/$1/status"; }
mask_of() { python3 -c 'import sys; print(int(open(sys.argv[1]).read().replace(",", ""), 16))' "$1"; }

# Tasks that somebody has bound, and the module's thread.
sleep 1000 & bound=$!
sleep 1000 & elsewhere=$!
taskset -p -c 0,2 $bound >/dev/null
taskset -p -c 3 $elsewhere >/dev/null
python3 "$guest/host_state.py" /tmp/before

expect_error 2 'leaves no CPU' hpmmap partition create all --cpus 0-3
expect_error 2 'CPUs 9 are not online' hpmmap partition create far --cpus 2,9
expect_error 2 'is no name' hpmmap partition create a-b --cpus 2
expect_error 2 'there is no partition' hpmmap partition show none
expect_error 125 'there is no partition' hpmmap run --partition none -- true
expect_error 1 'only root' as_member hpmmap partition create a --cpus 2

hpmmap partition create quiet --cpus 2-3
dir=/sys/fs/cgroup/hpmmap_quiet
[ "$(cat $dir/cpuset.cpus.partition)" = isolated ] || fail "the partition is $(cat $dir/cpuset.cpus.partition)"
[ "$(cat /sys/fs/cgroup/cpuset.cpus.effective)" = 0-1 ] || fail "everything else has CPUs $(cat /sys/fs/cgroup/cpuset.cpus.effective)"
[ "$(cpus_of $bound)" = 0 ] || fail "a task that was bound to 0,2 has $(cpus_of $bound)"
[ "$(cpus_of "$(pgrep -x hpmmap_zero/0)")" = 0-1 ] || fail "the module's thread has CPUs $(cpus_of "$(pgrep -x hpmmap_zero/0)")"
[ "$(mask_of /proc/irq/default_smp_affinity)" = 3 ] || fail "new interrupts come to $(cat /proc/irq/default_smp_affinity)"
[ "$(mask_of /sys/devices/virtual/workqueue/cpumask)" = 3 ] || fail "workqueues have $(cat /sys/devices/virtual/workqueue/cpumask)"
[ "$(cat /proc/sys/kernel/watchdog_cpumask)" = 0-1 ] || fail "watchdogs are on $(cat /proc/sys/kernel/watchdog_cpumask)"
for server in /sys/kernel/debug/sched/fair_server/cpu[23]; do
	[ ! -e "$server" ] || [ "$(cat "$server/runtime")" = 0 ] || fail "the fair server of $server runs"
done
hpmmap partition show quiet --json | python3 -c '
import json, sys
shown = json.load(sys.stdin)
print(shown)
assert shown["schema"] == 1 and shown["state"] == "isolated" and shown["cpus"] == "2-3", shown
assert not shown["unmet"] and shown["processes"] == 0, shown
assert {one["option"].split("=")[0] for one in shown["missing"]} == {"nohz_full", "rcu_nocbs", "isolcpus"}, shown
for one in shown["interrupts"]:
    # What stays is what the kernel does not let go elsewhere.
    try:
        open("/proc/irq/%d/smp_affinity_list" % one["number"], "w").write("0-1")
    except OSError:
        continue
    raise AssertionError(one)'
hpmmap doctor | grep -A1 "partition 'quiet': without nohz_full=2-3" || fail "doctor does not tell: $(hpmmap doctor)"

# A program there, and what it starts.
got=$(hpmmap run --partition quiet -- bash -c 'cat /proc/self/cgroup; taskset -c -p $$; echo $OMP_PLACES')
[[ $got == *'0::/hpmmap_quiet/tasks'*'list: 2,3'*threads ]] || [[ $got == *'0::/hpmmap_quiet/tasks'*'list: 2-3'*threads ]] || fail "a program in the partition has $got"
[ "$(taskset -c -p $$ | sed 's/.*: //')" = 0,1 ] || [ "$(taskset -c -p $$ | sed 's/.*: //')" = 0-1 ] || fail "this shell has CPUs $(taskset -c -p $$)"
expect_error 1 'CPUs 3 belong to partition .quiet.' hpmmap partition create other --cpus 1,3
expect_error 1 "there is a partition 'quiet' already" hpmmap partition create quiet --cpus 1
expect_error 125 'only root may; .hpmmap partition create --user' as_member hpmmap run --partition quiet -- true

# A pool's thread that comes later.
hpmmap pool remove --all >/dev/null
hpmmap pool add --size 512M --leave 256M >/dev/null
[ "$(cpus_of "$(pgrep -x hpmmap_zero/0)")" = 0-1 ] || fail "the thread of a new pool has CPUs $(cpus_of "$(pgrep -x hpmmap_zero/0)")"

# Two, in both orders.
hpmmap partition create second --cpus 1 --balance >/dev/null
hpmmap partition list
[ "$(cat /sys/fs/cgroup/hpmmap_second/cpuset.cpus.partition)" = root ] || fail "a balanced partition is $(cat /sys/fs/cgroup/hpmmap_second/cpuset.cpus.partition)"
hpmmap partition delete quiet
[ "$(mask_of /sys/devices/virtual/workqueue/cpumask)" = 13 ] || fail "beside CPU 1 workqueues have $(cat /sys/devices/virtual/workqueue/cpumask)"
hpmmap partition create quiet --cpus 2-3 >/dev/null
hpmmap partition delete second
[ "$(cat /proc/sys/kernel/watchdog_cpumask)" = 0-1 ] || fail "beside CPUs 2-3 watchdogs are on $(cat /proc/sys/kernel/watchdog_cpumask)"

# A job holds it.
hpmmap run --partition quiet -- sleep 1000 & job=$!
in_partition() { grep -q . $dir/tasks/cgroup.procs; }
within 20 in_partition || fail "the job does not come"
expect_error 1 'has 1 process .*use --kill' hpmmap partition delete quiet
hpmmap partition delete quiet --kill
wait $job && fail "the job was not killed"
[ "$(cpus_of $bound)" = 0,2 ] || fail "the bound task has CPUs $(cpus_of $bound)"
[ "$(cpus_of $elsewhere)" = 3 ] || fail "the task of CPU 3 has CPUs $(cpus_of $elsewhere)"
python3 "$guest/host_state.py" /tmp/after /tmp/before || fail "not everything is as before"

# Users: the kernel lets only root move a process between branches of the tree, so a service does.
hpmmap partition create users --cpus 2-3 --user $USER_ID >/dev/null
expect_error 125 'hpmmap-partition.socket' as_member hpmmap run --partition users -- true
systemd-socket-activate --accept --inetd -l /run/hpmmap/partition.socket "$(command -v hpmmap)" partition serve 2>/tmp/serving & service=$!
within 10 test -S /run/hpmmap/partition.socket || fail "there is no socket"
chmod 666 /run/hpmmap/partition.socket
dir=/sys/fs/cgroup/hpmmap_users
got=$(as_member hpmmap run --partition users -- cat /proc/self/cgroup) || fail "a member does not get in: $(cat /tmp/serving)"
[[ $got == *'0::/hpmmap_users/tasks'* ]] || fail "a member is in $got"
[ "$(stat -c %u $dir/cgroup.procs $dir/cpuset.cpus | xargs)" = "$USER_ID 0" ] || fail "the cgroup belongs to $(stat -c %u $dir/cgroup.procs $dir/cpuset.cpus)"
MEMBER_ID=2002 expect_error 125 'only .* and root may' as_member hpmmap run --partition users -- true
# Not by asking the service oneself.
said=$(MEMBER_ID=2002 as_member python3 -c '
import socket
asked = socket.socket(socket.AF_UNIX)
asked.connect("/run/hpmmap/partition.socket")
asked.send(b"users\n")
print(asked.recv(500).decode())
print(open("/proc/self/cgroup").read())')
[[ $said == *'no permission to run in partition'* ]] && [[ $said != *hpmmap_users* ]] || fail "another user asks the service, which says: $said"
# One core each.
for rank in 0 1; do
	got=$(OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=2 as_member hpmmap run --partition users --per-core -- \
		sh -c 'cat /proc/self/cgroup; taskset -p -c 0-3 $$ >/dev/null; grep Cpus_allowed_list /proc/$$/status')
	[[ $got == *"0::/hpmmap_users/rank_$rank"*$'\t'"$((2 + rank))" ]] || fail "rank $rank is in $got"
done
expect_error 125 'the rank on this host is not known' as_member hpmmap run --partition users --per-core -- true
kill $service
wait $service || true
# The same of an MPI library, which binds its ranks before.
got=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi -n 2 hpmmap run --partition users --per-core -- \
	sh -c 'echo $(tail -n 1 /proc/self/cgroup; grep Cpus_allowed_list /proc/$$/status)' | sort)
[ "$got" = "0::/hpmmap_users/rank_0 Cpus_allowed_list: 2
0::/hpmmap_users/rank_1 Cpus_allowed_list: 3" ] || fail "ranks of MPI are in $got"
rm /run/hpmmap/partition.socket
hpmmap partition delete users

# The kernel's command line, by a file of its own.
options=/etc/default/grub.d/hpmmap-partition.cfg
mkdir -p /tmp/bin
printf '#!/bin/sh\ncp %s /tmp/grub 2>/dev/null || : >/tmp/grub\n' $options >/tmp/bin/update-grub
chmod +x /tmp/bin/update-grub
PATH=/tmp/bin:$PATH hpmmap partition reserve --cpus 2-3
grep ' nohz_full=2-3 rcu_nocbs=2-3 isolcpus=managed_irq,2-3"$' /tmp/grub >/dev/null || fail "update-grub has found: $(cat /tmp/grub)"
PATH=/tmp/bin:$PATH hpmmap partition reserve --undo
[ ! -e $options ] && [ ! -s /tmp/grub ] || fail "the options for the kernel stay"
echo 'exit 1' >/tmp/bin/update-grub
PATH=/tmp/bin:$PATH expect_error 1 "put 'nohz_full=2-3 .* on the kernel's command line yourself" hpmmap partition reserve --cpus 2-3
[ ! -e $options ] || fail "without update-grub the options stay"

# Below another cgroup, as that of a batch job.
mkdir -p /sys/fs/cgroup/batch/job_1
case $(uname -r) in
6.1.*) expect_error 1 'needs Linux 6.12' hpmmap partition create remote --cpus 3 --cgroup /batch/job_1 ;;
*)
	hpmmap partition create remote --cpus 3 --cgroup /batch/job_1 >/dev/null
	[ "$(cat /sys/fs/cgroup/batch/job_1/hpmmap_remote/cpuset.cpus.partition)" = isolated ] || fail "no remote partition"
	hpmmap partition delete remote
	[ ! -e /sys/fs/cgroup/batch/cpuset.cpus ] || fail "the cgroup above keeps the controller"
	;;
esac
rmdir /sys/fs/cgroup/batch/job_1 /sys/fs/cgroup/batch
python3 "$guest/host_state.py" /tmp/after /tmp/before || fail "not everything is as before"

rounds=12
! longer || rounds=40
python3 "$guest/partition_kills.py" $((rounds * ${HPMMAP_TEST_SCALE:-1})) "${HPMMAP_SEED:-1}" /tmp/before
kill $bound $elsewhere
wait $bound $elsewhere || true

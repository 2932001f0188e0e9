#!/bin/bash
# A guest knows how its host maps its RAM, and the host gives it uninterrupted time, for a while: hpmmap vm agent,
# with an inner guest on memory of hpmmapfs.
# machine: vm
# pool: 512M
# timeout: 600
# takes: 150
# tier: all  an emulated machine in an emulated machine is slow; cargo test asks the same of a simulated one
# paths: crates/hpmmap/src/symbiosis/* crates/hpmmap/src/cli/vm.rs lib/host.c lib/hpmmap_host.h tests/vm/programs/host_page.c
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

RAM=/tmp/vm-ram
PAGE=/dev/shm/vm.page
SOCKET=/tmp/vm.qmp
INNER_OUTER=yes
program=$HPMMAP_ROOT/build/tests-vm/host_page
inner_setup
mkdir -p $RAM
mount -t hpmmap -o size=384M none $RAM
truncate -s 1M $PAGE
hpmmap partition create vm --cpus 3
INNER_UNDER=(hpmmap run --partition vm --)
inner_start vm -smp 1 -m 256M -machine memory-backend=ram \
	-object "memory-backend-file,id=ram,mem-path=$RAM/ram,size=256M,share=on,prealloc=on,align=2M" \
	-object "memory-backend-file,id=page,mem-path=$PAGE,size=1M,share=on" -device ivshmem-plain,memdev=page \
	-qmp "unix:$SOCKET,server=on,wait=off"
inner_up vm
pid=$(cat $INNER/vm/pid)
in_guest() { inner vm "chroot /outer $*"; }

# Without an agent both run unchanged.
in_guest hpmmap doctor >/tmp/without || true
! grep -qE '^(ok|warn) +host ' /tmp/without || fail "there is a host without an agent: $(cat /tmp/without)"
expect_error 2 'no such process' hpmmap vm agent --page $PAGE --pid 999999 --qmp $SOCKET
expect_error 1 'does not answer' hpmmap vm agent --page $PAGE --pid "$pid" --qmp /tmp/none
expect_error 1 'at least 4096 bytes' hpmmap vm agent --page /dev/null --pid "$pid" --qmp $SOCKET

agent_start() {
	hpmmap vm agent --page $PAGE --pid "$pid" --qmp $SOCKET --deadline 5000 >/tmp/agent 2>&1 &
	agent=$!
	within 30 grep -q 'critical sections: up to 5000 ms' /tmp/agent || fail "the agent: $(cat /tmp/agent)"
}
agent_start
in_guest hpmmap doctor >/tmp/with || true
cat /tmp/agent
grep -E '^ok +host ' /tmp/with || fail "the guest knows no host: $(cat /tmp/with)"
grep -q '256M by entries of 2M on node 0.*vCPUs bound 1 of 1' /tmp/with || fail "the host tells something else"

vcpu=
for task in /proc/"$pid"/task/*; do
	[[ $(cat "$task/comm") != CPU* ]] || vcpu=${task##*/}
done
[ -n "$vcpu" ] || fail "there is no thread of a vCPU"
is_held() { [[ $(chrt -p "$vcpu") == *'SCHED_FIFO|SCHED_RESET_ON_FORK'* ]]; }
is_fair() { [[ $(chrt -p "$vcpu") == *SCHED_OTHER* ]]; }
latency=/sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us
is_awake() { [ "$(cat $latency)" = 1 ]; }
may_sleep() { [ "$(cat $latency)" = 0 ]; }

# A section that lasts is honoured until the deadline, and not again.
inner vm "chroot /outer $program 30 >/tmp/inside 2>&1 &"
within 30 is_held || fail "the vCPU is not held: $(inner vm 'cat /tmp/inside')"
within 30 is_fair || fail "the vCPU is held beyond the deadline"
within 10 is_awake || fail "the latency of the CPU is $(cat $latency)"
sleep 2
is_fair || fail "the same section is honoured twice"

# An agent that is killed leaves it to the next.
within 90 may_sleep || fail "the latency of the CPU does not come back"
inner vm "chroot /outer $program 30 >/tmp/inside 2>&1 &"
within 30 is_held
kill -9 $agent
wait $agent || true
is_held || fail "the vCPU was not held when the agent was killed"
agent_start
is_fair || fail "the next agent leaves the vCPU as it is"

# All comes back with the agent's end, and it ends with the VM.
kill $agent
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
is_fair || fail "the vCPU is held without an agent"
may_sleep || fail "the CPU is kept awake without an agent"
in_guest hpmmap doctor >/tmp/without || true
grep -q "host's agent does not run" /tmp/without || fail "the guest does not know that the agent has ended"
agent_start
inner_off vm
within 10 grep -q 'the VM has ended' /tmp/agent || fail "the agent goes on without the VM"
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
hpmmap partition delete vm
umount $RAM
rm -f $PAGE $SOCKET
expect_pool_free

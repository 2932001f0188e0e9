#!/bin/bash
# A host gives the vCPUs of a virtual machine uninterrupted time, for a while: hpmmap vm agent, with a machine that is
# paused, and the program of the guest on the host's side of the page. vm_guest has both sides.
# machine: partition
# pool: 512M
# timeout: 400
# takes: 70
# tier: all  cargo test asks the same of a simulated machine
# paths: crates/hpmmap/src/symbiosis/* crates/hpmmap/src/cli/vm.rs lib/host.c lib/hpmmap_host.h tests/vm/programs/host_page.c tests/vm/guest/inner.sh
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

RAM=/tmp/vm-ram
PAGE=/dev/shm/vm.page
SOCKET=/tmp/vm.qmp
inner_setup firmware
inner_ram $RAM size=384M
truncate -s 1M $PAGE
hpmmap partition create vm --cpus 3
INNER_UNDER=(hpmmap run --partition vm --)
inner_start vm -name guest,debug-threads=on -S -smp 1 -m 256M -machine memory-backend=ram \
	-object "memory-backend-file,id=ram,mem-path=$RAM/ram,size=256M,share=on,prealloc=on" \
	-object "memory-backend-file,id=page,mem-path=$PAGE,size=1M,share=on" -device ivshmem-plain,memdev=page \
	-qmp "unix:$SOCKET,server=on,wait=off"
within 60 test -S $SOCKET || inner_lost vm "it does not start"
pid=$(cat $INNER/vm/pid)

expect_error 2 'no such process' hpmmap vm agent --page $PAGE --pid 999999 --qmp $SOCKET
expect_error 1 'does not answer' hpmmap vm agent --page $PAGE --pid "$pid" --qmp /tmp/none
expect_error 1 'at least 4096 bytes' hpmmap vm agent --page /dev/null --pid "$pid" --qmp $SOCKET

agent_start() {
	hpmmap vm agent --page $PAGE --pid "$pid" --qmp $SOCKET --deadline 5000 >/tmp/agent 2>&1 &
	agent=$!
	within 30 grep -q 'timer sensitivity: honoured' /tmp/agent || fail "the agent: $(cat /tmp/agent)"
}
agent_start
cat /tmp/agent
grep -q '25[56]M of RAM, 1 vCPU$' /tmp/agent && grep -q 'critical sections: up to 5000 ms' /tmp/agent || fail "the agent does not see the machine"

# in_guest SECONDS: the device of the guest is the page's file.
in_guest() {
	unshare --mount bash -euc '
		dir=/sys/bus/pci/devices
		mount -t tmpfs none $dir
		mkdir $dir/0000:00:01.0
		echo pci:v00001AF4d00001110sv00001AF4sd00001100bc05sc00i00 >$dir/0000:00:01.0/modalias
		ln -s "$1" $dir/0000:00:01.0/resource2
		exec "$2" "$3"' in_guest $PAGE "$HPMMAP_ROOT/build/tests-vm/host_page" "$1" >/tmp/inside 2>&1 &
	inside=$!
}
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
in_guest 15
within 10 is_held || fail "the vCPU is not held: $(cat /tmp/inside)"
within 10 is_awake || fail "the latency of the CPU is $(cat $latency)"
within 10 is_fair || fail "the vCPU is held beyond the deadline"
kill -0 $inside || fail "the section has ended: $(cat /tmp/inside)"
sleep 2
is_fair || fail "the same section is honoured twice"
wait $inside || fail "the program fails: $(cat /tmp/inside)"
within 10 may_sleep || fail "the latency of the CPU does not come back"

# A section that ends is honoured until its end.
in_guest 1
within 10 is_held || fail "the vCPU is not held: $(cat /tmp/inside)"
wait $inside
within 1 is_fair || fail "the vCPU is held after the section"

# An agent that is killed leaves it to the next.
in_guest 8
within 10 is_held || fail "the vCPU is not held: $(cat /tmp/inside)"
within 10 is_awake || fail "the latency of the CPU is $(cat $latency)"
kill -9 $agent
wait $agent || true
is_held && is_awake || fail "the vCPU was not held when the agent was killed"
wait $inside
agent_start
is_fair || fail "the next agent leaves the vCPU as it is"
may_sleep || fail "the next agent leaves the CPU awake"

# All comes back with the agent's end, and it ends with the VM.
in_guest 30
within 10 is_held || fail "the vCPU is not held: $(cat /tmp/inside)"
within 10 is_awake || fail "the latency of the CPU is $(cat $latency)"
kill $agent
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
is_fair || fail "the vCPU is held without an agent"
may_sleep || fail "the CPU is kept awake without an agent"
kill $inside
wait $inside || true
agent_start
inner_qmp vm quit >/dev/null
within 10 grep -q 'the VM has ended' /tmp/agent || fail "the agent goes on without the VM"
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
within 10 inner_gone vm || inner_lost vm "it does not quit"
hpmmap partition delete vm
umount $RAM
rm -f $PAGE $SOCKET
expect_pool_free

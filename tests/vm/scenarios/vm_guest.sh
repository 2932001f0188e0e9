#!/bin/bash
# A kernel in a virtual machine on pool memory: its nested entries, exits and steal time by 'hpmmap vm status', and by
# the page that it shares with its host: it knows how its RAM is mapped, and the host sees its critical section.
# machine: vm
# pool: 512M
# timeout: 400
# takes: 200
# tier: all  an emulated machine in an emulated machine is slow
# paths: crates/hpmmap/src/symbiosis/* crates/hpmmap/src/vm/* crates/hpmmap/src/verbs/vm.rs lib/host.c lib/hpmmap_host.h tests/vm/programs/host_page.c tests/vm/guest/inner.sh tests/vm/guest/inner_image.sh tests/vm/guest/inner_init
. "$(dirname "$0")/../guest/lib.sh"
. "$(dirname "$0")/../guest/inner.sh"

RAM=/tmp/vm-ram
PAGE=/dev/shm/vm.page
SOCKET=/tmp/vm.qmp
INNER_OUTER=yes
inner_setup
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
inner_ram $RAM size=384M
truncate -s 1M $PAGE
inner_start vm -name guest,debug-threads=on -m 256M -machine memory-backend=ram \
	-object "memory-backend-file,id=ram,mem-path=$RAM/ram,size=256M,share=on,prealloc=on" \
	-object "memory-backend-file,id=page,mem-path=$PAGE,size=1M,share=on" -device ivshmem-plain,memdev=page \
	-qmp "unix:$SOCKET,server=on,wait=off"
inner_up vm
pid=$(cat $INNER/vm/pid)
in_guest() { inner vm "chroot /outer $HPMMAP_ROOT/build/$*"; }

# RAM that is written to, beside a program of the host on the same CPU.
inner vm 'dd if=/dev/zero of=/tmp/x bs=1M count=64 2>/dev/null; yes >/dev/null & echo $! >/tmp/busy'
yes >/dev/null &
busy=$!
hpmmap vm status "$pid" --seconds 1
hpmmap vm status "$pid" --seconds 1 --json >/tmp/status.json
kill $busy
wait $busy || true
inner vm 'kill $(cat /tmp/busy); rm /tmp/x'
python3 - "$pid" <<'PYTHON'
import json
import sys

report = json.load(open("/tmp/status.json"))
(vm,) = report["vms"]
assert vm["pid"] == int(sys.argv[1]) and not report["unknown"], report
nested = vm["nested"]
assert nested["2m_bytes"] >= 64 << 20 and nested["4k_bytes"] < 8 << 20 and nested["1g_bytes"] == 0, nested
(vcpu,) = vm["vcpus"]
# Each has about half of the CPU.
assert all(vcpu[time] > 0.2 * report["seconds"] * 10**9 for time in ("run_ns", "steal_ns")), vcpu
exits = {one["reason"]: one["count"] for one in vm["exits"]}
assert exits["interrupt"] > 0 and not any(reason.startswith("0x") for reason in exits), exits
assert sum(one["count"] for one in vm["interrupts"]) > 0, vm
PYTHON

# Without an agent both run unchanged.
in_guest hpmmap doctor >/tmp/without || true
! grep -qE '^(ok|warn) +host ' /tmp/without || fail "there is a host without an agent: $(cat /tmp/without)"
hpmmap vm agent --page $PAGE --pid "$pid" --qmp $SOCKET >/tmp/agent 2>&1 &
agent=$!
within 60 grep -q 'critical sections: not honoured: a vCPU needs a CPU of a partition' /tmp/agent || fail "the agent: $(cat /tmp/agent)"
in_guest hpmmap doctor >/tmp/with || true
cat /tmp/agent
grep -E '^ok +host ' /tmp/with || fail "the guest knows no host: $(cat /tmp/with)"
grep -q '255M by entries of 2M on node 0.*vCPUs bound 1 of 1' /tmp/with || fail "the host tells something else"

# asked: depth and number of the sections of vCPU 0, and whether a program is sensitive to timers.
asked() {
	python3 - $PAGE <<'PYTHON'
import struct
import sys

part = open(sys.argv[1], "rb").read(4096)[2048:]
magic, version, timer = struct.unpack_from("<8sII", part)
(word,) = struct.unpack_from("<I", part, 64)
print(magic.decode(), version, word & 0xffff, word >> 16, timer)
PYTHON
}
inner vm "chroot /outer $HPMMAP_ROOT/build/tests-vm/host_page 20 >/tmp/inside 2>&1 &"
is_asked() { [ "$(asked)" = "HPMMAPGU 1 $*" ]; }
within 60 is_asked 1 2 1 || fail "the host sees no section: $(asked); $(inner vm 'cat /tmp/inside')"
within 90 is_asked 0 2 0 || fail "the section does not end: $(asked)"

kill $agent
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
in_guest hpmmap doctor >/tmp/without || true
grep "host's agent does not run" /tmp/without || fail "the guest does not know that the agent has ended"
hpmmap vm agent --page $PAGE --pid "$pid" --qmp $SOCKET >/tmp/agent 2>&1 &
agent=$!
within 60 grep -q 'timer sensitivity' /tmp/agent || fail "the agent: $(cat /tmp/agent)"
inner_off vm
within 30 grep -q 'the VM has ended' /tmp/agent || fail "the agent goes on without the VM"
wait $agent || fail "the agent fails: $(cat /tmp/agent)"
umount $RAM
rm -f $PAGE $SOCKET
expect_pool_free

#!/bin/bash
# A virtual machine on pool memory does the same work as the host, under nested and under shadow paging; KVM's module
# is as it was at the end, and is not unloaded under a virtual machine. Figures are not judged.
# machine: icount
# pool: 512M
# takes: 110
# timeout: 600
# tier: all  its figures are not judged, and the unit tests read what KVM says
# paths: bench/vm.c crates/hpmmap-bench/
. "$(dirname "$0")/../guest/lib.sh"

modprobe -q kvm_amd || skip "this kernel has no kvm_amd"
[ -e /dev/kvm ] || skip "there is no /dev/kvm"
command -v qemu-system-x86_64 >/dev/null || skip "there is no qemu-system-x86_64"
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
npt=/sys/module/kvm_amd/parameters/npt

expect_error 1 'no kernel /none for the virtual machine' hpmmap bench vm --kernel /none
expect_error 1 '/none: No such file .*qemu-system-x86' hpmmap bench vm --qemu /none
expect_error 2 'hpmmap-dirty is not for this benchmark' hpmmap bench vm --method hpmmap-dirty
expect_error 1 'nested paging, 4k memory: it ended with exit status: 0' \
	hpmmap bench vm --quick --paging nested --method 4k --workload lu --qemu true
[ ! -e /sys/kernel/tracing/instances/hpmmap-bench-vm ] || fail "its tracing instance stays"

# A process that has /dev/kvm open may have a virtual machine: the module stays.
sleep 600 3<>/dev/kvm &
user=$!
hpmmap bench vm --quick --prepare --paging shadow --method 4k --workload lu >/tmp/refused.txt
grep -q '^shadow: kvm_amd is in use (refcnt 1): paging cannot change' /tmp/refused.txt || fail "$(cat /tmp/refused.txt)"
kill $user
wait $user || true

hpmmap bench vm --quick --prepare --method hpmmap --workload random,switches --pages 4k --out /tmp/vm | tee /tmp/vm.txt
[ "$(cat $npt)" = Y ] || fail "npt is $(cat $npt) at the end"
[ ! -e /sys/kernel/tracing/instances/hpmmap-bench-vm ] || fail "its tracing instance stays"
! pgrep -x qemu-system-x86 || fail "a machine goes on"
! grep -q hpmmap-bench-vm /proc/mounts || fail "its file system is mounted"
python3 - <<'PYTHON'
import json

record = json.load(open("/tmp/vm/vm.json"))
assert record["benchmark"] == "vm" and record["schema"] == 1 and not record["left_out"], record
host = {one["work"]["workload"]: one["figures"] for one in record["native"]}
found = {}
for one in record["results"]:
    found[one["paging"], one["work"]["workload"]] = one
    assert one["method"] == "hpmmap" and one["kvm_table_bytes"] > 0 and one["ratio"] > 0, one
    assert one["figures"]["result"] == host[one["work"]["workload"]]["result"], one
assert set(found) == {(paging, work) for paging in ("nested", "shadow") for work in ("random", "switches")}
nested, shadow = found["nested", "switches"], found["shadow", "switches"]
# All but what is beside the first megabyte is mapped by blocks.
assert nested["entries"]["of_2m"] > 0 and nested["entries"]["of_4k"] < 600, nested
# Each switch is an exit under shadow paging only.
assert nested["exits"].get("cr3", 0) == 0 and shadow["exits"]["cr3"] >= 2 * shadow["work"]["rounds"], (nested, shadow)
assert len(record["recommendations"]) == 2, record["recommendations"]
PYTHON
expect_pool_free

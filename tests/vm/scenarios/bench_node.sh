#!/bin/bash
# `hpmmap bench node` goes its whole way without counters of a CPU. What it changes is put back at the end and after
# SIGTERM, and after SIGKILL by the next one. Figures are not judged.
# pool: 0
# takes: 58
# timeout: 240
# tier: all  the figures are not judged, and the unit tests have the journal of what is put back
# paths: bench/alloc/ bench/noise/ bench/apps/ crates/hpmmap-bench/
. "$(dirname "$0")/../guest/lib.sh"

thp=/sys/kernel/mm/transparent_hugepage/enabled
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
state() {
	cat $thp $huge
	pool_bytes total_bytes
	offline_blocks
	ls -A /run/hpmmap/bench
}
node() {
	exec hpmmap bench node --prepare --memory 64M "$@"
}

expect_error 2 'may not use CPU 99: choose from 0-1' hpmmap bench node --cpus 0,99 --out /tmp/none
expect_error 2 '64M is the least' hpmmap bench node --memory 1M --out /tmp/none
expect_error 1 'more than the .* that are free: ask for less' hpmmap bench node --memory 1T --out /tmp/none
expect_error 2 'hpmmap-dirty is not for this benchmark' hpmmap bench node --method hpmmap-dirty --out /tmp/none
[ ! -e /tmp/none ] || fail "a refused benchmark leaves a directory"

mkdir -p /run/hpmmap/bench
echo never >$thp
echo 3 >$huge
state >/tmp/before

# Nothing may be left of the first. A second one that changes settings has to wait.
(node -v --minutes 5 --method hpmmap,hugetlb --out /tmp/killed) >/dev/null 2>/tmp/killed.log &
killed=$!
within 60 grep -q ' of .*: triad' /tmp/killed.log || fail "nothing is measured: $(cat /tmp/killed.log)"
expect_error 1 "process $killed runs a benchmark that has changed settings" node --out /tmp/none
kill -KILL $killed
wait $killed || true
! state | diff -q /tmp/before - >/dev/null || fail "nothing is left of a killed benchmark"

# This one restores that first, and then what it changed itself.
(node -v --minutes 5 --method hpmmap,hugetlb --out /tmp/ended) >/tmp/ended.txt 2>/tmp/ended.log &
ended=$!
within 30 grep -q 'restoring what a killed benchmark changed' /tmp/ended.log || fail "$(cat /tmp/ended.log)"
within 60 grep -q ' of .*: triad' /tmp/ended.log || fail "nothing is measured: $(cat /tmp/ended.log)"
kill -TERM $ended
status=0
wait $ended || status=$?
[ $status = 1 ] || fail "status $status after SIGTERM: $(cat /tmp/ended.log)"
state | diff /tmp/before - || fail "not all is back after SIGTERM"
grep -q 'minutes, interrupted;' /tmp/ended.txt || fail "$(cat /tmp/ended.txt)"

(node --minutes 0.4 --method 4k,hpmmap,hpmmap-1g --repeat 2 --out /tmp/node) | tee /tmp/node.txt
state | diff /tmp/before - || fail "not all is back"
python3 - <<'PYTHON'
import json

record = json.load(open("/tmp/node/node.json"))
assert record["benchmark"] == "node" and record["schema"] == 1 and record["prepared"], record
assert not record["failed"] and not record["interrupted"], record["failed"]
assert record["pool_add"]["bytes"] > 0 and record["seconds"] > 0, record
assert "kernel_command_line" not in record["machine"] and record["machine"]["load"], record["machine"]
assert record["parameters"]["cpus"] == [0, 1], record["parameters"]
# An emulated CPU has no counters; the kernel counts faults.
assert "has no such counter" in record["missing_counters"]["tlb_load_misses"], record["missing_counters"]

found = {}
for one in record["results"]:
    what, method = one["what"], one["method"]
    found[what["kind"], what.get("mode") or what.get("workload"), method] = one
    assert one["summary"]["n"] == len(one["samples"]) in (1, 2), one
    assert what["kind"] == "detours" or all(sample["value"] > 0 for sample in one["samples"]), one
    assert method in ("4k", "hpmmap"), one
for mode in ("dependent", "independent", "triad"):
    small, pool = (found["accesses", mode, method]["samples"][0]["counts"]["faults"] for method in ("4k", "hpmmap"))
    # The pool's blocks are there before the first touch.
    assert small > 10_000 > pool > 0, (mode, small, pool)
# A slow machine has no time for it, and says so.
assert ("app", "minicg", "hpmmap") in found or any("minicg" in str(one) for one in record["left_out"]), record["left_out"]

# All verdicts say why they are none.
assert len(record["verdicts"]) >= 15, record["verdicts"]
for one in record["verdicts"]:
    assert one["answer"] in ("not-measured", "not-decided") and one["reason"], one
    assert "TLB" not in one["claim"] or one["answer"] == "not-measured", one
# Gigabytes are not there.
assert all(one["reason"] for one in record["left_out"]), record["left_out"]
PYTHON
diff <(head -n 3 /tmp/node/node.txt) <(head -n 3 /tmp/node.txt) || fail "node.txt is not the report"
grep -q '<svg' /tmp/node/node.svg || fail "node.svg is no picture"
! pgrep -x 'bench-noise|bench-alloc' || fail "a worker goes on"
expect_pool_free

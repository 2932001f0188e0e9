#!/bin/bash
# A co-location study is interrupted, continues, and leaves the machine as it was; times are not judged.
# takes: 45
# timeout: 240
# pool: 0
# tier: newest  nothing of it depends on the kernel
# paths: bench/colocation_study.py bench/apps/ crates/hpmmap-bench/
. "$(dirname "$0")/../guest/lib.sh"

apps=/tmp/colocation-apps study=/tmp/colocation thp=/sys/kernel/mm/transparent_hugepage/enabled
mkdir $apps
# It has the interface of the programs of bench/apps, and takes 48 MB.
cat >$apps/minicg <<'PYTHON'
#!/usr/bin/python3
memory = bytearray(48 << 20)
memory[::4096] = b"x" * (len(memory) // 4096)
result = memory.count(b"x")
print('{"app": "minicg", "seconds": 0.5, "verified": true, "checksum": "%x", "minflt": 7}' % result)
PYTHON
chmod +x $apps/minicg

study() {
	hpmmap bench colocation --verbose --apps $apps "$@"
}
# Also if the study has ended by itself.
two_ended() {
	[ "$(wc -l <$study/runs.jsonl)" -ge 2 ] || ! kill -0 "$pid"
}
settings() {
	cat $thp /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages /proc/sys/kernel/sched_schedstats
	pool_bytes total_bytes
	offline_blocks
	memtotal_kib
}
nothing_runs() {
	! pgrep -x 'make|cc1|mpirun|minicg' && [ "$(contexts)" = 0 ]
}

thp_before=$(sed 's/.*\[\(.*\)\].*/\1/' $thp)
trap 'echo "$thp_before" >$thp' EXIT
echo madvise >$thp
settings >/tmp/settings.before
hpmmap bench colocation --verbose --apps $apps --quick --prepare --workload minicg --neighbour a \
	--manager thp,hpmmap --repeat 1 --memory 64M --out $study >/tmp/study.out 2>&1 &
pid=$!
within 90 two_ended || { cat /tmp/study.out; fail "no two runs have ended"; }
kill -INT $pid || { cat /tmp/study.out; fail "the study has ended by itself"; }
expect 1 wait $pid
cat /tmp/study.out
grep -q 'interrupted after [23] of 4 runs; go on with: hpmmap bench colocation --resume' /tmp/study.out ||
	fail "the end does not say how to go on"
grep -q 'not run to its end' $study/report.html || fail "no report of what there is"
within 10 nothing_runs || fail "left running: $(pgrep -xl 'make|cc1|mpirun|minicg')"
settings | diff /tmp/settings.before - || fail "the interrupted study left the machine changed"

study --resume $study --report >/tmp/study.out
grep -q '^[23] of 4 runs have ended\.' /tmp/study.out || fail "no report of what there is so far"
expect_error 2 "was begun with --repeat=1, not with --repeat=2" hpmmap bench colocation --apps $apps --resume $study --repeat 2
expect_error 2 "is not empty: name another directory" hpmmap bench colocation --apps $apps --workload minicg \
	--quick --prepare --out $study
study --resume $study >/tmp/study.out 2>&1 || { cat /tmp/study.out; fail "the study does not go on"; }
cat /tmp/study.out
within 10 nothing_runs || fail "left running: $(pgrep -xl 'make|cc1|mpirun|minicg')"
settings | diff /tmp/settings.before - || fail "the study left the machine changed"
python3 - <<'PYTHON'
import json
import os

runs = [json.loads(line) for line in open("/tmp/colocation/runs.jsonl")]
plan = json.load(open("/tmp/colocation/study.json"))
assert [run["run"] for run in runs] == [0, 1, 2, 3], runs
assert all(run["error"] is None for run in runs), runs
cells = {(run["manager"], run["neighbour"]): run["figures"] for run in runs}
assert set(cells) == {(m, n) for m in ("thp", "hpmmap") for n in ("none", "a")}, cells
assert [(run["manager"], run["neighbour"]) for run in plan["runs"]] == list(cells), plan["runs"]
for (manager, neighbour), figures in cells.items():
    assert figures["digest"] == "3000", figures
    assert figures["fault_counter"] == "perf" and len(figures["ranks"]) == 1, figures
    parts = ("run_seconds", "wait_seconds", "blocked_seconds", "asleep_seconds")
    # Only the scheduler's own figures tell what is asleep from what is blocked.
    assert (figures["asleep_seconds"] is not None) == os.path.exists("/proc/self/sched"), figures
    if figures["asleep_seconds"] is not None:
        assert abs(sum(figures[part] for part in parts) - figures["rank_seconds"]) < 0.01, figures
    ours = 0 if manager == "hpmmap" else None
    assert figures["fallbacks"] == figures["pool_faults"] == ours, figures
# The memory came from where it should. It is looked at five times a second: what a run of
# half a second holds for a moment may be missed, but not beside neighbours, too.
peaks = {
    manager: max(cells[manager, neighbour]["reserved_peak_bytes"] for neighbour in ("none", "a"))
    for manager in ("thp", "hpmmap")
}
assert peaks["hpmmap"] >= 48 << 20 and peaks["thp"] == 0, peaks
assert cells["thp", "none"]["vmstat"]["thp_fault_alloc"] >= 20, cells["thp", "none"]["vmstat"]

summary = json.load(open("/tmp/colocation/summary.json"))
assert summary["ended"] == summary["planned"] == 4 and not summary["failures"], summary
beside = [cell for cell in summary["cells"] if cell["neighbour"] == "a"]
assert len(beside) == 2 and all(cell["parts"]["memory"] and cell["slowdown"] for cell in beside), beside
compared = [one for one in summary["comparisons"] if one["neighbour"] == "a"]
assert [(one["peer"], one["paper_reduction"]) for one in compared] == [("thp", 0.15)], compared
report = open("/tmp/colocation/report.html").read()
assert report.count("<svg") == 1 and "no TLB" in report, "report.html"
PYTHON
# It has ended: nothing is run, the report is made again.
rm $study/report.html
study --resume $study >/tmp/study.out
grep -q "^Report: $study/report.html" /tmp/study.out || fail "no report"
[ -s $study/report.html ] || fail "no report.html"

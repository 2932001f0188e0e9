#!/bin/bash
# The output of --json is valid, with and without a launch.
# pool: 512M
# tier: newest  report asks on every kernel whether counts are right
# paths: kernel/mem/pool/pool.* kernel/as/own/show.* kernel/as/own/stats.* crates/hpmmap/src/doctor/
. "$(dirname "$0")/../guest/lib.sh"

hpmmap run --strict -- python3 -c '
import mmap, time
memory = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[0] = 1
time.sleep(120)
' &
job=$!
held() { [ "$(context_of $job held_bytes)" -ge $((64 * MIB)) ]; }
within 30 held || fail "the job does not hold 64 MB"

for report in 'status' 'pool list' 'pool list --verbose' 'doctor'; do
	# The doctor's status tells whether something is missing.
	hpmmap $report --json >/tmp/report.json || [ "$report" = doctor ] || fail "hpmmap $report --json: status $?"
	hpmmap $report >/tmp/report.txt || [ "$report" = doctor ] || fail "hpmmap $report: status $?"
	[ -s /tmp/report.txt ] || fail "hpmmap $report prints nothing"
	PID=$job python3 - "$report" <<'PYTHON'
import json, os, sys

report = json.load(open("/tmp/report.json"))
verb = sys.argv[1]
assert report["schema"] == (2 if verb == "status" else 1), report


def check_nodes(nodes):
    assert sum(node["total_bytes"] for node in nodes) == 512 << 20, nodes
    for node in nodes:
        for key in ("node", "total_bytes", "free_bytes", "largest_free_bytes", "pinned_bytes", "bad_bytes"):
            assert type(node[key]) is int, (key, node)
        assert node["free_bytes"] <= node["total_bytes"] - (64 << 20) or node["total_bytes"] == 0


if verb.startswith("pool list"):
    check_nodes(report["nodes"])
    if "--verbose" in verb:
        blocks = report["blocks"]
        assert sum(block["length"] for block in blocks) == 512 << 20, blocks
        assert sum(block["busy_bytes"] for block in blocks) >= 64 << 20, blocks
elif verb == "status":
    check_nodes(report["nodes"])
    assert report["hooks_active"] is True
    (job,) = [context for context in report["contexts"] if context["pid"] == int(os.environ["PID"])]
    assert job["strict"] is True and job["user"] == "root" and job["command"].startswith("python3"), job
    assert job["held_bytes"] >= 64 << 20, job
    entries = "2m" if os.path.exists("/sys/kernel/mm/transparent_hugepage") else "4k"
    assert job[f"mapped_{entries}_bytes"] >= 64 << 20, job
    assert job["fallbacks"] == 0 and job["linux_bytes"] == 0, job
    (whole,) = [one for one in report["jobs"] if one["id"] == job["job"]]
    assert whole["peak_bytes"] >= whole["held_bytes"] >= 64 << 20 and whole["processes"] == 1, whole
else:
    assert report, "the doctor says nothing"
print(verb, "ok")
PYTHON
done

# Errors are JSON, too, where the report would have been.
status=0
hpmmap pool add --size 1X --json 2>/tmp/error.json || status=$?
[ $status = 2 ] || fail "of a wrong size the status is $status"
python3 -c '
import json
error = json.load(open("/tmp/error.json"))
assert error["schema"] == 1 and error["status"] == 2 and "1X" in error["error"], error'

kill $job
wait $job || true

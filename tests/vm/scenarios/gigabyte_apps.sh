#!/bin/bash
# Mini-applications with --page-size 1G: no page fault, the right result, and as many entries of 1 GB as their
# heap has whole gigabytes, by the report, status and metrics.
# machine: gigabytes
# pool: 3584M
# timeout: 240
# takes: 30
# tier: all  sem_gigabyte and fuzz_gigabytes ask it call by call
# paths: kernel/as/change/fit.* kernel/task/image.* crates/hpmmap/src/allocator.rs bench/apps/
. "$(dirname "$0")/../guest/lib.sh"

has=$(grep -cx yes $SYSFS/gigabytes || true)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

has_a_gigabyte() {
	[ "$(contexts held_bytes)" -ge $((1 << 30)) ]
}

# launch APP ARGUMENT...: in the background, until its gigabytes are there.
launch() {
	hpmmap run --strict --malloc-tune --page-size 1G --report /tmp/report.json -- \
		"$HPMMAP_ROOT/build/bench/apps/$1" --json "${@:2}" >/tmp/app.json &
	job=$!
	within 60 has_a_gigabyte || fail "$1 has no gigabyte"
}

# ended GIGABYTES: so many entries, in so few runs.
ended() {
	wait $job || { cat /tmp/app.json; fail "it ended with status $?"; }
	python3 - "$@" "$has" <<'PYTHON'
import json, sys

gigabytes, has = map(int, sys.argv[1:])
app, report = (json.load(open(f"/tmp/{name}.json")) for name in ("app", "report"))
memory = report["memory"]
print(app["app"], app["seconds"], "s;", app["minflt"], "minor faults;", memory)
assert app["verified"] and app["majflt"] == 0
assert report["faults"]["pool_memory"]["total"] == 0, report["faults"]
assert report["fallbacks"]["calls"] == 0
assert memory["gigabytes"] == {"wanted": gigabytes, "had": gigabytes}
assert memory["entries"]["1g"] == gigabytes * has
assert memory["placed_bytes"] >= gigabytes << 30
# A gigabyte is one at most; what else there is has few blocks.
assert 1 < memory["placed_runs"] <= gigabytes + (memory["placed_bytes"] - (gigabytes << 30) >> 21)
PYTHON
	expect_pool_free
}

launch minife --size 24
hpmmap status | tee /tmp/status
awk -v has="$has" '/^JOB/ { while ($++at != "RUNS" && at < NF); } $5 == "strict" { ok = $at && $(at + 1) == has } END { exit !ok }' \
	/tmp/status || fail "status does not show the entry"
hpmmap status --prometheus --per-launch >/tmp/metrics
grep -q "page_size=\"1G\"} $has\$" /tmp/metrics || fail "the metrics do not show the entry"
ended 1

# All whole gigabytes come with the first step of the break. phases reads its smaps.
GLIBC_TUNABLES=glibc.malloc.top_pad=$(((2 << 30) + (2 << 20))) launch phases --size 900
ended 2

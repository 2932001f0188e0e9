#!/bin/bash
# Detours and random accesses: every CPU is measured and the figures are consistent; they are not judged.
# takes: 45
# pool: 512M
# timeout: 180
# tier: all  a minute of the command alone: bench_alloc makes figures and pictures in the same way
# paths: bench/noise/ crates/hpmmap-bench/
. "$(dirname "$0")/../guest/lib.sh"

out=/tmp/noise
hpmmap bench noise --quick --neighbour --size 64K,4M --per-cpu --out $out >/tmp/noise.txt
cat /tmp/noise.txt
python3 - <<'PYTHON'
import json
import os

record = json.load(open("/tmp/noise/noise.json"))
assert record["benchmark"] == "noise" and record["schema"] == 1, record
assert record["unit"] == "nanoseconds" and record["tsc_hz"] > 0, record["unit"]
assert record["versions"]["module"] and record["pool_add"] is None
cpus = sorted(os.sched_getaffinity(0))
assert record["parameters"]["cpus"] == cpus and len(cpus) == 2, record["parameters"]

# Nothing was reserved for hugetlb.
methods = ["4k", "thp", "hpmmap"]
for one in record["left_out"]:
    assert one["method"] == "hugetlb" and "of reserved huge pages, there is 0" in one["reason"], one

found = {}
for one in record["detours"]:
    key = (one["variant"], one["method"], one["condition"])
    assert key not in found, key
    found[key] = one
    beside = one["condition"] == "neighbour"
    assert (one["neighbour_bytes"] is not None) == beside, one
    assert [cpu["cpu"] for cpu in one["cpus"]] == cpus, key
    for cpu in one["cpus"]:
        assert cpu["shared"] == (beside and cpu["cpu"] == cpus[1]), key
        assert cpu["elapsed_ns"] >= 10**9 and cpu["rounds"] > 0, cpu
        assert cpu["detour_ns"] + cpu["call_ns"] <= cpu["elapsed_ns"], cpu
        assert sum(cpu["histogram"]) == cpu["detours"] <= cpu["rounds"], cpu
        assert len(cpu["slices"]) == 200 and max(cpu["slices"]) == cpu["longest_ns"], cpu
        assert (cpu["calls"] > 0) == (one["variant"] == "fresh"), cpu
        # Each page of the fresh memory is touched once, and only 4 KB pages take a fault for each.
        if one["variant"] == "fresh" and cpu["fault_counter"] == "perf":
            faults = cpu["faults"] / cpu["rounds"]
            assert faults > 0.9 if one["method"] == "4k" else faults < 0.1, (key, cpu)
            if one["method"] == "hpmmap":
                assert cpu["faults"] < 50, (key, cpu)
    noise = [cpu["detour_ns"] / cpu["elapsed_ns"] for cpu in one["cpus"]]
    summary = one["summary"]
    assert 0 <= summary["noise"] <= summary["worst_noise"] <= 1, summary
    assert abs(summary["noise"] - sum(noise) / 2) < 1e-9 and abs(summary["worst_noise"] - max(noise)) < 1e-9
    assert summary["longest_ns"] == max(cpu["longest_ns"] for cpu in one["cpus"])
wanted = {(variant, method) for variant in ("touch", "fresh") for method in methods}
wanted |= {("plain", "4k"), ("plain", "hpmmap")}
assert set(found) == {(*pair, c) for pair in wanted for c in ("alone", "neighbour")}, set(found)

sizes = record["parameters"]["sizes_bytes"]
ends = {}
for one in record["accesses"]:
    assert 0 < one["least"] <= one["median"] <= one["most"], one
    ends.setdefault((one["mode"], one["size_bytes"]), {})[one["method"]] = one["last"]
assert set(ends) == {(mode, size) for mode in ("dependent", "independent") for size in sizes}, set(ends)
for key, last in ends.items():
    assert set(last) == set(methods) and len(set(last.values())) == 1, (key, last)
PYTHON
[ "$(head -c 4 $out/noise.png | tail -c 3)" = PNG ] || fail "noise.png is no picture"
grep -q '<svg' $out/noise.svg || fail "noise.svg is no picture"
awk 'length > 80 && !/: needs / { exit 1 }' /tmp/noise.txt || fail "a line is wider than 80 columns"

no_workers() {
	! pgrep -x bench-noise
}
no_workers || fail "the neighbour goes on"
plain=(hpmmap bench noise --seconds 3 --no-accesses --loop plain --method 4k)
expect_error 1 'the neighbour has ended: .* command ended with status 3$' "${plain[@]}" --neighbour='exit 3'
expect_error 2 'there is no CPU 9' hpmmap bench noise --cpu 9
# Interrupted, and even killed, it leaves nothing behind.
for signal in TERM KILL; do
	"${plain[@]}" --neighbour='sleep 1000' --verbose >/dev/null 2>/tmp/progress &
	pid=$!
	within 60 grep -q '2 of 2' /tmp/progress || fail "the neighbour's turn never came"
	sleep 1
	kill -$signal $pid
	! wait $pid || fail "it ended as if it had not got SIG$signal"
	within 30 no_workers || fail "after SIG$signal: $(pgrep -a bench-noise)"
	! pgrep -x sleep || fail "after SIG$signal the neighbour's command goes on"
done
expect_pool_free

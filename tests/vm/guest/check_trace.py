"""Compares a trace with the output of the program tests/vm/programs/faults.

check_trace.py TRACE OUTPUT known     every range has the faults it should have
check_trace.py TRACE OUTPUT capable   the same; BPF's statistics need another capability
check_trace.py TRACE OUTPUT none      no exception after START
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

trace, output, how = sys.argv[1:]


def hpmmap(*args):
    return subprocess.run(["hpmmap", "trace", *args], check=True, capture_output=True, text=True).stdout


report = json.loads(hpmmap("report", trace, "--json"))
faults = report["faults"]
print(faults)
assert report["complete"] and report["dropped"] == 0 and report["untracked"] == 0, report
assert faults["agree"], faults
assert faults["recorded"] == faults["in_file"] == faults["exceptions"] + faults["calls"], faults
counts = {key: faults[key] for key in ("minor", "major")}
assert faults["kernel"] == counts, faults
assert report["overhead"]["missed"] == 0, report
runs = report["overhead"]["runs"]
assert runs == 0 if how == "capable" else runs >= 2 * faults["recorded"], report
# The command is the only child of the recorder.
assert faults["getrusage"] == counts, faults
totals = {True: 0, False: 0}
for row in report["kinds"]:
    if row["kind"] != "error":
        totals[row["call"]] += row["count"]
assert totals == {True: faults["calls"], False: faults["exceptions"]}, totals

lines = [line.split() for line in Path(output).read_text().splitlines()]
(start,) = [float(words[1]) for words in lines if words and words[0] == "START"]
start_ns = int(start * 1e9) - report["header"]["start_ns"]
rows = list(csv.DictReader(hpmmap("report", trace, "--csv", "--after", f"@{start:.9f}").splitlines()))
assert all(int(row["time_ns"]) >= start_ns - 1000 for row in rows)
print(len(rows), "faults after the start")

if how == "none":
    left = [row for row in rows if row["origin"] != "call"]
    assert not left, left[:10]
    assert faults["calls"] > 0, "nothing was filled by calls"
    sys.exit(0)

ranges = [words[1:] for words in lines if words and words[0] == "RANGE"]
assert ranges
for kinds, origin, pid, address, size, number in ranges:
    first = int(address, 16)
    mine = [row for row in rows if row["pid"] == pid and first <= int(row["address"], 16) < first + int(size)]
    seen = {row["kind"] for row in mine}
    print(kinds, origin, len(mine), seen)
    assert {row["origin"] for row in mine} == {origin}, (kinds, mine[:3])
    assert all(int(row["cost_ns"]) > 0 for row in mine), mine[:3]
    assert {row["write"] for row in mine} <= {"0", "1"}
    if int(number) >= 0:
        assert len(mine) == int(number), (kinds, len(mine), number)
    assert seen == set(kinds.split(",")), (kinds, seen)
    level = {"2m": "2", "hugetlb": "2"}.get(kinds, "1")
    assert {row["page_level"] for row in mine} == {level}, (kinds, mine[:3])
    assert {row["process"] for row in mine} == {"faults"}, mine[:3]
    for row in mine:
        assert int(row["mapping_start"], 16) <= int(row["address"], 16) < int(row["mapping_end"], 16), row
        assert row["mapping_class"] == ("file" if row["mapping"].startswith(("memfd", "anon_huge")) else "anon"), row

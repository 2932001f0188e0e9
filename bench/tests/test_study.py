# SPDX-License-Identifier: GPL-2.0
"""The study: its list, its verdicts, what it goes on with, and its report."""

import fcntl
import json
import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from study import pictures, readers, report, runner, seed_000, seed_001, seed_002, seed_003, values, verdict
from study.__main__ import chosen, main
from study.model import Bars, Claim, Lines, Points, Rows, Section
from study.sections import SECTIONS, SEEDS, load_sections

# Figures and tables of the seeds, by their last number; 004 shows those of 000.
FIGURES = {"000": {"fig": 10, "table": 0}, "001": {"fig": 7, "table": 4}, "003": {"fig": 9, "table": 0}}
FIGURES_002 = {1: 8, 2: 9, 3: 12}


def record_of(data, command: str = "x") -> dict:
    return {
        "schema": runner.SCHEMA,
        "data": data,
        "commit": "c",
        "command": command,
        "began": "b",
        "seconds": 1,
    }


def part(name: str, command: str, **more) -> runner.Part:
    return runner.Part(name, "about", "windows", 1, command, **more)


def test_every_figure_and_table_has_a_section():
    want = {f"{seed}-{kind}{n}" for seed, most in FIGURES.items() for kind in most for n in range(1, most[kind] + 1)}
    want |= {f"002-fig{chapter}.{n}" for chapter, most in FIGURES_002.items() for n in range(1, most + 1)}
    assert {section.name for section in load_sections()} == want


def test_what_is_measured_has_parts_claims_and_charts():
    parts = runner.load_parts()
    for section in load_sections():
        assert section.seed["says"], section.name
        if section.kind == "measured":
            assert section.parts and section.claims and section.charts, section.name
            assert section.seed["x"] and section.seed["y"], section.name
        else:
            assert not section.parts and not section.claims and not section.charts, section.name
        assert (section.kind == "metal") == ("why" in section.seed), section.name
        assert set(section.parts) <= parts.keys(), section.name
        for claim in section.claims:
            assert bool(claim.holds) != bool(claim.metal), claim.says
        assert not section.claims or not all(claim.ours for claim in section.claims), section.name


def test_the_page_counts_what_there_is():
    """docs/study.md has the seeds in a table: sections, and how many of each kind."""
    sections = load_sections()
    text = (runner.ROOT / "docs/study.md").read_text()
    for seed in SEEDS:
        kinds = Counter(section.kind for section in sections if section.name.startswith(seed))
        numbers = [kinds.total(), kinds["measured"], kinds["metal"], kinds["drawing"]]
        row = re.search(rf"^\| {seed}.*?\| (.*) \|$", text, re.MULTILINE)
        assert [int(cell) for cell in row[1].split("|")] == numbers, seed


def paths_of(section: Section) -> set[str]:
    texts = [claim.holds for claim in section.claims]
    found = set()
    for chart in section.charts:
        match chart:
            case Bars():
                texts += chart.bars.values()
            case Rows():
                texts += [text for row in chart.rows.values() for text in row]
                assert all(len(row) == len(chart.columns) for row in chart.rows.values()), chart.title
            case Lines():
                found |= {path for path, *_ in chart.series.values()}
            case Points():
                found.add(chart.run)
    return found | {path for text in texts for path in values.paths(text)}


def test_sections_use_only_parts_that_they_name():
    for section in SECTIONS:
        used = {path.partition(":")[0] for path in paths_of(section)}
        assert used <= set(section.parts), section.name


def test_each_part_is_used_and_read():
    parts = runner.load_parts()
    used = {name for section in SECTIONS for name in section.parts}
    assert used == parts.keys()
    for one in parts.values():
        assert one.reads in readers.READERS, one.name
        words = one.words("6.99", Path("/out"))
        assert not re.search("{(kernel|out)", words) and ("6.99" in words or one.kernels), words


def test_a_kernel_takes_three_and_a_half_hours_by_the_estimates():
    minutes = [one.minutes for one in runner.load_parts().values()]
    assert sum(minutes) <= 210


DATA = {"p": {"runs": {"a": {"mean": 6, "name": "x"}}, "rows": [{"k": 1, "v": 2}, {"k": 2, "v": 4.5, "none": None}]}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{p:runs/a/mean} * 2 - 1", 11),
        ("{p:rows/[k=2]/v} / {p:rows/[k=1]/v}", 2.25),
        ("min({p:runs/a/mean}, 3) + max(1, 2)", 5),
        ("-{p:runs/a/mean}", -6),
        ("{p:runs/a/gone|0} + {p:runs/a/mean|0} + {p:gone|1}", 7),
        ("{p:runs/a/mean} >= 6 and 1 < 2", True),
        ("{p:runs/a/mean} < 6", False),
    ],
)
def test_formulas(text, want):
    assert values.formula(DATA, text) == want


@pytest.mark.parametrize(
    "path",
    [
        "q:runs/a/mean|0",
        "p:runs/b/mean|0",
        "p:rows/[k=2]/none|0",
        "p:rows/[k=3]/v|0",
        "q:runs/a/mean",
        "p:runs/b/mean",
        "p:rows/[k=3]/v",
        "p:runs/a/name",
        "p:rows/[k=2]/none",
        "p:runs/a/mean/x",
    ],
)
def test_what_is_not_there_is_missing(path):
    with pytest.raises(values.Missing, match=re.escape(path.partition("|")[0])):
        values.number(DATA, path)


def test_formulas_do_nothing_else():
    with pytest.raises(ValueError, match="no formula"):
        values.formula(DATA, "open('x')")
    with pytest.raises(ValueError, match="no formula"):
        values.formula(DATA, "{p:runs/a/mean}.real")


def section_of(*claims: Claim, kind: str = "measured") -> Section:
    seed = {
        "title": "T",
        "says": ["s"],
        "x": "x",
        "y": "y",
        "unit": "u",
        "bars": {"b": 1},
        "kind": kind,
        "why": "the CPUs",
    }
    return Section("000-fig2", ("p",), claims, (Bars("here", "n", {"a": "{p:runs/a/mean}", "gone": "{p:z}"}),), seed)


HOLDS = Claim("it is", "{p:runs/a/mean} > 5")
FAILS = Claim("it is more", "{p:runs/a/mean} > 7", "this one is small")
GONE = Claim("it was", "{p:z} > 1")
HARD = Claim("it is fast", metal="time")
OURS = {holds: Claim("ours is", f"{{p:runs/a/mean}} > {5 if holds else 7}", ours=True) for holds in (True, False)}


@pytest.mark.parametrize(
    ("claims", "want", "why"),
    [
        ((HOLDS,), verdict.AGREES, ""),
        ((HOLDS, HARD), verdict.PART, "1 of 2 claims need metal"),
        ((HARD, OURS[True]), verdict.METAL, "1 of 1 claims need metal"),
        ((HOLDS, OURS[False]), verdict.AGREES, ""),
        ((HOLDS, GONE), verdict.UNMEASURED, "1 of 2 claims hold; 1 of 2 claims are not measured"),
        (
            (HOLDS, GONE, HARD),
            verdict.UNMEASURED,
            "1 of 3 claims hold; 1 of 3 claims need metal; 1 of 3 claims are not measured",
        ),
        ((FAILS, GONE), verdict.DIFFERS, "because not 6 > 7: this one is small; 1 of 2 claims are not measured"),
        ((HOLDS, FAILS, HARD), verdict.DIFFERS, "because not 6 > 7: this one is small; 1 of 3 claims need metal"),
        ((GONE, HARD), verdict.UNMEASURED, "1 of 2 claims need metal; 1 of 2 claims are not measured"),
        ((HARD,), verdict.METAL, "1 of 1 claims need metal"),
    ],
)
def test_verdicts(claims, want, why):
    section = section_of(*claims)
    assert verdict.of_section(section, [verdict.judged(claim, DATA) for claim in claims]) == (want, why)


def data_of(numbers: dict[str, float]) -> dict:
    """What parts would give that has these numbers at these paths."""
    data: dict = {}
    for formula, number in numbers.items():
        (path,) = values.paths(formula)
        *above, last = path.replace(":", "/", 1).partition("|")[0].split("/")
        place = data
        for step, following in zip(above, [*above[1:], last], strict=True):
            new: dict | list = [] if following.startswith("[") else {}
            if step.startswith("["):
                where = values.conditions(step[1:-1])
                if not any(values.matches(row, where) for row in place):
                    place.append(dict(where))
                place = next(row for row in place if values.matches(row, where))
            else:
                place = place.setdefault(step, new)
        place[last] = number
    return data


# Only the text has it.
MERGES = {
    seed_000._thp("none", "merge", "mean"): 1000,
    seed_000._thp("none", "4k", "p50"): 1,
    seed_000._thp("build", "merge", "mean"): 4001,
}


def judged_with(where: tuple[str, int], numbers: dict[str, float]) -> verdict.Judged:
    name, place = where
    claim = next(section for section in SECTIONS if section.name == name).claims[place]
    return verdict.judged(claim, data_of(numbers))


def seeds_numbers() -> dict[tuple[str, int], dict[str, float]]:
    """For claims, by section and place in it: the seed's numbers where the rule looks. Costs are turned into rates."""
    seeds = {section.name: section.seed for section in load_sections()}

    def rate(method: str, cost: float) -> dict[str, float]:
        return {seed_001._touch("threads", method, 1, "pages_per_second"): 1e9 / cost}

    def row(app: str, allocator: str, table: str, name: str) -> dict[str, float]:
        figures = dict(zip(("total", "user", "system", "mb"), seeds[table]["rows"][name], strict=False))
        return {seed_001._allocator(app, allocator, figure): number for figure, number in figures.items()}

    small = {
        path: number
        for name in ("glibc", "jemalloc", "tcmalloc", "MPC-lowmem")
        for path, number in row("miniamr", f"{name.removeprefix('MPC-')}-4k", "001-table1", f"A {name}").items()
    }
    lines, pages, reuse = seeds["001-fig5"]["lines"], seeds["001-fig3"]["bars"], seeds["001-fig7"]["bars"]
    (_, windows), (_, shared) = (seeds["002-fig1.6"]["lines"][way][0] for way in ("SMARTMAP", "shared memory"))
    puts, paging = seeds["002-fig1.4"]["bars"], seeds["002-fig3.12"]["bars"]
    return {
        ("000-fig2", 2): MERGES,
        ("000-fig2", 3): MERGES,
        ("001-fig3", 0): rate("4k", pages["4 KB pages"]) | rate("thp", pages["huge pages"]),
        ("001-fig5", 0): rate("hpmmap-dirty", lines["standard"][0][1])
        | rate("hpmmap-reuse", lines["page reuse"][0][1]),
        ("001-fig7", 0): rate("thp", reuse["huge pages"]) | rate("hpmmap-reuse", reuse["with reuse"]),
        **{("001-table1", n): small for n in range(5)},
        ("001-table2", 0): small | row("miniamr", "jemalloc-thp", "001-table2", "jemalloc"),
        ("001-table2", 1): small | row("miniamr", "glibc-thp", "001-table2", "glibc"),
        ("001-table2", 2): small | row("miniamr", "tcmalloc-thp", "001-table2", "tcmalloc"),
        ("001-table3", 0): row("miniamr", seed_001.LOWMEM, "001-table3", "huge MPC-lowmem")
        | row("miniamr", seed_001.REUSE, "001-table3", "huge MPC-lowmem reuse"),
        ("001-table4", 0): row("minihydro", seed_001.LOWMEM, "001-table4", "huge custom")
        | row("minihydro", seed_001.REUSE, "001-table4", "huge custom reuse"),
        ("002-fig1.4", 1): {seed_002._put("kernel", 8): puts["default"], seed_002._put("shmem", 8): puts["SMARTMAP"]},
        ("002-fig1.6", 0): {
            seed_002._message(2, "rate", 64, "registered:xpmem"): 1 / windows,
            seed_002._message(2, "rate", 64, "registered:copied"): 1 / shared,
        },
        ("002-fig3.12", 0): {
            seed_002._vm("switches", "4k", way, "4k"): paging[bar] / paging["native"]
            for way, bar in (("shadow", "KVM's shadow"), ("nested", "nested"))
        },
        ("003-fig4", 0): {
            seed_003.QUIET: seeds["003-fig4"]["bars"]["one task"] / 100,
        },
    }


@pytest.mark.parametrize(("where", "numbers"), seeds_numbers().items(), ids=lambda value: str(value)[:20])
def test_each_claim_agrees_with_its_seeds_own_numbers(where, numbers):
    judged = judged_with(where, numbers)
    assert judged.verdict == verdict.AGREES, (judged.claim.says, judged.why)


def kinds(app: str, figure: str, alone: float, build: float) -> dict[str, float]:
    """Of faults of 4 KB with hugetlbfs."""
    costs = {"none": alone, "build": build}
    return {seed_000._fault(app, "hugetlb", beside, "4k", figure): cost for beside, cost in costs.items()}


def counts(app: str, alone: int, build: int) -> dict[str, int]:
    numbers = {"none": alone, "build": build}
    return {seed_000._count(f"faults:{app}-1-hugetlb-{beside}", "4k"): count for beside, count in numbers.items()}


def allocators(app: str, figure: str, **numbers: float) -> dict[str, float]:
    return {seed_001._allocator(app, name.replace("_", "-"), figure): number for name, number in numbers.items()}


def megabyte(pattern: str, registered: float, **native: float) -> dict[str, float]:
    ways = {"registered:xpmem": registered, **native}
    return {seed_003._message(4, pattern, 1 << 20, way): cost for way, cost in ways.items()}


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        # No fault met a merge.
        (("000-fig2", 3), {path: 0 for path in MERGES}),
        (("000-fig2", 3), {**MERGES, seed_000._thp("build", "merge", "mean"): 3900}),
        (("000-fig4", 1), {seed_000._thp("none", "4k", "stddev"): 100, seed_000._thp("build", "4k", "stddev"): 150}),
        (("000-fig6", 2), counts("minicg", 100, 120) | counts("minife", 100, 101)),
        (("000-fig6", 3), kinds("minimd", "max", 15000, 17000)),
        (("000-fig6", 4), kinds("minihydro", "max", 15000, 17000)),
        (("001-table1", 0), allocators("miniamr", "system", lowmem_4k=81, glibc_4k=80, jemalloc_4k=49, tcmalloc_4k=41)),
        (("001-table1", 1), allocators("miniamr", "mb", lowmem_4k=45, tcmalloc_4k=49)),
        (("001-table1", 2), allocators("miniamr", "system", jemalloc_4k=81, glibc_4k=79)),
        (("001-table1", 3), allocators("miniamr", "mb", jemalloc_4k=43, glibc_4k=44)),
        (("001-table1", 4), allocators("miniamr", "system", tcmalloc_4k=75, glibc_4k=80, jemalloc_4k=79)),
        (("001-table2", 1), allocators("miniamr", "mb", glibc_4k=43, glibc_thp=44)),
        # Reuse saves nothing of nothing, and little is no saving.
        (("001-table3", 0), allocators("miniamr", "system", lowmem_hpmmap=0, hpmmap_lowmem_hpmmap=0)),
        (("001-table3", 0), allocators("miniamr", "system", lowmem_hpmmap=3, hpmmap_lowmem_hpmmap=1)),
        (("001-table4", 0), allocators("minihydro", "system", lowmem_hpmmap=3, hpmmap_lowmem_hpmmap=1)),
        # Natively the best is a window.
        (("003-fig6", 2), megabyte("bcast", 324, copied=800, cma=770, xpmem=300)),
        (("003-fig6", 3), megabyte("allreduce", 1689, copied=2800, cma=2701, xpmem=1500)),
        (("003-fig4", 0), {seed_003.QUIET: 0.00005}),
    ],
    ids=lambda value: str(value)[:20],
)
def test_claims_can_fail(where, numbers):
    judged = judged_with(where, numbers)
    assert judged.verdict == verdict.DIFFERS, (judged.claim.says, judged.why)


def test_verdicts_of_what_is_not_measured_here():
    assert verdict.of_section(section_of(kind="metal"), []) == (verdict.METAL, "the CPUs")
    assert verdict.of_section(section_of(kind="drawing"), [])[0] == verdict.DRAWING


def test_a_study_goes_on_with_what_is_missing(tmp_path):
    store = runner.Store(tmp_path, "6.12")
    one, other = part("one", "a"), part("other", "a")
    assert runner.missing([one, other], store, False) == [one, other]
    store.write("one", record_of({}, command="a"))
    assert runner.missing([one, other], store, False) == [other]
    assert runner.missing([one, other], store, again=True) == [one, other]
    assert runner.missing([one], runner.Store(tmp_path, "6.1"), False) == [one]
    only = part("only", "a", kernels=("6.1",))
    assert runner.missing([only], store, False) == []
    assert runner.missing([only], runner.Store(tmp_path, "6.1.0-56-amd64"), False) == [only]
    (store.place / "one.json").write_text('{"half')
    assert runner.missing([one], store, False) == [one]


def test_a_result_counts_for_its_command_alone(tmp_path):
    store = runner.Store(tmp_path, "6.12")
    store.write("one", record_of({}, command="a"))
    assert runner.missing([part("one", "a")], store, False) == []
    assert runner.missing([part("one", "a --more")], store, False) == [part("one", "a --more")]


def test_the_record_of_a_run_is_that_of_its_command(tmp_path):
    store, said = runner.Store(tmp_path, "6.12"), []
    one = part("one", "echo 'a b   1' >&1; : {out} {kernel}")
    assert runner.run_part(one, store, readers.windows, said.append)
    assert runner.missing([one], store, False) == []


def test_a_part_leaves_its_record(tmp_path):
    store, said = runner.Store(tmp_path, "6.12"), []
    works = part("works", "echo '  attach 1 MB      12' && touch {out}/file && echo {kernel} >&2")
    assert runner.run_part(works, store, readers.windows, said.append)
    record = store.record("works")
    assert record["data"] == {"attach 1 MB": 12.0} and record["kernel"] == "6.12"
    assert record["commit"] and "works.out" in record["command"] and (store.place / "works.out/file").exists()
    assert re.fullmatch(r"works: measured in \d+ s", said[-1])


def test_a_part_that_fails_leaves_none(tmp_path):
    store, said = runner.Store(tmp_path, "6.12"), []
    assert not runner.run_part(part("fails", "echo oops >&2; exit 3"), store, readers.windows, said.append)
    assert "failed with status 3" in said[-1] and "oops" in said[-1]
    assert not runner.run_part(part("odd", "echo nothing"), store, readers.windows, said.append)
    assert "cannot be read" in said[-1]
    lacks = part("lacks", "echo", needs=("no/such*",))
    assert not runner.run_part(lacks, store, readers.windows, said.append)
    assert said[-1] == "lacks: left out, there is no no/such*"
    with (store.place / ".taken.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not runner.run_part(part("taken", "echo"), store, readers.windows, said.append)
    assert said[-1] == "taken: another study runs it"
    assert all(store.record(name) is None for name in ("fails", "odd", "lacks", "taken"))


def test_a_part_that_can_goes_on(tmp_path):
    store, said = runner.Store(tmp_path, "6.12"), []
    command = "echo x >>{out}/runs; [ $(wc -l <{out}/runs) = 2 ] && echo 'a b   1'"
    for goes_on, ends in ((False, False), (True, True)):
        one = part(f"p{goes_on}", command, goes_on=goes_on)
        assert not runner.run_part(one, store, readers.windows, said.append)
        assert runner.run_part(one, store, readers.windows, said.append) == ends
    # Measured to its end, it begins anew, and goes on after that.
    assert not runner.run_part(one, store, readers.windows, said.append)
    assert runner.missing([one], store, False) == [one]
    assert runner.run_part(one, store, readers.windows, said.append)


def test_a_command_that_outlives_the_study_keeps_its_part(tmp_path):
    store, said = runner.Store(tmp_path, "6.12"), []
    one = part("one", "sleep 60 & echo $! >{out}/pid; echo 'a b   1'")
    assert runner.run_part(one, store, readers.windows, said.append)
    pid = int((store.out("one") / "pid").read_text())
    try:
        assert not runner.run_part(one, store, readers.windows, said.append)
        assert said[-1] == "one: another study runs it"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_study_that_has_not_ended_is_no_result(tmp_path):
    (tmp_path / "study").mkdir()
    cell = {"workload": "minimd", "manager": "thp", "neighbour": "a"}
    summary = {"cells": [cell], "ended": 1, "planned": 2}
    (tmp_path / "study/summary.json").write_text(json.dumps(summary))
    with pytest.raises(ValueError, match="1 of 2 runs"):
        readers.colocation(tmp_path)
    (tmp_path / "study/ranks-8").mkdir()
    (tmp_path / "study/ranks-8/summary.json").write_text(json.dumps({**summary, "planned": 1}))
    assert list(readers.colocation_ranks(tmp_path)) == ["8"]


def test_parts_are_chosen_by_section_seed_and_name():
    parts, sections = runner.load_parts(), load_sections()
    assert [one.name for one in chosen("000-fig2", parts, sections)] == ["faults", "faults-thp"]
    assert [one.name for one in chosen("windows,003-fig7", parts, sections)] == ["windows", "kernels"]
    assert {one.name for one in chosen("003", parts, sections)} == {"noise", "noise-tasks", "messages", "kernels"}
    assert chosen("000-fig1", parts, sections) == []
    assert len(chosen(None, parts, sections)) == len(parts)
    with pytest.raises(ValueError, match="no such section"):
        chosen("000-fig99", parts, sections)


MESSAGES = """\
kernel 6.12, thousands:
2 ranks:
pattern   bytes  copied  registered:xpmem
pingpong  8      1.5     2
tables    0      88      4
4 ranks:
pattern   bytes  copied  registered:xpmem
halo      64     3       2.5
"""


def test_tables_of_messages_are_read():
    assert readers.messages_of(MESSAGES) == {
        "2": [
            {"pattern": "pingpong", "bytes": 8.0, "copied": 1.5, "registered:xpmem": 2.0},
            {"pattern": "tables", "bytes": 0.0, "copied": 88.0, "registered:xpmem": 4.0},
        ],
        "4": [{"pattern": "halo", "bytes": 64.0, "copied": 3.0, "registered:xpmem": 2.5}],
    }
    with pytest.raises(ValueError, match="no table"):
        readers.messages_of("nothing\n")


def test_recordings_are_read():
    whole = {"run_ns": 9, "stolen": [], "faults": {"agree": True}, "dropped": 0}
    line = {"time_ns": "5", "cost_ns": "7", "kind": "4k", "stall": "merge", "rank": "0", "origin": "user"}
    others = [{**line, "cost_ns": "9"}, {**line, "stall": ""}, {**line, "rank": ""}, {**line, "origin": "call"}]
    said = '{"app": "minimd", "verified": true}\n'
    run = readers.fault_run(whole, [line, *others], said)
    assert {kind: one["count"] for kind, one in run["kinds"].items()} == run["counts"] == {"4k": 1, "merge": 2}
    assert run["kinds"]["merge"] == {"count": 2, "mean": 8, "stddev": 2**0.5, "p50": 7, "p99": 7, "max": 9}
    assert [5, 7, "merge", "0"] in run["points"] and len(run["points"]) == 3 and run["run"] == 9
    none = readers.fault_run(whole, [{**line, "stall": ""}], said)
    assert none["kinds"]["merge"]["count"] == none["kinds"]["merge"]["mean"] == 0
    with pytest.raises(ValueError, match="not verified"):
        readers.fault_run(whole, [line], "")
    with pytest.raises(ValueError, match="3 faults are missing"):
        readers.fault_run({**whole, "dropped": 3}, [line], said)


def test_a_study_of_hosts_is_read(tmp_path):
    cell = {"workload": "minicg", "manager": "thp", "neighbour": "c", "nodes": 4, "late_faults": 3.0}
    summary = {"cells": [cell, {**cell, "nodes": 1}], "ended": 2, "planned": 2}
    (tmp_path / "n1").write_text(f"[ 12.5] said\nsummary {json.dumps(summary)}\ndone\n")
    assert list(readers.colocation_hosts(tmp_path)["cells"]) == ["minicg-thp-c-4", "minicg-thp-c"]
    (tmp_path / "n1").write_text("done\n")
    with pytest.raises(ValueError, match="no study"):
        readers.colocation_hosts(tmp_path)


def test_many_points_keep_the_dearest():
    points = [[n, n % 997, "4k", "0"] for n in range(20000)]
    kept = readers._thinned(points)
    assert len(kept) == readers.MOST_POINTS and max(point[1] for point in kept) == 996


def test_series_of_rows():
    assert pictures.of_row("{registered:xpmem} * 2", {"registered:xpmem": 2.5}) == 5
    chart = Lines("t", "x", "y", {"one": ("p:rows", "", "{k}", "10 / {v}"), "none": ("p:rows", "k=9", "{k}", "{v}")})
    assert pictures.series_of(chart, DATA) == {"one": [[1, 5.0], [2, 10 / 4.5]]}


def test_the_report_says_what_is_measured_and_what_is_not(tmp_path):
    store = runner.Store(tmp_path, "6.12")
    store.write("p", record_of(DATA["p"]))
    sections = [section_of(HOLDS, FAILS), section_of(GONE, OURS[True])]
    record = report.write(tmp_path, sections, [store, runner.Store(tmp_path, "6.1")], ["p"])
    assert json.loads((tmp_path / "study.json").read_text()) == record
    on = [[one["verdict"] for one in section["on"]] for section in record["sections"]]
    assert on == [["does not", "not measured"], ["not measured", "not measured"]]
    assert record["sections"][0]["on"][0]["charts"][0]["figures"] == {"a": 6}
    assert record["sections"][0]["numbers"] == {"bars": {"b": 1}}
    page = (tmp_path / "report.html").read_text()
    assert page.count("Not the seed's: ours is") == 2 and record["sections"][1]["on"][0]["claims"][1]["ours"]
    # Of each section the seed's numbers, and what was measured on one of the kernels.
    assert page.count("<svg") == 4
    assert "this one is small" in page and "Not measured: here" in page and "Not run on this kernel: p" in page
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>|<rdf.*?</rdf:RDF>', "", page, flags=re.DOTALL)


def test_each_kind_of_chart_is_drawn():
    points = [[10**9, 500, "4k", "0"], [2 * 10**9, 70000, "2m", "1"], [3 * 10**9, 900000, "merge", "1"]]
    data = {"p": {**DATA["p"], "run": {"points": points}}}
    charts = [
        Lines("lines", "x", "y", {"one": ("p:rows", "", "{k}", "{v}")}),
        Lines("log", "x", "y", {"one": ("p:rows", "", "{k}", "{v}")}, log=True),
        Bars("bars", "y", {"a": "{p:runs/a/mean}"}),
        Points("points", "p:run"),
        Points("some", "p:run", ("merge",)),
    ]
    for chart in charts:
        drawn = pictures.of_chart(chart, pictures.figures_of(chart, data))
        assert drawn.startswith("<svg") and chart.title in drawn
    assert pictures.figures_of(charts[-1], data) == points[2:]
    table = Rows("rows", ("a", "b"), {"x": ("{p:runs/a/mean}", "{p:z}"), "y": ("{p:z}", "{p:z}")})
    assert pictures.figures_of(table, data) == {"x": [6, None]}
    assert "<td>6</td><td></td>" in pictures.of_chart(table, pictures.figures_of(table, data))


def test_the_command_reports_without_running(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("study.__main__.ROOT", tmp_path)
    assert main(["--report", "--out", str(tmp_path / "study"), "--kernel", "6.12,6.1"]) == 0
    said = capsys.readouterr().out
    assert "Linux 6.1: " in said and "not measured" in said
    record = json.loads((tmp_path / "study/study.json").read_text())
    assert len(record["sections"]) == len(load_sections())
    assert main(["--only", "nothing", "--out", str(tmp_path)]) == 2
    assert main(["--list", "--out", str(tmp_path)]) == 0
    with pytest.raises(SystemExit):
        main(["--out", "/elsewhere"])


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_what_is_published_is_judged(kernel):
    store = runner.Store(runner.PUBLISHED, kernel)
    published = {file.stem for file in store.place.glob("*.json")}
    assert published and published <= runner.load_parts().keys()
    for name in published:
        record = store.record(name)
        assert record["part"] == name and record["kernel"] == kernel
        # Of a tree without changes.
        assert re.fullmatch("[0-9a-f]{12}", record["commit"]), name
    for section in SECTIONS:
        if set(section.parts) <= published:
            assert report.section_record(section, store)["verdict"] != verdict.UNMEASURED, section.name


def test_scripts_of_the_study_are_shell():
    for script in (runner.HERE).glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)

# SPDX-License-Identifier: GPL-2.0
"""What parts have measured, out of the files and the output in their directories."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

SUMMARY = re.compile(r"summary (\{.*\})\s*$", re.MULTILINE)
# A picture of more points shows no more.
MOST_POINTS = 1500


def _json(file: Path) -> dict:
    return json.loads(file.read_text())


def _thinned(points: list[list]) -> list[list]:
    """The costliest points, and an even choice of the others."""
    if len(points) <= MOST_POINTS:
        return points
    by_cost = sorted(points, key=lambda point: -point[1])
    dear, others = by_cost[: MOST_POINTS // 3], by_cost[MOST_POINTS // 3 :]
    step = len(others) / (MOST_POINTS - len(dear))
    kept = dear + [others[int(n * step)] for n in range(MOST_POINTS - len(dear))]
    return sorted(kept)


def _statistics(costs: list[int]) -> dict:
    costs = sorted(costs) or [0]
    return {
        "mean": statistics.fmean(costs),
        "stddev": statistics.stdev(costs) if len(costs) > 1 else 0.0,
        "p50": costs[(len(costs) - 1) // 2],
        "p99": costs[(len(costs) - 1) * 99 // 100],
        "max": costs[-1],
    }


def fault_run(report: dict, lines: list[dict], said: str) -> dict:
    """A recording: costs by kind and stall, and the faults, of the ranks alone.

    What waits for a merge is a kind of its own."""
    if [json.loads(text)["verified"] for text in said.splitlines() if text.startswith('{"app"')] != [True]:
        raise ValueError(f"the program has not verified its result: {said.strip()}")
    if report["dropped"]:
        raise ValueError(f"{report['dropped']} faults are missing in the recording")
    kinds: dict[str, list[int]] = {"merge": []}
    points = []
    for line in lines:
        # Pages that a call fills are no exceptions; the launcher is no rank.
        if line["origin"] == "call" or not line["rank"]:
            continue
        kind = "merge" if line["stall"] == "merge" else line["kind"] + (f"+{line['stall']}" if line["stall"] else "")
        kinds.setdefault(kind, []).append(int(line["cost_ns"]))
        points.append([int(line["time_ns"]), int(line["cost_ns"]), kind, line["rank"]])
    return {
        "run": report["run_ns"],
        "counts": {kind: len(costs) for kind, costs in sorted(kinds.items())},
        "kinds": {kind: {"count": len(costs), **_statistics(costs)} for kind, costs in sorted(kinds.items())},
        "stolen": report["stolen"],
        "agree": report["faults"]["agree"],
        "points": _thinned(points),
    }


def faults(out: Path) -> dict:
    """By APP, RANKS, MANAGER and NEIGHBOUR. Costs are instructions where the guest counted them."""
    runs = {}
    for file in sorted(out.glob("*-*-*-*.json")):
        with file.with_suffix(".csv").open(newline="") as text:
            lines = list(csv.DictReader(text))
        runs[file.stem] = fault_run(_json(file), lines, file.with_suffix(".out").read_text())
    if not runs:
        raise ValueError(f"no recording in {out}")
    return runs


def _cells(summary: dict) -> dict:
    cells = {}
    for cell in summary["cells"]:
        name = "-".join([cell["workload"], cell["manager"], cell["neighbour"]])
        if cell.get("nodes", 1) != 1:
            name += f"-{cell['nodes']}"
        cells[name] = cell
    if summary["ended"] < summary["planned"]:
        raise ValueError(f"{summary['ended']} of {summary['planned']} runs have ended: the same command goes on")
    return {"cells": cells, "ended": summary["ended"], "planned": summary["planned"]}


def colocation(out: Path) -> dict:
    return _cells(_json(out / "study/summary.json"))


def colocation_ranks(out: Path) -> dict:
    """By the number of ranks."""
    studies = {file.parent.name.removeprefix("ranks-"): file for file in out.glob("study/ranks-*/summary.json")}
    if not studies:
        raise ValueError(f"no study in {out}")
    return {ranks: _cells(_json(file)) for ranks, file in sorted(studies.items(), key=lambda item: int(item[0]))}


def colocation_hosts(out: Path) -> dict:
    """Of tests/nodes/scaling.sh, which prints its summary."""
    files = [file for file in out.rglob("*") if file.is_file()]
    found = [match for file in files for match in SUMMARY.findall(file.read_text(errors="replace"))]
    if not found:
        raise ValueError(f"no study in {out}")
    return _cells(json.loads(found[-1]))


def alloc(out: Path) -> dict:
    record = _json(out / "alloc.json")
    keys = ("pattern", "method", "size_bytes", "threads")
    rows = [{**{key: one[key] for key in keys}, **one["measured"]["median"]} for one in record["results"]]
    if not rows:
        raise ValueError("no result")
    return {"unit": record["unit"], "left_out": record["left_out"], "rows": rows}


def noise(out: Path) -> dict:
    record = _json(out / "noise.json")
    detours = [
        {**{k: one[k] for k in ("variant", "method", "condition")}, **one["summary"]} for one in record["detours"]
    ]
    keys = ("mode", "tasks", "method", "size_bytes", "median", "least", "most", "faults")
    accesses = [{key: one[key] for key in keys} for one in record["accesses"]]
    cpus = [one for one in record["detours"] if one["variant"] == "plain" and one["method"] != "hpmmap"]
    per_cpu = {str(cpu["cpu"]): cpu["detour_ns"] / cpu["elapsed_ns"] for cpu in cpus[0]["cpus"]} if cpus else {}
    slices = cpus[0]["cpus"][0]["slices"] if cpus else []
    return {"unit": record["unit"], "detours": detours, "accesses": accesses, "per_cpu": per_cpu, "slices": slices}


RANKS = re.compile(r"(\d+) ranks:")


def messages_of(text: str) -> dict:
    """The tables of messages.sh: by the number of ranks, pattern and bytes, thousands of instructions of each way."""
    tables: dict[str, list[dict]] = {}
    columns: list[str] = []
    rows: list[dict] | None = None
    for line in text.splitlines():
        words = line.split()
        if match := RANKS.fullmatch(line.strip()):
            rows = tables.setdefault(match[1], [])
        elif words[:2] == ["pattern", "bytes"]:
            columns = words
        elif rows is not None and len(words) == len(columns) > 2:
            numbers = [float(word) for word in words[1:]]
            rows.append({"pattern": words[0], **dict(zip(columns[1:], numbers, strict=True))})
    if not any(tables.values()):
        raise ValueError("no table of messages")
    return tables


def messages(out: Path) -> dict:
    return messages_of((out / "stdout").read_text())


def windows(out: Path) -> dict:
    """What each operation costs, in instructions."""
    lines = re.findall(r"^ *(\S.*?) {2,}([\d.]+)$", (out / "stdout").read_text(), re.MULTILINE)
    if not lines:
        raise ValueError("no figure of windows")
    return {name.strip(): float(value) for name, value in lines}


def lines(out: Path) -> dict:
    """Lines of JSON among what else a script has printed."""
    found = [json.loads(line) for line in (out / "stdout").read_text().splitlines() if line.startswith('{"')]
    if not found:
        raise ValueError("no line of JSON")
    return {"rows": found}


def vm(out: Path) -> dict:
    record = _json(out / "vm.json")
    rows = []
    for one in record["results"]:
        rows.append(
            {
                "workload": one["work"]["workload"],
                "pages": one["work"]["pages"],
                "paging": one["paging"],
                "method": one["method"],
                "ratio": one["ratio"],
                "run": one["figures"]["run"],
                "exits": sum(one["exits"].values()),
                "entries": one["entries"],
            }
        )
    if not rows:
        raise ValueError("no result")
    return {"unit": record["unit"], "left_out": record["left_out"], "rows": rows}


READERS: dict[str, Callable[[Path], dict]] = {
    one.__name__: one
    for one in (
        alloc, colocation, colocation_hosts, colocation_ranks,
        faults, lines, messages, noise, vm, windows,
    )
}  # fmt: skip

# SPDX-License-Identifier: GPL-2.0
"""From the files of the runs to figures; bench/README.md describes the members."""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path
from statistics import median

from demo import checks, plan, tracefile


class RunResultError(Exception):
    """The files of a run do not give its figures."""


def _is_in(ranges: list[tuple[int, int]], address: int) -> bool:
    """Whether @address lies in one of the sorted, disjoint @ranges."""
    at = bisect_right(ranges, (address, 1 << 64)) - 1
    return at >= 0 and address < ranges[at][1]


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _traced(directory: Path, trace: tracefile.ProcessTrace) -> dict:
    """Faults, stalls and memory of a run that recorded them."""
    samples = json.loads((directory / "samples.json").read_text())
    if not samples:
        raise RunResultError("its memory was never sampled: it ended too soon")
    images = _merge([tuple(r) for sample in samples for r in sample["image_ranges"]])
    all_faults = trace.faults_after_start()
    faults = [fault for fault in all_faults if not _is_in(images, fault.address)]
    image_faults = [fault for fault in all_faults if _is_in(images, fault.address)]
    calls = trace.calls_after_start()
    worst_call = max(calls, key=lambda call: call.seconds, default=None)
    peak = max(samples, key=lambda s: s["memory_2m_bytes"] + s["memory_4k_bytes"])
    contexts = [sample["hpmmap"] for sample in samples if sample["hpmmap"]]
    return {
        "memory_faults": len(faults),
        "image_faults": len(image_faults),
        "fault_seconds": sum(fault.seconds for fault in faults),
        "worst_fault_seconds": max((f.seconds for f in faults), default=0.0),
        "worst_image_fault_seconds": max((f.seconds for f in image_faults), default=0.0),
        "call_seconds": sum(call.seconds for call in calls),
        "worst_call_seconds": worst_call.seconds if worst_call else 0.0,
        "worst_call": worst_call.name if worst_call else None,
        "memory": {key: value for key, value in peak.items() if key.endswith("_bytes")},
        "hpmmap": contexts[-1] if contexts else None,
    }


def _one(run: plan.Run, directory: Path, facts: dict) -> tuple[dict, list[str]]:
    """Figures of one run and the lines that must be the same everywhere."""
    app = plan.app(run.app)
    if facts["lost_events"]:
        raise RunResultError(f"{facts['lost_events']} events of the kernel trace were lost")
    text = (directory / "trace.txt").read_text(errors="replace")
    trace = tracefile.read(text, app.process)
    figures = {
        "run_seconds": trace.run_seconds,
        "total_seconds": trace.total_seconds,
        "vmstat": facts["vmstat"],
        "host_wait_part": facts["host_wait_part"],
    }
    if run.traced:
        figures |= _traced(directory, trace)
        context = figures["hpmmap"]
        if plan.manager(run.manager).pool == "hpmmap" and context is None:
            raise RunResultError("the process was not registered with HPMMAP")
        if plan.manager(run.manager).pool == "hugetlb" and not figures["memory"]["hugetlb_bytes"]:
            raise RunResultError("the process got no page of hugetlbfs")
    log = (directory / app.marker).read_text(errors="replace")
    return figures, checks.READERS[run.app](log)


def collect(runs: list[plan.Run], runs_dir: Path, begin: dict, facts: dict, failures: dict) -> dict:
    """The record of the whole demonstration."""
    expected: dict[str, tuple[str, list[str]]] = {}
    entries = []
    for run in runs:
        entry = {
            "id": run.id,
            "manager": run.manager,
            "app": run.app,
            "condition": run.condition,
            "traced": run.traced,
        }
        entries.append(entry)
        if run.id in failures:
            entry["error"] = failures[run.id]
            continue
        if run.id not in facts:
            entry["error"] = "it did not end: the guest stopped before"
            continue
        try:
            figures, lines = _one(run, runs_dir / run.id, facts[run.id])
        except (RunResultError, tracefile.TraceError, checks.ResultError, OSError) as error:
            entry["error"] = str(error)
            continue
        entry |= figures
        first, same = expected.setdefault(run.app, (run.id, lines))
        differs = checks.difference(same, lines)
        if differs:
            entry["error"] = f"its results are not those of {first}: {differs}"
    return {
        "guest": begin,
        "runs": entries,
        "results": {app: lines for app, (_, lines) in expected.items()},
        "summary": summary(entries),
    }


def summary(entries: list[dict]) -> list[dict]:
    """One element for each manager, application and condition."""
    cells: dict[tuple[str, str, str], list[dict]] = {}
    for entry in entries:
        key = (entry["manager"], entry["app"], entry["condition"])
        cells.setdefault(key, []).append(entry)
    out = []
    for (manager, app, condition), group in cells.items():
        times = [e["run_seconds"] for e in group if not e["traced"] and "error" not in e]
        traced = next((e for e in group if e["traced"] and "error" not in e), None)
        out.append(
            {
                "manager": manager,
                "app": app,
                "condition": condition,
                "run_seconds": median(times) if times else None,
                "run_seconds_all": times,
                "memory_faults": traced and traced["memory_faults"],
                "image_faults": traced and traced["image_faults"],
                "worst_fault_seconds": traced and traced["worst_fault_seconds"],
                "worst_call_seconds": traced and traced["worst_call_seconds"],
                "worst_call": traced and traced["worst_call"],
                "memory": traced and traced["memory"],
                "errors": [f"{e['id']}: {e['error']}" for e in group if "error" in e],
            }
        )
    return out

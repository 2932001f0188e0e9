# SPDX-License-Identifier: GPL-2.0
"""The table on the terminal and the picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from demo import plan

MISSING = "n/a"
# Part of a run that the guest may wait for a CPU before the table says so.
BUSY = 0.05
_FIGURES = (
    "Runtime",
    "Faults",
    "Worst\nfault",
    "Worst\ncall",
    "MB in\n2M pages",
    "MB in\n4K pages",
)
COLOURS = {"alone": "#4477aa", "neighbour": "#ee6677"}
LABELS = {"alone": "alone", "neighbour": "next to a neighbour"}


def _cells(record: dict) -> dict[tuple[str, str, str], dict]:
    return {(c["manager"], c["app"], c["condition"]): c for c in record["summary"]}


def duration(seconds: float | None) -> str:
    """A time with a unit that fits."""
    if seconds is None:
        return MISSING
    if seconds == 0:
        return "none"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"


def _count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def _mib(value: int | None) -> str:
    return MISSING if value is None else f"{value / plan.MIB:.1f}"


def _shown(record: dict, kind) -> list:
    """Managers or applications that the record has runs of, in order."""
    return [x for x in kind if any(x.key in (c["manager"], c["app"]) for c in record["summary"])]


def table(console: Console, record: dict) -> None:
    """Print one table for each application, then what the columns mean."""
    cells = _cells(record)
    for app in _shown(record, plan.APPS):
        out = Table(
            title=f"{app.label}, Linux {record['guest'].get('kernel', MISSING)}",
            box=None,
            padding=(0, 2, 0, 0),
        )
        for name in ("Memory\nmanager", "Next to\nneighbour"):
            out.add_column(name, no_wrap=True)
        for name in _FIGURES:
            out.add_column(name, justify="right", no_wrap=True)
        for manager in _shown(record, plan.MANAGERS):
            for condition in plan.CONDITIONS:
                cell = cells.get((manager.key, app.key, condition), {})
                memory = cell.get("memory") or {}
                out.add_row(
                    manager.label,
                    {"alone": "no", "neighbour": "yes"}[condition],
                    duration(cell.get("run_seconds")),
                    _count(cell.get("memory_faults")),
                    duration(cell.get("worst_fault_seconds")),
                    duration(cell.get("worst_call_seconds")),
                    _mib(memory.get("memory_2m_bytes")),
                    _mib(memory.get("memory_4k_bytes")),
                )
        console.print(out)
        console.print()
    console.print(
        "Runtime: from the end of start-up to exit, without recording. "
        "Faults: page faults after start-up on heap, stacks and anonymous memory; "
        "memory that HPMMAP fills within a call is no fault. "
        "Worst fault, worst call: the longest stalls after start-up, of these faults and of a call "
        "that changes memory (mmap, munmap, mremap, mprotect, madvise, brk), where HPMMAP "
        "does its work. "
        "Pages: that memory at its peak.",
        style="dim",
    )
    for cell in record["summary"]:
        for error in cell["errors"]:
            console.print(f"{MISSING}: {error}", style="yellow", markup=False, highlight=False)
    waits = [run["host_wait_part"] for run in record["runs"] if "host_wait_part" in run]
    busy = [part for part in waits if part > BUSY]
    if busy:
        console.print(
            f"This machine was busy: in {len(busy)} of {len(waits)} runs the guest waited for a CPU for "
            f"more than {BUSY:.0%} of the time (at most {max(busy):.0%}). Runtimes and stalls include it.",
            style="yellow",
            highlight=False,
        )
    same = [plan.app(key).label for key in record["results"]]
    if same and not any("error" in run for run in record["runs"]):
        console.print(
            f"Results of {' and '.join(same)}: the same under all managers, all checks passed.",
            style="green",
        )


def picture(path: Path, record: dict) -> None:
    """Bars of runtime, faults and worst stall for each manager."""
    cells = _cells(record)
    apps = _shown(record, plan.APPS)
    managers = _shown(record, plan.MANAGERS)
    panels = (
        ("Runtime in s", "run_seconds", 1, "{:.1f}", False),
        ("Page faults after start-up", "memory_faults", 1, "{:,.0f}", True),
        ("Worst page fault in ms", "worst_fault_seconds", 1e3, "{:.1f}", True),
        ("Worst memory call in ms", "worst_call_seconds", 1e3, "{:.1f}", True),
    )
    figure = Figure(figsize=(17, 3.6 * len(apps)), layout="constrained")
    axes = figure.subplots(len(apps), len(panels), squeeze=False)
    for row, app in zip(axes, apps, strict=True):
        for axis, (title, member, scale, form, logarithmic) in zip(row, panels, strict=True):
            for n, condition in enumerate(plan.CONDITIONS):
                values = [(cells.get((m.key, app.key, condition)) or {}).get(member) for m in managers]
                bars = axis.bar(
                    [x + (n - 0.5) * 0.4 for x in range(len(managers))],
                    [(v or 0) * scale for v in values],
                    width=0.38,
                    color=COLOURS[condition],
                    label=LABELS[condition],
                )
                texts = [MISSING if v is None else form.format(v * scale) for v in values]
                axis.bar_label(bars, texts, fontsize=7, padding=1)
            if logarithmic:
                axis.set_yscale("symlog", linthresh=1)
            axis.margins(y=0.15)
            axis.set_xticks(range(len(managers)), [m.label for m in managers], fontsize=8)
            axis.set_title(f"{app.label}: {title}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    kernel = record["guest"].get("kernel", MISSING)
    figure.suptitle(f"One job, four memory managers (Linux {kernel}, 2 CPUs, guest)")
    figure.savefig(path, dpi=150)

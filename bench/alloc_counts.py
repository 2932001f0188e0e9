# SPDX-License-Identifier: GPL-2.0
"""Counts the instructions of allocation under several memory managers.

Boots a guest with one CPU whose clock advances by one nanosecond with each
instruction, runs build/bench/alloc in it for each method, prints a table and
writes JSON; bench/README.md describes both.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from statistics import median

from hpmmap_guest import Guest, GuestError, kernels
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
SIZES = {"2M": 2 * MIB, "128M": 128 * MIB, "1G": 1024 * MIB}
PEERS = ("4k", "4k-populate", "thp", "thp-populate", "hugetlb", "hugetlb-populate")
OURS = "hpmmap"
FIGURES = ("map", "touch", "unmap", "total", "loop", "worst_touch", "faults")
# The emulator counts each round of a repeated string instruction. With the
# bytewise ones the count would be that of zeroed bytes and little else.
# The clock leaps while the CPU idles, which self tests take for a time-out.
KERNEL_OPTIONS = "clearcpuid=erms,fsrm cryptomgr.notests=1"
# Repetitions whose totals lie within this part of the median agree.
AGREE = 0.01


class BenchError(Exception):
    """The benchmark gave no valid figures; the text says why."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run-alloc", description=__doc__)
    parser.add_argument("--kver", help="kernel version or series (default: the newest)")
    parser.add_argument(
        "--size", choices=SIZES, nargs="+", default=["128M"], help="region sizes (default 128M)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="repetitions (default 3)")
    parser.add_argument(
        "--methods",
        choices=[*PEERS, OURS],
        nargs="+",
        default=[*PEERS, OURS],
        help="only these methods",
    )
    parser.add_argument(
        "--json",
        type=Path,
        help="where the figures go (build/bench/alloc-<kernel version>.json)",
    )
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat {args.repeat}: must be at least 1")
    return args


def guest_script(methods: list[str], sizes: list[int], repeat: int) -> str:
    """Runs every method for every size, each in its own process."""
    alloc = shlex.quote(str(ROOT / "build/bench/alloc"))
    hpmmap = shlex.quote(str(ROOT / "build/hpmmap"))
    # One block more than the region: the rest of the process needs some too.
    pages = max(sizes) // (2 * MIB) + 8
    pool = max(sizes) // MIB + 128
    # The pause lets the system finish its start.
    lines = ["set -eu", "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled", "sleep 10"]
    for method in methods:
        prefix = ""
        if method.startswith("hugetlb"):
            lines.append(f"echo {pages} >/proc/sys/vm/nr_hugepages")
            lines.append(
                f"[ $(cat /proc/sys/vm/nr_hugepages) -eq {pages} ] || "
                f"{{ echo 'fewer than {pages} pages of 2 MB could be reserved'; exit 1; }}"
            )
        if method == OURS:
            lines.append(f"{hpmmap} pool add --size {pool}M >/dev/null")
            prefix = f"{hpmmap} run --strict -- "
        for size in sizes:
            lines.append(f"{prefix}{alloc} --method {method} --size {size} --repeat {repeat}")
        if method.startswith("hugetlb"):
            lines.append("echo 0 >/proc/sys/vm/nr_hugepages")
        if method == OURS:
            lines.append(f"{hpmmap} pool remove --all >/dev/null")
    return "\n".join(lines)


def samples_of(stdout: str) -> list[dict]:
    """The JSON lines of alloc among what else the guest printed."""
    return [json.loads(line) for line in stdout.splitlines() if line.startswith('{"method"')]


def summarise(samples: list[dict], method: str, size: int, repeat: int) -> dict:
    """Smallest and median figures of one method and size."""
    mine = [s for s in samples if s["method"] == method and s["size_bytes"] == size]
    if len(mine) != repeat:
        raise BenchError(f"{method}: {len(mine)} results instead of {repeat}")
    totals = [s["total"] for s in mine]
    middle = median(totals)
    spread = max(abs(t - middle) for t in totals) / middle
    return {
        "method": method,
        "size_bytes": size,
        "min": {name: min(s[name] for s in mine) for name in FIGURES},
        "median": {name: median(s[name] for s in mine) for name in FIGURES},
        "spread": spread,
        "agree": spread <= AGREE,
        "repetitions": [{name: s[name] for name in FIGURES} for s in mine],
    }


def with_ratios(summaries: list[dict]) -> list[dict]:
    """Adds, for each size, the total as a multiple of the best peer's."""
    for summary in summaries:
        peers = [
            s["median"]["total"]
            for s in summaries
            if s["size_bytes"] == summary["size_bytes"] and s["method"] in PEERS
        ]
        best = min(peers, default=None)
        summary["ratio_to_best_peer"] = summary["median"]["total"] / best if best else None
    return summaries


def millions(value: float) -> str:
    return f"{value / 1e6:.2f}"


def show(console: Console, kver: str, size: int, summaries: list[dict]) -> None:
    table = Table(
        title=f"Map, touch, unmap {size // MIB} MB; Linux {kver}; millions of instructions",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("Method", no_wrap=True)
    for name in ("Map", "Touch", "Unmap", "Total", "Ratio", "Faults", "Worst", "Spread"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in summaries:
        m, ratio = s["median"], s["ratio_to_best_peer"]
        table.add_row(
            s["method"],
            millions(m["map"]),
            millions(m["touch"]),
            millions(m["unmap"]),
            millions(m["total"]),
            "n/a" if ratio is None else f"{ratio:.2f}",
            f"{m['faults']:,.0f}",
            millions(m["worst_touch"]),
            f"{s['spread']:.2%}" + ("" if s["agree"] else "!"),
        )
    console.print(table)
    console.print(
        "Ratio: total to that of the best peer. Worst: the costliest single touch. "
        "Spread: largest distance of a total from the median of the repetitions "
        "(!: above 1 %, they do not agree).",
        style="dim",
    )


def main() -> int:
    args = arguments()
    console = Console()
    sizes = [SIZES[name] for name in args.size]
    ours = OURS in args.methods
    if ours and not (ROOT / "build/hpmmap").exists():
        console.print("run-alloc: build/hpmmap is missing: run 'make tools'", style="red")
        return 1
    try:
        guest = Guest(
            args.kver or kernels()[-1],
            memory="4G",
            cpus=1,
            icount=True,
            append=KERNEL_OPTIONS,
            movable="1536M",
            load_module=ours,
        )
        total = len(args.methods) * len(sizes) * args.repeat
        with console.status("booting the guest") as status:
            seen = 0

            def follow(stream: str, line: str) -> None:
                nonlocal seen
                if stream == "stdout" and line.startswith('{"method"'):
                    seen += 1
                    status.update(f"{json.loads(line)['method']}: {seen} of {total} done")

            script = guest_script(args.methods, sizes, args.repeat)
            outcome = guest.run(script, timeout=120 * total, boot_timeout=600, on_line=follow)
        if not outcome.ok:
            for line in outcome.stdout.splitlines()[-20:]:
                console.print(f"guest: {escape(line)}", highlight=False, soft_wrap=True)
            raise BenchError(outcome.reason)
        samples = samples_of(outcome.stdout)
        summaries = with_ratios(
            [summarise(samples, m, size, args.repeat) for size in sizes for m in args.methods]
        )
    except (GuestError, ValueError, BenchError) as error:
        console.print(f"run-alloc: {escape(str(error))}", style="red")
        return 1

    for size in sizes:
        show(console, guest.kver, size, [s for s in summaries if s["size_bytes"] == size])
    path = args.json or ROOT / f"build/bench/alloc-{guest.kver}.json"
    record = {
        "benchmark": "alloc",
        "kernel": guest.kver,
        "unit": "instructions",
        "results": summaries,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"Figures: {path}", soft_wrap=True)
    faulted = [s for s in summaries if s["method"] == OURS and s["min"]["faults"]]
    if faulted:
        console.print("run-alloc: HPMMAP took page faults: its memory was not filled", style="red")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

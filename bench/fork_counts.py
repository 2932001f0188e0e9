# SPDX-License-Identifier: GPL-2.0
"""Counts the instructions of fork, execve and wait of a process with much memory.

Boots a guest whose clock counts instructions, runs
build/bench/fork in it for each method, prints a table and writes JSON;
bench/README.md describes both.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from counting import MIB, ROOT, BenchError, counting_guest, millions, run_script, samples_of
from hpmmap_guest import GuestError

PEERS = ("4k", "thp")
# What is copied beside a child begins with pages of Linux, but under strict.
OURS = {"hpmmap": "", "hpmmap-strict": "--strict "}
METHODS = (*PEERS, *OURS)
# Kinds of writes beside a child.
SNAPSHOTS = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run fork", description=__doc__)
    parser.add_argument("--kernel", help="kernel version or series (default: the newest)")
    parser.add_argument("--mib", type=int, default=1024, help="memory of the parent (default 1024)")
    parser.add_argument("--repeat", type=int, default=3, help="forks, one after another (default 3)")
    parser.add_argument(
        "--json",
        type=Path,
        help="where the figures go (build/bench/fork-<kernel version>.json)",
    )
    args = parser.parse_args()
    if args.repeat < 2:
        parser.error(f"--repeat {args.repeat}: must be at least 2")
    if not 2 <= args.mib <= 1024 or args.mib % 2:
        parser.error(f"--mib {args.mib}: must be an even number from 2 to 1024")
    return args


def guest_script(mib: int, repeat: int) -> str:
    hpmmap = shlex.quote(str(ROOT / "build/hpmmap"))
    fork = shlex.quote(str(ROOT / "build/bench/fork"))
    # The programs lie in memory: no time passes while one is read.
    lines = [
        "set -eu",
        "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
        "sleep 10",
        "mount -t tmpfs none /mnt",
        f"cp /bin/busybox {fork} /mnt/",
    ]
    call = f"{mib * MIB} {repeat} /mnt/busybox true"
    lines += [f"/mnt/fork {method} {call}" for method in PEERS]
    lines += [
        f"{hpmmap} pool add --size {(2 * mib + 256 + 127) // 128 * 128}M --leave 256M >/dev/null",
        # What the one has left behind is zeroed meanwhile.
        *(f"{hpmmap} run {options}-- /mnt/fork {method} {call}; sleep 10" for method, options in OURS.items()),
        f"{hpmmap} pool remove --all >/dev/null",
    ]
    return "\n".join(lines)


def show(console: Console, title: str, samples: list[dict], columns: dict[str, Callable[[dict], str]]) -> None:
    """columns: those between the method and what all samples have; what each says of a sample"""
    columns = {
        **columns,
        "Faults": lambda s: f"{s['faults']:,}",
        "Ratio": lambda s: f"{s['ratio_to_best_peer']:.2f}",
    }
    table = Table(title=f"{title}; millions of instructions", box=None, padding=(0, 2, 0, 0))
    table.add_column("Method", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for s in samples:
        table.add_row(s["method"], *(cell(s) for cell in columns.values()))
    console.print(table)


def add_ratios(samples: list[dict], same: str, parts: tuple[str, str]) -> None:
    """To the best peer's sample of the same kind, by the sum of two parts."""
    for s in samples:
        best = min(sum(p[part] for part in parts) for p in samples if p["method"] in PEERS and p[same] == s[same])
        s["ratio_to_best_peer"] = sum(s[part] for part in parts) / best


def main() -> int:
    args = arguments()
    console = Console()
    if not (ROOT / "build/hpmmap").exists():
        console.print("bench/run fork: build/hpmmap is missing: run 'make tools'", style="red")
        return 1
    try:
        guest = counting_guest(args.kernel, memory="6G", movable="3G")
        everything = samples_of(run_script(guest, guest_script(args.mib, args.repeat), 1800, console))
        samples = [s for s in everything if "repetition" in s]
        snapshots = [s for s in everything if "snapshot_writes" in s]
        if len(samples) != len(METHODS) * args.repeat or len(snapshots) != len(METHODS) * SNAPSHOTS:
            raise BenchError(
                f"{len(samples)} and {len(snapshots)} results instead of {args.repeat} and {SNAPSHOTS} each"
            )
        add_ratios(samples, "repetition", ("total", "after"))
        add_ratios(snapshots, "snapshot_writes", ("writes", "gone"))
    except (GuestError, ValueError, BenchError) as error:
        console.print(f"bench/run fork: {escape(str(error))}", style="red")
        return 1

    show(
        console,
        f"fork + execve + wait with {args.mib} MB; Linux {guest.kver}",
        samples,
        {
            "Fork no.": lambda s: str(s["repetition"] + 1),
            "Until the child is gone": lambda s: millions(s["total"]),
            "First write after": lambda s: millions(s["after"]),
        },
    )
    console.print(
        "First write after: what writing to every page costs the parent afterwards, beyond the writing. "
        "Ratio: of the sum of both to that of the best peer's same fork.",
        style="dim",
    )
    show(
        console,
        f"writes to scattered pages of {args.mib} MB while a child has a snapshot",
        snapshots,
        {
            "Pages": lambda s: f"{s['snapshot_writes']:,}",
            "Writes": lambda s: millions(s["writes"]),
            "End of the child": lambda s: millions(s["gone"]),
        },
    )
    path = args.json or ROOT / f"build/bench/fork-{guest.kver}.json"
    record = {
        "benchmark": "fork",
        "kernel": guest.kver,
        "unit": "instructions",
        "results": samples,
        "snapshots": snapshots,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"Figures: {path}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

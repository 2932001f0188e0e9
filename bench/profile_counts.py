# SPDX-License-Identifier: GPL-2.0
"""Tells on which functions the instructions of map, touch and unmap are spent.

Boots a guest whose clock counts instructions, runs build/bench/bench-alloc in it
under a QEMU plugin that writes down each block of instructions executed, and
counts them by the symbols of the guest's kernel; bench/README.md says more.
"""

from __future__ import annotations

import argparse
import bisect
import json
import shlex
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from counting import MIB, ROOT, BenchError, counting_guest, millions, run_script
from hpmmap_guest import GuestError

PLUGIN = ROOT / "build/bench/profile_plugin.so"
METHODS = (
    "4k", "4k-populate", "thp", "thp-populate", "hugetlb", "hugetlb-populate", "hpmmap", "hpmmap-reuse",
    # What Linux's own part costs at least.
    "4k-untouched", "hugetlb-shared",
)  # fmt: skip
# Markers of the worker; see marker.h.
PHASES = {1: "map", 2: "touch", 3: "unmap"}
# Functions that zero what the program gets; what they call counts as their own.
ZEROING = {"hpmmap_block_clear", "folio_zero_user", "clear_huge_page"}
# These zero single pages; those of page tables are no memory of the program.
ZEROING_PAGES = {"clear_page_rep", "clear_page_orig", "clear_page_erms"}
PAGE_TABLES = {"pte_alloc_one", "__pte_alloc", "__pmd_alloc", "__pud_alloc", "__p4d_alloc"}
ADDRESS_MASK = (1 << 48) - 1
MARKER = 0xFFFF
USER = "(user mode)"


class Symbols:
    """Names of kernel addresses, from /proc/kallsyms."""

    def __init__(self, lines: Iterable[str]):
        found: dict[int, str] = {}
        for line in lines:
            address, kind, name = line.split()[:3]
            if kind in "tTwW":
                # The plugin keeps 48 bits of an address; of aliases the first is taken.
                found.setdefault(int(address, 16) & ADDRESS_MASK, name)
        self._addresses = sorted(found)
        self._names = [found[a] for a in self._addresses]
        self._cache: dict[int, tuple[str, bool]] = {}

    def find(self, address: int) -> tuple[str, bool]:
        """The function an address is in, and whether it is its first."""
        if address not in self._cache:
            self._cache[address] = self._look_up(address)
        return self._cache[address]

    def _look_up(self, address: int) -> tuple[str, bool]:
        if not address >> 47:
            return USER, False
        at = bisect.bisect_right(self._addresses, address) - 1
        if at < 0:
            return "(unknown)", False
        return self._names[at], self._addresses[at] == address


@dataclass
class Profile:
    """Instructions of one phase."""

    own: Counter = field(default_factory=Counter)
    """Of each function itself; with all it calls for those in ZEROING."""
    inclusive: Counter = field(default_factory=Counter)
    """Of each function and all it calls."""
    calls: Counter = field(default_factory=Counter)
    stacks: Counter = field(default_factory=Counter)
    """By chain of callers."""
    zeroing: int = 0
    """Spent on zeroing what the program gets."""

    @property
    def total(self) -> int:
        return sum(self.own.values())


def segments(words: array) -> Iterable[tuple[int, list[tuple[int, int]]]]:
    """Phase, and (address, instructions) in order, of each pair of markers."""
    phase, blocks = 0, []
    for what, times in zip(words[::2], words[1::2], strict=True):
        size, address = what >> 48, what & ADDRESS_MASK
        if size != MARKER:
            if phase:
                blocks.append((address, size * times))
        else:
            if phase:
                yield phase, blocks
            phase, blocks = address, []


def profile_of(blocks: Iterable[tuple[int, int]], symbols: Symbols) -> Profile:
    """Counts, with a stack of callers reconstructed from where blocks begin.

    A block at the start of a function is a call (or a jump to it at the end of
    another, which then counts as its caller); one in the middle of a function
    that is on the stack is a return to it.
    """
    profile = Profile()
    stack: list[str] = []
    for address, instructions in blocks:
        name, first = symbols.find(address)
        if first:
            profile.calls[name] += 1
            stack.append(name)
        elif name == USER:
            stack = [USER]
        elif name in stack:
            while stack[-1] != name:
                stack.pop()
        else:
            stack.append(name)
        whole = next((s for s in stack if s in ZEROING), name)
        profile.own[whole] += instructions
        if whole in ZEROING or (name in ZEROING_PAGES and not PAGE_TABLES.intersection(stack)):
            profile.zeroing += instructions
        for entry in set(stack):
            profile.inclusive[entry] += instructions
        profile.stacks[";".join(stack)] += instructions
    return profile


def last_cycle(trace: Path, symbols: Symbols) -> dict[str, Profile]:
    """The profile of each phase of the last cycle in a file of the plugin."""
    words = array("Q")
    words.frombytes(trace.read_bytes())
    newest = {phase: blocks for phase, blocks in segments(words)}
    missing = [name for number, name in PHASES.items() if number not in newest]
    if missing:
        raise BenchError(f"{trace}: no record of {', '.join(missing)}")
    return {name: profile_of(newest[number], symbols) for number, name in PHASES.items()}


@dataclass
class Node:
    """A function where it is called from one chain of callers."""

    own: int = 0
    inclusive: int = 0
    callees: dict[str, Node] = field(default_factory=dict)


def tree_of(stacks: Counter) -> Node:
    root = Node()
    for stack, instructions in stacks.items():
        node = root
        for name in stack.split(";"):
            node = node.callees.setdefault(name, Node())
            node.inclusive += instructions
        node.own += instructions
    return root


def tree_lines(node: Node, blocks: int, least: float, depth: int = 0) -> Iterable[str]:
    """What is called, the costly first; nothing below a number of instructions for 2 MB."""
    for name, callee in sorted(node.callees.items(), key=lambda item: -item[1].inclusive):
        if callee.inclusive < least * blocks:
            break
        yield f"{callee.inclusive / blocks:12,.0f} {callee.own / blocks:12,.0f}  {'  ' * depth}{name}"
        if name not in ZEROING:
            yield from tree_lines(callee, blocks, least, depth + 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run profile", description=__doc__)
    parser.add_argument("--kernel", help="kernel version or series (default: the newest)")
    parser.add_argument("--method", choices=METHODS, default="hpmmap", help="default: hpmmap")
    parser.add_argument("--mib", type=int, default=128, help="size of the region (default 128)")
    parser.add_argument("--rows", type=int, default=40, help="functions to show (default 40)")
    parser.add_argument(
        "--least", type=float, default=25, help="instructions for 2 MB that a call shown has (default 25)"
    )
    parser.add_argument("--out", type=Path, help="for the results (build/bench/profile-KERNEL-METHOD)")
    args = parser.parse_args()
    if not 2 <= args.mib <= 1024 or args.mib % 2:
        parser.error(f"--mib {args.mib}: must be an even number from 2 to 1024")
    return args


def guest_script(method: str, mib: int, kallsyms: Path) -> str:
    alloc = shlex.quote(str(ROOT / "build/bench/bench-alloc"))
    hpmmap = shlex.quote(str(ROOT / "build/hpmmap"))
    pages = mib // 2 + 8
    lines = [
        "set -eu",
        "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
        f"cat /proc/kallsyms >{shlex.quote(str(kallsyms))}",
        "sleep 10",
    ]
    prefix = ""
    if method.startswith("hugetlb"):
        lines.append(f"echo {pages} >/proc/sys/vm/nr_hugepages")
    if method.startswith("hpmmap"):
        lines.append(f"{hpmmap} pool add --size {2 * (mib + 63) // 128 * 128 + 128}M --leave 256M >/dev/null")
        prefix = f"{hpmmap} run --strict -- "
    lines.append(f"{prefix}{alloc} --method {method} --size {mib * MIB}")
    if prefix:
        lines.append(f"{hpmmap} pool remove --all >/dev/null")
    return "\n".join(lines)


def show(console: Console, title: str, profile: Profile, blocks: int, rows: int) -> None:
    console.print(title, highlight=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("Function", no_wrap=True)
    for name in ("Instructions", "per 2 MB", "With callees", "Calls"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, own in profile.own.most_common(rows):
        table.add_row(
            name,
            f"{own:,}",
            f"{own / blocks:,.1f}",
            f"{profile.inclusive[name]:,}",
            f"{profile.calls[name]:,}",
        )
    console.print(table)


def main() -> int:
    args = arguments()
    console = Console()
    # Names of functions are long; the table goes to a file as it is.
    console.width = max(console.width, 110)
    try:
        guest = counting_guest(args.kernel)
        kver = guest.kver
        out = args.out or ROOT / f"build/bench/profile-{kver}-{args.method}"
        out.mkdir(parents=True, exist_ok=True)
        # The guest's changes to other directories stay there.
        with tempfile.TemporaryDirectory(dir=ROOT / "build/bench") as there:
            trace, kallsyms = Path(there) / "trace", Path(there) / "kallsyms"
            guest.qemu = ["-plugin", f"file={PLUGIN},out={trace}"]
            run_script(guest, guest_script(args.method, args.mib, kallsyms), 1800, console)
            with kallsyms.open() as lines:
                symbols = Symbols(lines)
            profiles = last_cycle(trace, symbols)
    except (GuestError, ValueError, BenchError) as error:
        console.print(f"bench/run profile: {escape(str(error))}", style="red")
        return 1

    blocks = args.mib // 2
    for phase, profile in profiles.items():
        title = (
            f"{args.method}, {phase} {args.mib} MB; Linux {kver}: {millions(profile.total)} million "
            f"instructions, {millions(profile.total - profile.zeroing)} without zeroing"
        )
        show(console, title, profile, blocks, args.rows)
        console.print(f"\nCalls, {phase}; instructions for 2 MB, with callees and own")
        for line in tree_lines(tree_of(profile.stacks), blocks, args.least):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print()
        folded = "".join(f"{stack} {count}\n" for stack, count in sorted(profile.stacks.items()))
        (out / f"{phase}.folded").write_text(folded)
    record = {
        "benchmark": "profile",
        "kernel": kver,
        "method": args.method,
        "size_bytes": args.mib * MIB,
        "unit": "instructions",
        "phases": {
            phase: {
                "total": p.total,
                "zeroing": p.zeroing,
                "functions": [
                    {"name": name, "own": own, "with_callees": p.inclusive[name], "calls": p.calls[name]}
                    for name, own in p.own.most_common()
                ],
            }
            for phase, p in profiles.items()
        },
    }
    (out / "profile.json").write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"Figures and stacks for flame graphs: {out}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

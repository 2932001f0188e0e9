# SPDX-License-Identifier: GPL-2.0
"""Tells which cache lines that several CPUs write to a call of mmap or munmap writes to.

Boots guests whose CPUs run at once (QEMU 10), with a rank on each CPU that maps, touches and
unmaps (ranks.c), under a QEMU plugin that counts the kernel's stores by cache line and CPU
(profile/writes.c): with a module that has no stocks (kernel/mem/pool/stock.c), and with one
whose stocks have the size that they have where there are 4 GB for a CPU. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from counting import MIB, ROOT, BenchError, run_script
from hpmmap_guest import Guest, GuestError, kernels, resolve_kernel
from profile_counts import ADDRESS_MASK, Symbols

OUT = ROOT / "build/bench"
PLUGIN = OUT / "writes_plugin.so"
# What is different in the sources of the module.
SHARE = ("mem/pool/alloc.c", "#define STOCK_SHARE 64", "#define STOCK_SHARE 4")
NONE = ("mem/pool/stock.c", "#define ASKED_LEAST 4", "#define ASKED_LEAST UINT_MAX")
VARIANTS = {"no stocks": NONE, "stocks": SHARE}
LOCKS = {"_raw_spin_lock", "_raw_spin_unlock", "native_queued_spin_lock_slowpath"}
LINE = 64


@dataclass
class Line:
    """A cache line."""

    calls: Counter = field(default_factory=Counter)
    """By CPU, those that wrote to it."""
    writes: Counter = field(default_factory=Counter)
    """By function, and whether it is locked."""
    ours: bool = False
    """The module writes to it, too."""
    acquired: int = 0
    """How often, if it has a spinlock and nothing of Linux's."""

    @property
    def moves(self) -> int:
        """From one CPU to another, at most: each has to do with a call on another CPU than that of most."""
        total = self.calls.total()
        return min(total, 2 * (total - max(self.calls.values())))


def lines_of(trace: Path, symbols: Symbols, own: set[str]) -> dict[int, dict[int, Line]]:
    """By marker and address; own: the module's functions."""
    words = array("Q")
    words.frombytes(trace.read_bytes())
    found: dict[int, dict[int, Line]] = defaultdict(lambda: defaultdict(Line))
    for address, what, times in zip(words[::3], words[1::3], words[2::3], strict=True):
        line = found[times >> 48 & 0xFF][address]
        if what:
            name = symbols.find(what & ADDRESS_MASK)[0]
            line.writes[name, bool(what >> 48)] += times & ADDRESS_MASK
            line.ours |= name in own
        else:
            line.calls[times >> 56] += times & ADDRESS_MASK
    for lines in found.values():
        for address, line in lines.items():
            names = {name for name, _ in line.writes}
            # Functions of Linux write to a lock; what it protects follows it.
            if names <= LOCKS and address + LINE in lines:
                line.ours |= lines[address + LINE].ours
            if names <= LOCKS | own:
                line.acquired = line.writes["_raw_spin_lock", True]
    return found


def build(kver: str, name: str, change: tuple[str, str, str]) -> Path:
    to = OUT / f"module-{name.replace(' ', '-')}-{kver}"
    with tempfile.TemporaryDirectory(dir=OUT) as there:
        sources = Path(there) / "kernel"
        shutil.copytree(ROOT / "kernel", sources)
        path, old, new = change
        text = (sources / path).read_text()
        if text.count(old) != 1:
            raise BenchError(f"kernel/{path} has no line '{old}' to be changed: adapt bench/writes_counts.py")
        (sources / path).write_text(text.replace(old, new))
        subprocess.run([ROOT / "scripts/build-module", "--from", sources, "--to", to, kver], check=True)
    return to / "hpmmap.ko"


def calls(mib: int) -> int:
    """Of mmap, and of munmap, by each rank: so many that stocks are filled some times."""
    return max(1280 // mib, 20)


def guest_script(args: argparse.Namespace, kallsyms: Path) -> str:
    sizes = " ".join(f"{mib * MIB} {calls(mib)}" for mib in args.mib)
    return f"""set -eu
. tests/vm/guest/lib.sh
set_pool {args.pool}
hpmmap pool limit --default --size 100% >/dev/null
cat /proc/kallsyms >{kallsyms}
hpmmap run --strict -- {OUT}/ranks {sizes}
"""


def measure(args: argparse.Namespace, kver: str, module: Path, console: Console) -> dict[int, dict[int, Line]]:
    with tempfile.TemporaryDirectory(dir=OUT) as there:
        trace, kallsyms = Path(there) / "trace", Path(there) / "kallsyms"
        guest = Guest(
            kver,
            memory=args.memory,
            cpus=args.cpus,
            parallel=True,
            module=module,
            qemu=["-plugin", f"file={PLUGIN},out={trace}"],
        )
        run_script(guest, guest_script(args, kallsyms), 1800, console)
        with kallsyms.open() as names:
            symbols = Symbols(names)
        with kallsyms.open() as names:
            own = {words[2] for words in map(str.split, names) if words[3:] == ["[hpmmap]"]}
        return lines_of(trace, symbols, own)


def row(name: str, lines: dict[int, Line], cpus: int, cycles: int) -> list[str]:
    ours = [line for line in lines.values() if len(line.calls) > 1 and line.ours]
    return [
        name,
        f"{sum(line.moves for line in ours) / cycles:.2f}",
        f"{sum(line.moves for line in ours if len(line.calls) == cpus) / cycles:.2f}",
        f"{sum(line.acquired for line in ours) / cycles:.2f}",
        f"{sum(n for line in ours for (_, locked), n in line.writes.items() if locked) / cycles:.2f}",
    ]


def show_lines(console: Console, lines: dict[int, Line], cycles: int, rows: int) -> None:
    shared = [(line.moves, address, line) for address, line in lines.items() if len(line.calls) > 1]
    for moves, address, line in sorted(shared, key=lambda item: -item[0])[:rows]:
        who = ", ".join(
            f"{name}{' (locked)' if locked else ''} {n / cycles:.2f}"
            for (name, locked), n in line.writes.most_common(5)
        )
        text = f"  {address:x}{'' if line.ours else ' (Linux)'}: {moves / cycles:.2f}, {len(line.calls)} CPUs: {who}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run writes", description=__doc__)
    parser.add_argument("--kernel", help="kernel version or series (default: the newest)")
    parser.add_argument("--cpus", type=int, default=8, help="CPUs, and ranks (default 8)")
    parser.add_argument("--memory", default="6G", help="of the guest (default 6G)")
    parser.add_argument("--pool", default="4G", help="size of the pool (default 4G: 512M a CPU)")
    parser.add_argument("--rows", type=int, default=0, help="lines to name for each size (default: none)")
    parser.add_argument("mib", type=int, nargs="*", default=[2, 16, 64, 128], help="sizes (default 2 16 64 128)")
    args = parser.parse_args()
    if not 2 <= args.cpus <= 64 or not 1 <= len(args.mib) <= 7:
        parser.error("from 2 to 64 CPUs, and at most seven sizes")
    return args


def main() -> int:
    args = arguments()
    console = Console()
    console.width = max(console.width, 110)
    try:
        kver = resolve_kernel(args.kernel or kernels()[-1])
        found = {}
        for name, change in VARIANTS.items():
            found[name] = measure(args, kver, build(kver, name, change), console)
    except (GuestError, ValueError, BenchError, subprocess.CalledProcessError) as error:
        console.print(f"bench/run writes: {escape(str(error))}", style="red")
        return 1

    console.print(f"Linux {kver}, {args.cpus} CPUs; for each mmap with its munmap", highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("Size", no_wrap=True)
    for name in ("Shared lines", "By all CPUs", "Spinlocks", "Locked writes"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, mib in enumerate(args.mib, 1):
        for name, lines in found.items():
            table.add_row(*row(f"{mib} MB, {name}", lines[number], args.cpus, args.cpus * calls(mib)))
    console.print(table)
    for number, mib in enumerate(args.mib, 1):
        for name, lines in found.items():
            if args.rows:
                console.print(f"\n{mib} MB, {name}:", highlight=False)
                show_lines(console, lines[number], args.cpus * calls(mib), args.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

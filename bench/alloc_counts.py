# SPDX-License-Identifier: GPL-2.0
"""Counts the instructions of allocation under several memory managers.

Boots a guest with one CPU whose clock advances by one nanosecond with each
instruction and runs `hpmmap bench alloc` in it. Options it does not know go to
that command, such as --method and --size. With --threads, and without --icount,
the guest has several CPUs and a clock that tells time.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from counting import ROOT, BenchError, counting_guest, run_script
from hpmmap_guest import Guest, GuestError

# Lines of `hpmmap bench alloc --verbose`.
PROGRESS = re.compile(r"hpmmap: (\d+ of \d+: .*)")
REPORT = "bench-report"
# Of the guest's memory, what pools and huge pages may take.
KERNEL_SHARE_MIB = 1280


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="bench/run alloc", description=__doc__, allow_abbrev=False)
    parser.add_argument("--kernel", help="kernel version or series (default: 6.12)", default="6.12")
    parser.add_argument("--memory", type=int, default=4, metavar="GB", help="memory of the guest (default 4)")
    parser.add_argument(
        "--gigabytes",
        type=int,
        default=0,
        metavar="N",
        help="pages of 1 GB to reserve at boot, for the method hugetlb-1g (default 0)",
    )
    parser.add_argument("--threads", type=int, help="measure throughput with 1 to so many threads and CPUs")
    parser.add_argument(
        "--icount", action="store_true", help="with --threads: one CPU, whose clock counts instructions"
    )
    parser.add_argument("--timeout", type=int, default=5400, help="seconds to give up after (default 5400)")
    parser.add_argument("--out", type=Path, help="directory for the results (build/bench/alloc-KERNEL)")
    args, rest = parser.parse_known_args()
    if args.memory < 2:
        parser.error(f"--memory {args.memory}: must be at least 2")
    if not 0 <= args.gigabytes <= args.memory - 2:
        parser.error(f"--gigabytes {args.gigabytes}: must be at most {args.memory - 2} with --memory {args.memory}")
    if args.threads is not None and args.threads < 1:
        parser.error(f"--threads {args.threads}: must be at least 1")
    return args, rest


def guest_script(out: Path, options: list[str]) -> str:
    """Everything that runs lies in memory: no time passes while a program is read."""
    build = ROOT / "build"
    command = ["/mnt/hpmmap", "bench", "alloc", "--verbose", "--prepare", "--out", str(out), *options]
    library = build / "lib/libhpmmap_jemalloc.so"
    lines = ["set -eu", "mount -t tmpfs none /mnt", "mkdir /mnt/bench"]
    for program in ("hpmmap", "hpmmap-bench"):
        lines.append(f"cp {shlex.quote(str(build / program))} /mnt/")
    lines.append(f"cp {shlex.quote(str(build / 'bench/bench-alloc'))} /mnt/bench/")
    if library.exists():
        lines.append(f"cp {shlex.quote(str(library))} /mnt/")
        command += ["--hpmmap-jemalloc", "/mnt/libhpmmap_jemalloc.so"]
    # The pause lets the system finish its start.
    lines += ["sleep 10", f"echo {REPORT}", shlex.join(command)]
    return "\n".join(lines)


def main() -> int:
    args, rest = arguments()
    console = Console()
    try:
        # At run time there would be no gigabyte that is not movable.
        append = f"hugepagesz=1G hugepages={args.gigabytes}" if args.gigabytes else ""
        movable = f"{args.memory * 1024 - KERNEL_SHARE_MIB}M"
        if args.threads and not args.icount:
            guest = Guest(args.kernel, memory=f"{args.memory}G", cpus=args.threads, movable=movable, append=append)
            options = ["--threads", str(args.threads), *rest]
        else:
            guest = counting_guest(args.kernel, memory=f"{args.memory}G", movable=movable, append=append)
            threads = ["--threads", str(args.threads)] if args.threads else []
            options = ["--icount", *threads, *rest]
        name = f"threads-{guest.kver}" if args.threads else f"alloc-{guest.kver}"
        out = args.out or ROOT / "build/bench" / name
        # The guest's changes to other directories stay there.
        with tempfile.TemporaryDirectory(dir=ROOT / "build/bench") as there:
            stdout = run_script(guest, guest_script(Path(there), options), args.timeout, console, PROGRESS)
            shutil.copytree(there, out, dirs_exist_ok=True)
    except (GuestError, ValueError, BenchError) as error:
        console.print(f"bench/run alloc: {escape(str(error))}", style="red")
        return 1
    report = stdout.split(f"{REPORT}\n", 1)[-1]
    for line in report.splitlines():
        if not PROGRESS.fullmatch(line):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"Figures and plots: {out}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

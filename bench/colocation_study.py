# SPDX-License-Identifier: GPL-2.0
"""Runs the co-location study in a guest.

Boots a guest with two CPUs and runs `hpmmap bench colocation --prepare` in it;
with --icount one CPU whose clock counts instructions. Options it does not know
go to that command, such as --workload and --repeat. A study that was
interrupted goes on with --resume.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from counting import ROOT, BenchError, counting_guest, run_script
from hpmmap_guest import Guest, GuestError

# Lines of `hpmmap bench colocation --verbose`.
PROGRESS = re.compile(r"hpmmap: (.*)")
REPORT = "study-report"


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="bench/run colocation", description=__doc__, allow_abbrev=False)
    parser.add_argument("--kernel", help="kernel version or series (default: 6.12)", default="6.12")
    parser.add_argument("--memory-of-guest", default="4G", metavar="SIZE", help="(default 4G)")
    parser.add_argument(
        "--movable", default="1536M", metavar="SIZE", help="of it, what can be taken offline (default 1536M)"
    )
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of the guest (default 2)")
    parser.add_argument("--icount", action="store_true", help="one CPU, whose clock counts instructions")
    parser.add_argument("--resume", action="store_true", help="go on with the study in the directory")
    parser.add_argument(
        "--replace", action="store_true", help="put the study in the directory aside, as DIRECTORY-before"
    )
    parser.add_argument("--timeout", type=int, default=7200, help="seconds to give up after (default 7200)")
    parser.add_argument("--out", type=Path, help="directory for the study (build/bench/colocation-KERNEL)")
    args, rest = parser.parse_known_args()
    if args.resume and args.replace:
        parser.error("--resume goes on with the study that --replace puts aside: give one of them")
    if args.cpus < 1:
        parser.error(f"--cpus {args.cpus}: must be at least 1")
    return args, rest


def guest_script(out: Path, resume: bool, counts: bool, options: list[str]) -> str:
    """Files that runs make lie in memory; the records do not."""
    which = "--resume" if resume else "--out"
    command = ["hpmmap", "bench", "colocation", "--verbose", which, str(out), "--work", "/mnt", *options]
    lines = ["set -eu", "mount -t tmpfs -o size=90% none /mnt"]
    if not counts:
        # The first use of a page costs the machine that runs the guest one of its
        # own; nobody is to be charged for that.
        lines += [
            "head -c $(awk '/^MemFree/ { print int($2 * 0.8) }' /proc/meminfo)K /dev/zero >/mnt/first",
            "rm /mnt/first",
        ]
    lines += [f"echo {REPORT}", f"{shlex.join(command)} 2>&1"]
    return "\n".join(lines)


def main() -> int:
    args, rest = arguments()
    console = Console()
    try:
        if args.icount:
            guest = counting_guest(args.kernel, memory=args.memory_of_guest, movable=args.movable)
            rest.append("--icount")
        else:
            guest = Guest(args.kernel, memory=args.memory_of_guest, cpus=args.cpus, movable=args.movable)
        name = f"colocation-{guest.kver}{'-icount' if args.icount else ''}"
        out = (args.out or ROOT / "build/bench" / name).resolve()
        if not out.is_relative_to(ROOT):
            raise BenchError(f"--out {out}: the guest can write only below {ROOT}")
        if not args.resume:
            rest.append("--prepare")
            if args.replace and (out / "study.json").exists():
                before = out.with_name(f"{out.name}-before")
                if before.exists():
                    shutil.rmtree(before)
                out.rename(before)
            if (out / "study.json").exists():
                raise BenchError(f"{out} holds a study: go on with --resume, or name another --out")
            if out.exists() and any(out.iterdir()):
                raise BenchError(f"{out} is not empty: name another --out")
        script = guest_script(out, args.resume, args.icount, rest)
        stdout = run_script(guest, script, args.timeout, console, PROGRESS)
    except (GuestError, ValueError, OSError, BenchError) as error:
        console.print(f"bench/run colocation: {escape(str(error))}", style="red")
        return 1
    for line in stdout.split(f"{REPORT}\n", 1)[-1].splitlines():
        if not PROGRESS.fullmatch(line):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

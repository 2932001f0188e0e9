# SPDX-License-Identifier: GPL-2.0
"""Runs the co-location study in a guest.

Boots a guest with two CPUs and runs `hpmmap bench colocation --prepare` in it;
with --icount one CPU whose clock counts instructions. With several numbers of
ranks there is a study for each, in DIRECTORY/ranks-N. Options it does not know
go to that command, such as --workload and --repeat. What hangs is ended and
repeated once. A study that was interrupted goes on with --resume; FILE.log
beside its directory has what was done, and the command to repeat each run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from counting import ROOT, BenchError, counting_guest
from hpmmap_guest import Guest, GuestError
from supervise import Study, StudyFailed, Supervisor

# Where the file of neighbour D is: the guest keeps pages of what lies there.
CACHE = "/run/cached-build/bench/cache"
BOOT_SECONDS = 240
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A process group is told once, and make tells its children once more.
ONCE_SECONDS = 1
# Where the clock counts instructions it leaps while a job hangs: the guest's limit is none then, ours is.
NO_LIMIT = 1000000
# Three quarters of the guest's memory are the job's. As much is movable as leaves the kernel its own.
DEMO_GUEST = {"memory_of_guest": "2G", "movable": "1792M"}
DEMO_STUDY = "--workload phases --memory 1408M --neighbour d --repeat 2"
# A run of it is to have ended a quarter of an hour after it was begun, the report, too.
DEMO_SECONDS = 850


def rank_numbers(text: str) -> list[int]:
    numbers = sorted({int(word) for word in text.split(",")})
    if numbers[0] < 1:
        raise ValueError(f"{numbers[0]} ranks")
    return numbers


def arguments(words: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="bench/run colocation", description=__doc__, allow_abbrev=False)
    parser.add_argument("--demo", action="store_true", help="what `make demo` shows, within 15 minutes")
    parser.add_argument("--kernel", help="kernel version or series (default: 6.12)", default="6.12")
    parser.add_argument("--memory-of-guest", default="4G", metavar="SIZE", help="(default 4G)")
    parser.add_argument(
        "--movable", default="1536M", metavar="SIZE", help="of it, what can be taken offline (default 1536M)"
    )
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of the guest (default 2)")
    parser.add_argument("--icount", action="store_true", help="one CPU, whose clock counts instructions")
    parser.add_argument(
        "--ranks",
        type=rank_numbers,
        metavar="LIST",
        help="ranks of a job, such as 1,2,4,8 (default: that of the command)",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the study in the directory")
    parser.add_argument(
        "--replace", action="store_true", help="put the study in the directory aside, as DIRECTORY-before"
    )
    parser.add_argument(
        "--timeout", type=int, default=7200, help="seconds after which it stops, with what there is (default 7200)"
    )
    parser.add_argument("--out", type=Path, help="directory for the study (build/bench/colocation-KERNEL)")
    demo = {"icount": True, "timeout": DEMO_SECONDS, "out": ROOT / "build/bench/demo", **DEMO_GUEST}
    is_demo = "--demo" in (sys.argv[1:] if words is None else words)
    parser.set_defaults(**(demo if is_demo else {}))
    args, rest = parser.parse_known_args(words)
    if is_demo and not args.resume:
        args.replace = True
        rest = rest or DEMO_STUDY.split()
    if args.resume and args.replace:
        parser.error("--resume goes on with the study that --replace puts aside: give one of them")
    if args.cpus < 1:
        parser.error(f"--cpus {args.cpus}: must be at least 1")
    if args.ranks and args.cpus < args.ranks[-1]:
        parser.error(f"--ranks {args.ranks[-1]}: a rank needs a CPU, see --cpus")
    if args.ranks and len(args.ranks) == 1:
        # One study, as any other.
        rest, args.ranks = [f"--ranks={args.ranks[0]}", *rest], None
    if args.timeout < 1:
        parser.error(f"--timeout {args.timeout}: must be at least 1")
    return args, rest


def guest_script(out: Path, resume: bool, counts: bool, options: list[str]) -> str:
    """Files that runs make lie in memory; the records do not."""
    which = "--resume" if resume else "--out"
    command = ["hpmmap", "bench", "colocation", "--verbose", which, str(out), "--work", "/mnt", "--cache", CACHE]
    # Where the guest has only its console, that is a terminal: lines are wanted, not a bar.
    lines = ["set -eu -o pipefail", "mount -t tmpfs -o size=90% none /mnt"]
    if not counts:
        # The first use of a page costs the machine that runs the guest one of its
        # own; nobody is to be charged for that.
        lines += [
            "head -c $(awk '/^MemFree/ { print int($2 * 0.8) }' /proc/meminfo)K /dev/zero >/mnt/first",
            "rm /mnt/first",
        ]
    return "\n".join([*lines, f"{shlex.join([*command, *options])} 2>&1 | cat"])


def once_more(args: argparse.Namespace, redo: list[str], cell: str) -> str:
    """The command that runs a combination of a study again, alone and as it was, in a study of its own."""
    workload, manager, neighbour = cell.split()
    replaced = {"--workload": workload, "--manager": manager, "--neighbour": neighbour, "--repeat": "1"}
    # Those that the guest gets anyway, or that are this command's as well.
    ours = ("--icount", "--prepare", "--timeout")
    kept = [word for word in redo if word.partition("=")[0] not in (*replaced, *ours)]
    own = ["--kernel", args.kernel, "--memory-of-guest", args.memory_of_guest, "--movable", args.movable]
    own += ["--icount"] if args.icount else ["--cpus", str(args.cpus)]
    own += ["--out", "build/bench/again", "--replace"]
    options = [word for pair in replaced.items() for word in pair]
    return shlex.join(["bench/run", "colocation", *own, *kept, *options])


def replace(out: Path) -> None:
    if not (out / "study.json").exists():
        return
    before = out.with_name(f"{out.name}-before")
    if before.exists():
        shutil.rmtree(before)
    out.rename(before)


def checked_out(args: argparse.Namespace, name: str) -> Path:
    """The directory of the study, ready to begin or to go on."""
    out = (args.out or ROOT / "build/bench" / name).resolve()
    if args.ranks:
        out = out / f"ranks-{args.ranks[0]}"
        # Those of other numbers that were not begun.
        if args.resume and not (out / "study.json").exists():
            args.resume = False
    if not out.is_relative_to(ROOT):
        raise BenchError(f"--out {out}: the guest can write only below {ROOT}")
    if args.resume:
        if not (out / "study.json").exists():
            raise BenchError(f"there is no study in {out}: begin one without --resume")
        return out
    if args.replace:
        replace(out)
    if (out / "study.json").exists():
        raise BenchError(f"{out} holds a study: go on with --resume, or name another --out")
    if out.exists() and any(out.iterdir()):
        raise BenchError(f"{out} is not empty: name another --out")
    return out


class Terminal:
    """Lines that stay, and below them on a terminal one that says what goes on."""

    def __init__(self, console: Console):
        self.console = console
        self.status = console.status("") if console.is_terminal else None
        if self.status:
            self.status.start()

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def now(self, line: str) -> None:
        if self.status:
            self.status.update(escape(line))

    def end(self) -> None:
        if self.status:
            self.status.stop()


def report(out: Path) -> tuple[int, str]:
    """Made of what there is; on this machine, for guests may hang. Its status and what it says."""
    command = [str(ROOT / "build/hpmmap"), "bench", "colocation", "--resume", str(out), "--report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def going_on(args: argparse.Namespace, began: bool) -> str:
    """How to go on with what was interrupted."""
    if args.demo:
        options = ["--resume"] if began else [word for word in sys.argv[1:] if word != "--demo"]
        return shlex.join(["make", "demo", *([f"DEMO_ARGS={shlex.join(options)}"] if options else [])])
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--replace")]
    # The study knows its options; those of the guest are needed again.
    if began:
        words.append("--resume")
    return shlex.join(["bench/run", "colocation", *words])


def supervised(args: argparse.Namespace, rest: list[str], console: Console) -> int:
    """Brings the study to its end, and reports what there is."""
    if args.icount:
        guest = counting_guest(args.kernel, memory=args.memory_of_guest, movable=args.movable)
        options = [*rest, "--icount"]
    else:
        guest = Guest(args.kernel, memory=args.memory_of_guest, cpus=args.cpus, movable=args.movable)
        options = list(rest)
    out = checked_out(args, f"colocation-{guest.kver}{'-icount' if args.icount else ''}")
    if args.ranks and not args.resume:
        options += ["--ranks", str(args.ranks[0])]
    study = Study(out)
    log_path = out.with_name(f"{out.name}.log")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("a" if args.resume else "w") as log_file:

        def log(line: str) -> None:
            print(f"{datetime.datetime.now():%H:%M:%S} {line}", file=log_file, flush=True)

        def boot(resume, gave_up, on_line, watch):
            words = [] if resume and not args.resume else list(options)
            if not resume:
                words += ["--prepare", *(["--timeout", str(NO_LIMIT)] if args.icount else [])]
            words += [word for run in gave_up for word in ("--gave-up", str(run))]
            script = guest_script(out, resume, args.icount, words)
            # The supervisor's limits are nearer.
            return guest.run(script, args.timeout + BOOT_SECONDS, BOOT_SECONDS, on_line=on_line, watch=watch)

        screen = Terminal(console)
        supervisor = Supervisor(
            study, boot, screen, log, args.timeout, again=lambda cell: once_more(args, study.redo(), cell)
        )

        asked = 0.0

        def interrupted(number, frame) -> None:
            nonlocal asked
            if not supervisor.stop:
                supervisor.stop, asked = "interrupted", time.monotonic()
            elif time.monotonic() - asked > ONCE_SECONDS:
                # Asked for twice: at once, and without a word.
                os._exit(128 + number)

        for number in STOPS:
            signal.signal(number, interrupted)
        # scripts/demo keeps back what came earlier.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        log(f"{shlex.join(['bench/run', 'colocation', *sys.argv[1:]])} on {guest.kver}")
        try:
            reason = supervisor.run_all()
        finally:
            screen.end()
        began = study.exists()
        if reason is None:
            status, said = report(out)
            screen.say(said.rstrip())
            screen.say(f"Log: {log_path}")
            return status
        so_far = ""
        if began and study.ended():
            report(out)
            so_far = f"; report of these: {out / 'report.html'}"
        ended = f"{len(study.ended())} of {len(study.plan())} runs" if began else "no run"
        line = f"{reason} after {ended}{so_far}; go on with: {going_on(args, began)}"
        screen.say(line)
        log(line)
        return 130 if supervisor.stop else 0


def main() -> int:
    args, rest = arguments()
    console = Console()
    try:
        # One study for each number of ranks.
        for one in [argparse.Namespace(**{**vars(args), "ranks": [ranks]}) for ranks in args.ranks or []] or [args]:
            status = supervised(one, rest, console)
            if status:
                return status
        return 0
    except (GuestError, ValueError, OSError, BenchError, StudyFailed) as error:
        console.print(f"bench/run colocation: {escape(str(error))}", style="red", soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0
"""Host side of the demonstration: boots the guest, shows progress, reports."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections import deque
from dataclasses import asdict
from pathlib import Path

from hpmmap_guest import Guest, GuestError, kernels
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from demo import hostload, plan, report, results

ROOT = Path(__file__).resolve().parents[2]
TAIL_LINES = 25


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/demo/run",
        description="LAMMPS and hpcc under four memory managers, in a guest.",
    )
    parser.add_argument("--kver", help="kernel version or series (default: the newest)")
    parser.add_argument("--memory", default="4G", help="memory of the guest (default 4G)")
    parser.add_argument(
        "--rounds", type=int, default=1, help="timed rounds beside the traced one (default 1)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/demo", help="where results go (build/demo)")
    parser.add_argument(
        "--managers",
        nargs="+",
        choices=[m.key for m in plan.MANAGERS],
        default=[m.key for m in plan.MANAGERS],
        help="only these memory managers",
    )
    parser.add_argument(
        "--apps",
        nargs="+",
        choices=[a.key for a in plan.APPS],
        default=[a.key for a in plan.APPS],
        help="only these applications",
    )
    parser.add_argument(
        "--large", action="store_true", help="larger problems, for a guest that is not emulated"
    )
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: must be at least 1")
    return args


class Follower:
    """Turns the events of the guest into progress and keeps them."""

    def __init__(self, console: Console, progress: Progress, total: int):
        self._console = console
        self._progress = progress
        self._task = progress.add_task("booting the guest", total=total)
        self.begin: dict = {}
        self.facts: dict[str, dict] = {}
        self.failures: dict[str, str] = {}
        self.problems: list[str] = []
        self.finished = False
        self._load = hostload.Meter()

    def line(self, stream: str, line: str) -> None:
        """A line from the guest; what is no event is shown as it is."""
        try:
            event = json.loads(line)
            kind = event.pop("event")
        except (ValueError, KeyError, TypeError, AttributeError):
            if stream == "stdout" and line.strip():
                self._console.print(f"guest: {escape(line)}", highlight=False)
            return
        if kind == "begin":
            self.begin = event
            self._describe("using all memory once")
        elif kind == "neighbour":
            label = plan.manager(event["manager"]).label
            self._describe(f"{label}: the neighbour moves in")
        elif kind == "start":
            self._load.start()
            self._describe(self._title(event["run"]))
        elif kind in ("end", "failed"):
            run = event.pop("run")
            if kind == "end":
                self.facts[run] = event | {"host_wait_part": self._load.wait_part()}
                if not self._console.is_terminal:
                    self._console.print(f"done: {self._title(run)}", soft_wrap=True)
            else:
                self.failures[run] = event["error"]
                self._console.print(f"[red]failed[/] {run}: {escape(event['error'])}")
            self._progress.advance(self._task)
        elif kind == "problem":
            self.problems.append(event["error"])
            self._console.print(f"[red]problem[/] {escape(event['error'])}")
        elif kind == "finish":
            self.finished = True
            self._describe("done")

    def _describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    @staticmethod
    def _title(run_id: str) -> str:
        manager, app, condition, kind = run_id.split("-")
        where = "next to the neighbour" if condition == "neighbour" else "alone"
        how = "recording faults" if kind == "traced" else "timing"
        return f"{plan.manager(manager).label}: {plan.app(app).label} {where}, {how}"


def show_output(console: Console, directory: Path) -> None:
    """The last lines of what a failed run printed."""
    output = directory / "output"
    if not output.exists():
        return
    with output.open(errors="replace") as file:
        for line in deque(file, maxlen=TAIL_LINES):
            console.print(f"    {escape(line.rstrip())}", highlight=False)


def main() -> int:
    args = arguments()
    console = Console()
    out: Path = args.out.resolve()
    runs_dir = out / "runs"
    shutil.rmtree(runs_dir, ignore_errors=True)
    runs_dir.mkdir(parents=True)

    runs = plan.runs(args.managers, args.apps, args.rounds)
    hpmmap = ROOT / "build/hpmmap"
    with_hpmmap = "hpmmap" in args.managers
    if with_hpmmap and not hpmmap.exists():
        console.print("demo: build/hpmmap is missing: run 'make tools'", style="red")
        return 1
    config = {
        "hpmmap": str(hpmmap),
        "large": args.large,
        "runs": [asdict(run) for run in runs],
    }
    (runs_dir / "config.json").write_text(json.dumps(config, indent=1))

    script = (
        f"cd {shlex.quote(str(ROOT / 'bench'))} && "
        f"exec {shlex.quote(sys.executable)} -S -m demo.guest {shlex.quote(str(runs_dir))}"
    )
    try:
        guest = Guest(
            args.kver or kernels()[-1],
            memory=args.memory,
            cpus=2,
            movable="1536M",
            load_module=with_hpmmap,
        )
        console.print(
            f"{len(runs)} runs in a guest with Linux {guest.kver}, 2 CPUs and {args.memory} of memory"
        )
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            # Runs take many seconds: a short memory would make the estimate jump.
            speed_estimate_period=300,
        ) as progress:
            follower = Follower(console, progress, len(runs))
            longest = max(plan.app(run.app).timeout for run in runs)
            outcome = guest.run(script, timeout=longest * len(runs), on_line=follower.line)
    except (GuestError, ValueError) as error:
        console.print(f"demo: {error}", style="red")
        return 1

    if not follower.facts and not follower.failures:
        console.print(f"[red]no run was started[/]: {escape(outcome.reason)}")
        for line in outcome.dmesg_problems:
            console.print(f"    {escape(line)}", highlight=False)
        return 1
    record = results.collect(runs, runs_dir, follower.begin, follower.facts, follower.failures)
    if follower.problems:
        record["problems"] = follower.problems
    (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    report.table(console, record)
    report.picture(out / "demo.png", record)
    console.print(f"Results: {out / 'results.json'}, picture: {out / 'demo.png'}", soft_wrap=True)

    failed = [run for run in record["runs"] if "error" in run]
    for run in failed:
        console.print(f"[red]failed[/] {run['id']}: {escape(run['error'])}")
        show_output(console, runs_dir / run["id"])
    if not outcome.ok:
        console.print(f"[red]the guest failed[/]: {escape(outcome.reason)}")
        for line in outcome.dmesg_problems:
            console.print(f"    {escape(line)}", highlight=False)
    return 1 if failed or follower.problems or not outcome.ok or not follower.finished else 0


if __name__ == "__main__":
    sys.exit(main())

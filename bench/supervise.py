# SPDX-License-Identifier: GPL-2.0
"""Brings a study in a guest to its end, whatever the guest does.

Each run has a limit near its estimate. What does not end within it is ended,
shown with the guest's state, and repeated once; then it has failed and the rest
goes on. Runs that have ended are in the study's own files, so that nothing is
lost whenever this is interrupted.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hpmmap_guest.guest import HANGS

# What `hpmmap bench colocation --verbose` says.
BEGINS = re.compile(r"hpmmap: (\d+) of (\d+): (\S+ \S+ \S+)")
WARMS_UP = re.compile(r"hpmmap: (\S+) once, not counted")
ENDS = re.compile(r"hpmmap:   (.+)")
# The boot of a machine that has nothing else to do, and a run there of which nothing is known.
BOOT_SECONDS = 15.0
RUN_SECONDS = 30.0
# Beside neighbours the only CPU is shared.
BESIDE = 2.5
# A machine gets busy meanwhile; pools are made and neighbours begin within a run's time, too.
FACTOR = 4.0
GRACE = 60.0
ATTEMPTS = 2
# From the start of a boot to the first word of the command; a boot that fails is repeated once by the guest's own rule.
START_SECONDS = 540.0
# Of the guest's console, before it was asked for its state, and of what it said then.
CONSOLE_LINES = 15
STATE_LINES = 400
STATE_SHOWN = 15


class Outcome(Protocol):
    """What a boot of the guest came to: hpmmap_guest.Result."""

    ok: bool
    reason: str
    exit_status: int | None
    stdout: str
    console: str
    boot_seconds: float | None
    state: list[str]


# Runs the study in a guest until it has ended, or until the second function
# gives a reason: called with the runs that are given up.
Boot = Callable[[bool, list[int], Callable[[str, str], None], Callable[[], str | None]], Outcome]


class StudyFailed(Exception):
    """The study cannot go on; the text says why."""


@dataclass
class Study:
    """The files of a study."""

    out: Path

    def exists(self) -> bool:
        return (self.out / "study.json").exists()

    def plan(self) -> list[str]:
        """What each run is: "phases thp d"."""
        runs = json.loads((self.out / "study.json").read_text())["runs"]
        return [f"{run['workload']} {run['manager']} {run['neighbour']}" for run in runs]

    def redo(self) -> list[str]:
        """The options that plan the same."""
        return json.loads((self.out / "study.json").read_text())["redo"].split()[3:]

    def ended(self) -> list[int]:
        """Runs that have ended; a line that was not written to its end is none."""
        try:
            lines = (self.out / "runs.jsonl").read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        return [json.loads(line)["run"] for line in lines if line]

    def is_complete(self) -> bool:
        return self.exists() and len(self.ended()) == len(self.plan())


@dataclass
class Times:
    """How long runs took on this machine, and what is expected of others."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    # How much slower the machine is than one that has nothing else to do.
    scale: float = 1.0

    def add(self, cell: str, seconds: float) -> None:
        self.seconds.setdefault(cell, []).append(seconds)

    def booted(self, seconds: float) -> None:
        self.scale = max(1.0, seconds / BOOT_SECONDS)

    def estimate(self, cell: str) -> float:
        """Of the same, of what is like it, or of what is usual."""
        if cell in self.seconds:
            return statistics.mean(self.seconds[cell])
        workload, _, neighbour = cell.split()
        is_alone = neighbour == "none"

        def most(alone: bool) -> float | None:
            known = [one for one in self.seconds if one.startswith(f"{workload} ")]
            return max((max(self.seconds[one]) for one in known if one.endswith(" none") == alone), default=None)

        if same := most(is_alone):
            return same
        if other := most(not is_alone):
            return other if is_alone else other * BESIDE
        return RUN_SECONDS * self.scale * (1.0 if is_alone else BESIDE)

    def limit(self, cell: str) -> float:
        return FACTOR * self.estimate(cell) + GRACE * self.scale


class Screen(Protocol):
    """Who is told."""

    def say(self, line: str) -> None:
        """Something that stays."""

    def now(self, line: str) -> None:
        """What is going on, until the next."""


class Supervisor:
    """Runs a study to its end, to a signal, or until its time is over."""

    def __init__(
        self,
        study: Study,
        boot: Boot,
        screen: Screen,
        log: Callable[[str], None],
        seconds: float,
        again: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.study = study
        self.boot = boot
        self.screen = screen
        self.log = log
        self.again = again
        self.clock = clock
        self.deadline = clock() + seconds
        self.times = Times()
        # A signal sets this.
        self.stop: str | None = None
        # What goes on: None while the guest boots.
        self.cell: str | None = None
        self.run: int | None = None
        self.since = clock()
        self.order: list[str] = []

    def run_all(self) -> str | None:
        """None when all runs have ended, else why they have not."""
        late: Counter[str] = Counter()
        gave_up: list[int] = []
        while not self.study.is_complete():
            if reason := self._over():
                return reason
            self._begin(None, None)
            self._tell("booting the guest")
            begun = self.clock()
            outcome = self.boot(self.study.exists(), gave_up, self._line, self._watch)
            if self.study.is_complete():
                break
            if reason := self._over():
                return reason
            if outcome.exit_status is not None:
                # The command itself has ended, and says why.
                last = [line for line in outcome.stdout.splitlines() if line.strip()]
                raise StudyFailed(last[-1] if last else outcome.reason)
            what = self._what()
            self._show(what, outcome, self.clock() - begun)
            late[what] += 1
            if late[what] >= ATTEMPTS:
                if self.run is None:
                    raise StudyFailed(f"{what}: {outcome.reason}, and so it was when it was repeated")
                gave_up.append(self.run)
                self._tell(f"{what} has failed {ATTEMPTS} times: the others go on without it")
            else:
                self._tell(f"{what} is repeated once")
        return None

    def _over(self) -> str | None:
        if self.stop:
            return self.stop
        return "the time is over" if self.clock() >= self.deadline else None

    def _begin(self, run: int | None, cell: str | None) -> None:
        self.run, self.cell, self.since = run, cell, self.clock()

    def _what(self) -> str:
        if self.cell is None:
            return "the guest's start"
        if self.run is None:
            return f"the run of {self.cell.split()[0]} that is not counted"
        return f"run {self.run + 1} ({self.cell})"

    def _tell(self, line: str) -> None:
        self.screen.say(line)
        self.log(line)

    def _announce(self) -> None:
        """The order, and how each is run again, once the plan is there."""
        if self.order or not self.study.exists():
            return
        self.order = self.study.plan()
        self.log(f"the order of the {len(self.order)} runs:")
        for n, cell in enumerate(self.order):
            self.log(f"  {n + 1}: {cell}")
        for cell in dict.fromkeys(self.order):
            self.log(f"{cell} again: {self.again(cell)}")

    def left(self) -> float:
        """Seconds that the runs that are left will take, about."""
        done = set(self.study.ended()) if self.study.exists() else set()
        cells = [cell for n, cell in enumerate(self.order) if n not in done]
        return sum(map(self.times.estimate, cells))

    def _line(self, stream: str, line: str) -> None:
        if stream != "stdout":
            return
        if match := BEGINS.fullmatch(line):
            if self.cell is None:
                self.times.booted(self.clock() - self.since)
            self._announce()
            if self.cell and self.run is None:
                self.times.add(self.cell, self.clock() - self.since)
            self._begin(int(match[1]) - 1, match[3])
            estimate, left = self.times.estimate(match[3]), self.left()
            self._tell(f"{match[1]} of {match[2]}: {match[3]} (about {spoken(estimate)}; {spoken(left)} left)")
        elif match := WARMS_UP.fullmatch(line):
            self.times.booted(self.clock() - self.since)
            self._announce()
            # Whoever manages its memory.
            self._begin(None, f"{match[1]} - none")
            self._tell(f"{match[1]} once, not counted")
        elif self.cell and self.run is not None and (match := ENDS.fullmatch(line)):
            took = self.clock() - self.since
            self.times.add(self.cell, took)
            self._tell(f"  {match[1].split(', about')[0]}, in {spoken(took)}")

    def _watch(self) -> str | None:
        if reason := self._over():
            return reason
        took = self.clock() - self.since
        if self.cell is None:
            self.screen.now(f"booting the guest: {spoken(took)}")
            return f"{HANGS}no word within {spoken(took)}" if took > START_SECONDS else None
        if took > (limit := self.times.limit(self.cell)):
            return f"{HANGS}{self._what()} has not ended within {spoken(limit)}"
        estimate = self.times.estimate(self.cell)
        self.screen.now(
            f"{self._what()}: {spoken(took)} of about {spoken(estimate)}; {spoken(self.left())} left of the study"
        )
        return None

    def _show(self, what: str, outcome: Outcome, took: float) -> None:
        """What is known of a guest that hung or died."""
        self._tell(f"{what}: {outcome.reason} ({spoken(took)} after the boot began)")
        console = outcome.console.splitlines()
        before = console[: len(console) - len(outcome.state)] if outcome.state else console
        for title, lines, shown in (
            ("the last lines of the guest's console", before[-CONSOLE_LINES:], CONSOLE_LINES),
            ("the guest's tasks", outcome.state[:STATE_LINES], STATE_SHOWN),
        ):
            self._tell(f"{title}:" if lines else f"{title}: nothing")
            for n, line in enumerate(lines):
                (self._tell if n < shown else self.log)(f"  | {line}")
            if len(lines) > shown:
                self.screen.say("  | ... (all of it is in the log)")


def spoken(seconds: float) -> str:
    """A time for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"

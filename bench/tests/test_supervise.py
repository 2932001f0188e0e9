# SPDX-License-Identifier: GPL-2.0
"""A study comes to its end whatever its guests do; no guest is booted here."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import colocation_study
import supervise
from supervise import Study, StudyFailed, Supervisor, Times

BENCH = Path(__file__).resolve().parents[1]
CELLS = [f"phases {manager} {beside}" for manager in ("4k", "thp", "hpmmap") for beside in ("none", "d")]


@dataclass
class Outcome:
    reason: str = ""
    exit_status: int | None = None
    stdout: str = ""
    console: str = "one\ntwo"
    boot_seconds: float | None = 1.0
    state: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.reason


class Machine:
    """Boots guests whose runs take a while by a clock of its own."""

    def __init__(self, out: Path, run_seconds: int = 20):
        self.study = Study(out)
        self.now = 0
        self.run_seconds = run_seconds
        self.boots = 0
        self.attempts: list[int] = []
        # How often runs hang, and what happens at a time.
        self.hangs: dict[int, int] = {}
        self.at: dict[int, object] = {}
        self.lines: list[str] = []
        self.shown: list[str] = []
        self.supervisor: Supervisor | None = None

    def clock(self) -> float:
        return self.now

    def say(self, line: str) -> None:
        self.shown.append(line)

    def show_now(self, line: str) -> None:
        pass

    def supervise(self, seconds: float = 1e6) -> str | None:
        screen = type("Screen", (), {"say": staticmethod(self.say), "now": staticmethod(self.show_now)})
        self.supervisor = Supervisor(
            self.study, self.boot, screen, self.lines.append, seconds, again="repeat {}".format, clock=self.clock
        )
        return self.supervisor.run_all()

    def pass_time(self, watch, seconds: float) -> str | None:
        """The reason to end, if there is one meanwhile."""
        while seconds > 0:
            seconds -= 1
            self.now += 1
            if self.now in self.at:
                self.at.pop(self.now)()
            if reason := watch():
                return reason
        return None

    def boot(self, resume, gave_up, on_line, watch) -> Outcome:
        self.boots += 1
        out = self.study.out
        if reason := self.pass_time(watch, 15):
            return Outcome(reason)
        if not resume:
            out.mkdir()
            runs = [dict(zip(("workload", "manager", "neighbour"), cell.split(), strict=True)) for cell in CELLS]
            (out / "study.json").write_text(json.dumps({"runs": runs, "redo": "hpmmap bench colocation --seed=1"}))
            (out / "runs.jsonl").touch()
        # As the command does: what was not written to its end is taken off.
        text = (out / "runs.jsonl").read_text()
        (out / "runs.jsonl").write_text(text[: text.rfind("\n") + 1])
        on_line("console", "hpmmap: 1 of 6: not from the script")
        on_line("stdout", "hpmmap: phases once, not counted")
        if reason := self.pass_time(watch, self.run_seconds):
            return Outcome(reason)
        for n in range(len(self.study.ended()), len(CELLS)):
            on_line("stdout", f"hpmmap: {n + 1} of {len(CELLS)}: {CELLS[n]}")
            if n not in gave_up:
                self.attempts.append(n)
                hangs = self.hangs.get(n, 0) > 0
                self.hangs[n] = self.hangs.get(n, 0) - 1
                if reason := self.pass_time(watch, 1e9 if hangs else self.run_seconds):
                    if random.random() < 0.5:
                        with (out / "runs.jsonl").open("a") as runs:
                            runs.write(f'{{"run": {n}, "fig')
                    return Outcome(reason, console="last words\na task", state=["a task"])
            with (out / "runs.jsonl").open("a") as runs:
                runs.write(json.dumps({"run": n, "error": "gave up" if n in gave_up else None}) + "\n")
            on_line("stdout", "hpmmap:   1.234 thousand million instructions, about 3 minutes left")
        return Outcome(exit_status=0)

    def errors(self) -> list[str | None]:
        return [json.loads(line)["error"] for line in (self.study.out / "runs.jsonl").read_text().splitlines()]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "study")


def test_a_study_runs_to_its_end_and_says_what_it_does(machine):
    assert machine.supervise() is None
    assert machine.study.ended() == list(range(6)) and machine.boots == 1
    text = "\n".join(machine.lines)
    assert "the order of the 6 runs:\n  1: phases 4k none\n" in text
    assert "phases thp d again: repeat phases thp d" in text
    assert "6 of 6: phases hpmmap d (about 20 s; 20 s left)" in machine.shown
    assert "  1.234 thousand million instructions, in 20 s" in machine.shown
    # What has ended is not begun again.
    assert machine.supervise() is None and machine.boots == 1


@pytest.mark.parametrize("seed", range(10))
def test_interrupted_at_ten_random_moments_it_goes_on_and_loses_no_run(machine, seed):
    random.seed(seed)
    ended: list[int] = []
    for _ in range(10):
        machine.at = {machine.now + random.randint(1, 120): lambda: setattr(machine.supervisor, "stop", "interrupted")}
        reason = machine.supervise()
        assert reason in (None, "interrupted")
        now = machine.study.ended()
        assert now[: len(ended)] == ended
        ended = now
    machine.at = {}
    assert machine.supervise() is None
    assert machine.study.ended() == list(range(6)) and machine.errors() == [None] * 6


def test_what_hangs_is_ended_shown_and_repeated_once(machine):
    machine.hangs = {3: 1}
    assert machine.supervise() is None
    assert machine.errors() == [None] * 6
    assert machine.attempts == [0, 1, 2, 3, 3, 4, 5] and machine.boots == 2
    assert "run 4 (phases thp d) is repeated once" in machine.shown
    for line in ("  | last words", "the guest's tasks:", "  | a task"):
        assert line in machine.shown and line in machine.lines
    assert any(line.startswith("run 4 (phases thp d): it hangs: ") for line in machine.shown)


def test_what_hangs_again_has_failed_and_the_rest_goes_on(machine):
    machine.hangs = {1: 9, 4: 9}
    assert machine.supervise() is None
    assert machine.errors() == [None, "gave up", None, None, "gave up", None]
    assert machine.attempts == [0, 1, 1, 2, 3, 4, 4, 5]


def test_a_hang_costs_little_more_than_its_estimate(machine):
    machine.hangs = {5: 1}
    assert machine.supervise() is None
    usual = 15 + 7 * 20
    assert machine.now <= usual + 4 * 20 + 60 + 1 + 15 + 2 * 20


def test_when_the_time_is_over_it_stops(machine):
    machine.hangs = {n: 99 for n in range(6)}
    assert machine.supervise(seconds=200) == "the time is over"
    assert machine.now <= 201
    machine.hangs = {}
    assert machine.supervise() is None and machine.errors() == [None] * 6


def test_a_guest_that_never_starts_is_no_endless_loop(machine):
    machine.boot = lambda *args: Outcome("the guest did not boot within 600 s")
    with pytest.raises(StudyFailed, match="the guest's start: the guest did not boot"):
        machine.supervise()


def test_a_guest_that_says_nothing_hangs(machine):
    machine.boot = lambda resume, gave_up, on_line, watch: Outcome(machine.pass_time(watch, 1e9))
    with pytest.raises(StudyFailed, match="the guest's start: it hangs: no word within"):
        machine.supervise()
    assert machine.now < 2 * supervise.START_SECONDS + 10


def test_what_the_command_refuses_is_said_once(machine):
    def boot(*args):
        machine.boots += 1
        return Outcome("the script ended with status 2", 2, "x\nhpmmap: error: --memory 3: no such size\n")

    machine.boot = boot
    with pytest.raises(StudyFailed, match="--memory 3: no such size"):
        machine.supervise()
    assert machine.boots == 1


def test_estimates_are_of_the_same_or_of_what_is_like_it():
    times = Times()
    usual = times.estimate("phases 4k none")
    assert times.estimate("phases 4k d") > usual
    times.booted(4 * supervise.BOOT_SECONDS)
    assert times.estimate("phases 4k none") == 4 * usual
    times.booted(1.0)
    assert times.estimate("phases 4k none") == usual
    times.add("phases 4k none", 10)
    times.add("phases thp none", 30)
    assert times.estimate("phases 4k none") == 10 and times.estimate("phases hugetlb none") == 30
    assert times.estimate("phases hugetlb d") == 30 * supervise.BESIDE
    times.add("phases thp d", 40)
    assert times.estimate("phases hugetlb d") == 40 and times.estimate("lammps thp none") == usual
    assert times.limit("phases 4k none") > 10


def test_the_demonstration_has_options_of_its_own():
    args, rest = colocation_study.arguments(["--demo"])
    assert args.icount and args.replace and args.timeout < 900
    assert rest == colocation_study.DEMO_STUDY.split()
    again, rest = colocation_study.arguments(["--demo", "--resume"])
    assert not again.replace and rest == [] and again.movable == args.movable
    args, rest = colocation_study.arguments(["--demo", "--workload", "lammps", "--quick"])
    assert rest == ["--workload", "lammps", "--quick"] and args.out == again.out
    args, _ = colocation_study.arguments([])
    assert not args.icount and args.out is None


@pytest.mark.parametrize(
    "words, began, command",
    [
        (["--demo"], False, "make demo"),
        (["--demo"], True, "make demo DEMO_ARGS=--resume"),
        (["--demo", "--quick", "--repeat=1"], False, "make demo 'DEMO_ARGS=--quick --repeat=1'"),
        (["--icount", "--replace"], True, "bench/run colocation --icount --resume"),
        (["--icount", "--resume"], True, "bench/run colocation --icount --resume"),
    ],
)
def test_what_was_interrupted_can_be_gone_on_with(monkeypatch, words, began, command):
    monkeypatch.setattr(sys, "argv", ["colocation_study.py", *words])
    args, _ = colocation_study.arguments()
    assert colocation_study.going_on(args, began) == command


def test_several_numbers_of_ranks_are_several_studies():
    args, rest = colocation_study.arguments(["--ranks", "4,1,2", "--cpus=4", "--quick"])
    assert (args.ranks, rest) == ([1, 2, 4], ["--quick"])
    args, rest = colocation_study.arguments(["--ranks=4", "--cpus=4", "--quick"])
    assert (args.ranks, rest) == (None, ["--ranks=4", "--quick"])
    with pytest.raises(SystemExit):
        colocation_study.arguments(["--ranks=1,8", "--cpus=4"])


def test_a_run_can_be_repeated():
    # Also when it is gone on with, where the options are not given.
    args, _ = colocation_study.arguments(["--demo", "--resume"])
    redo = "--workload=phases,minicg --manager=4k,thp --neighbour=d --repeat=2 --ranks=1 --memory=1408M --timeout=3600"
    words = colocation_study.once_more(args, [*redo.split(), "--icount", "--prepare"], "phases thp d").split()
    assert words[:2] == ["bench/run", "colocation"] and "--icount" in words
    again, study = colocation_study.arguments(words[2:])
    assert again.memory_of_guest == args.memory_of_guest and again.movable == args.movable
    options = "--ranks=1 --memory=1408M --workload phases --manager thp --neighbour d --repeat 1"
    assert again.timeout == colocation_study.arguments([])[0].timeout
    assert study == options.split()


FAKE = """
import os, sys, time
import colocation_study, test_supervise
from pathlib import Path

out = Path(sys.argv.pop(1))

class Fake(test_supervise.Machine):
    kver = "6.12"
    def run(self, script, timeout, boot_timeout, on_line, watch):
        print("booted", flush=True)
        self.hangs = {5: int(os.environ["HANGS"])}
        return self.boot(" --resume " in script, [], on_line, watch)
    def pass_time(self, watch, seconds):
        for _ in range(int(seconds)):
            time.sleep(0.005)
            if reason := watch():
                return reason

colocation_study.ROOT = out.parent
colocation_study.counting_guest = lambda *args, **more: Fake(out, 20)
colocation_study.report = lambda out: (0, "the report")
sys.exit(colocation_study.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line_that_says_how_to_go_on(tmp_path, number):
    out = tmp_path / "study"
    environment = os.environ | {"PYTHONPATH": f"{BENCH}:{BENCH / 'tests'}:{BENCH.parent / 'harness'}"}
    command = [sys.executable, "-c", FAKE, str(out), "--icount", "--out", str(out)]
    random.seed(number)
    # However slow this machine is now: no study ends before it is told to.
    waits = environment | {"HANGS": "1"}
    for words in ([], ["--resume"], ["--resume"]):
        if words and not (out / "study.json").exists():
            continue
        process = subprocess.Popen([*command, *words], text=True, env=waits, stdout=-1, stderr=subprocess.STDOUT)
        assert "booted\n" in (process.stdout.readline(), process.stdout.readline())
        time.sleep(random.uniform(0.2, 0.6))
        process.send_signal(number)
        said = process.communicate(timeout=60)[0].splitlines()
        assert process.returncode == 130, said
        assert not any("Traceback" in line for line in said), said
        assert said[-1].startswith("interrupted after ") and "go on with: " in said[-1], said
        assert sum("go on with" in line for line in said) == 1
    done = subprocess.run(
        [*command, "--resume"], text=True, env=environment | {"HANGS": "0"}, stdout=-1, check=False, timeout=60
    )
    assert done.returncode == 0 and "the report\n" in done.stdout
    assert Study(out).ended() == list(range(6))
    assert "phases thp d again: bench/run colocation " in (tmp_path / "study.log").read_text()

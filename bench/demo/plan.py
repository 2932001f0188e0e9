# SPDX-License-Identifier: GPL-2.0
"""What is run: managers, applications and the order of the runs.

Read by the host and by the guest; standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

# The CPU of the job and the one of the neighbour and of the measurement.
JOB_CPU = 0
OTHER_CPU = 1

# Memory set aside for the job under hugetlbfs and HPMMAP.
POOL_BYTES = 512 * MIB


@dataclass(frozen=True)
class Manager:
    """A way to give an unmodified program its memory."""

    key: str
    label: str
    # Transparent huge pages are switched off for the job, not for the machine:
    # the neighbour gets the same in all runs.
    thp: bool = True
    tunables: str = ""
    pool: str = ""


MANAGERS = (
    Manager("4k", "4 KB pages", thp=False),
    Manager("thp", "THP"),
    # Without mmap_max=0 malloc takes 128 KB to 2 MB from mmap in 4 KB pages.
    Manager(
        "hugetlb",
        "hugetlbfs",
        tunables="glibc.malloc.hugetlb=2:glibc.malloc.mmap_max=0",
        pool="hugetlb",
    ),
    Manager("hpmmap", "HPMMAP", pool="hpmmap"),
)


@dataclass(frozen=True)
class App:
    """A program of the main job, with the file whose opening ends its start-up."""

    key: str
    label: str
    command: tuple[str, ...]
    process: str
    input: str
    input_as: str
    marker: str
    timeout: int
    # For a guest that is not emulated: further arguments, or another line of
    # the input in place of one.
    large_arguments: tuple[str, ...] = ()
    large_input: tuple[str, str] | None = None


APPS = (
    App(
        "lammps",
        "LAMMPS melt",
        ("lmp", "-in", "in.melt"),
        "lmp",
        "lammps.in",
        "in.melt",
        "started.log",
        240,
        large_arguments=("-var", "edge", "40", "-var", "steps", "100"),
    ),
    App(
        "hpcc",
        "hpcc",
        ("hpcc",),
        "hpcc",
        "hpccinf.txt",
        "hpccinf.txt",
        "hpccoutf.txt",
        240,
        large_input=("500          Ns", "3000         Ns"),
    ),
)

CONDITIONS = ("alone", "neighbour")


@dataclass(frozen=True)
class Run:
    """One run of one application."""

    manager: str
    app: str
    condition: str
    # True: faults, stalls and memory are recorded, which costs time;
    # False: only the times of exec, end of start-up and exit.
    traced: bool
    round: int

    @property
    def id(self) -> str:
        kind = "traced" if self.traced else f"timed{self.round}"
        return f"{self.manager}-{self.app}-{self.condition}-{kind}"


def manager(key: str) -> Manager:
    return next(m for m in MANAGERS if m.key == key)


def app(key: str) -> App:
    return next(a for a in APPS if a.key == key)


def runs(managers: list[str], apps: list[str], rounds: int) -> list[Run]:
    """All runs in order: one traced round, then the timed ones.

    A round takes the managers in turn, so that a slow drift of the machine
    meets all of them alike; within a manager the runs next to the neighbour
    follow each other, so that it is started once.
    """
    return [
        Run(m, a, condition, traced=n == 0, round=n)
        for n in range(rounds + 1)
        for m in managers
        for condition in CONDITIONS
        for a in apps
    ]

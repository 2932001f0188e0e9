# SPDX-License-Identifier: GPL-2.0
"""The part of the demonstration that runs in the guest, as root.

    python3 -m demo.guest DIR

DIR holds config.json. Every run leaves DIR/<run id>/; what happens is told on
the standard output, one JSON object with the member "event" a line, for the
host to follow. Standard library only.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

from demo import plan
from demo.measure import Sampler, Tracer, meminfo, vmstat
from demo.neighbour import Neighbour

THP = Path("/sys/kernel/mm/transparent_hugepage")
NR_HUGEPAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
WORK = Path("/run/hpmmap-demo")
HERE = Path(__file__).parent

# What the neighbour's stress-ng leaves free.
ROOM_BYTES = 224 * plan.MIB
REMOVE_SECONDS = 20

PR_SET_THP_DISABLE = 41
MADV_POPULATE_WRITE = 23


class RunError(Exception):
    """A run or its preparation failed; the text says how."""


def tell(event: str, **members) -> None:
    """An event for the host."""
    print(json.dumps({"event": event, **members}), flush=True)


def call(command: list[str]) -> str:
    """Output of a command; RunError with what it printed if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise RunError(f"{' '.join(command)}: exit status {done.returncode}: {said}")
    return done.stdout


def warm_memory() -> None:
    """Use all free memory once.

    The first use of a page of the guest costs the machine that runs the guest
    a page of its own; it must not be charged to whoever gets there first.
    """
    size = meminfo("MemFree") - 192 * plan.MIB
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.madvise(MADV_POPULATE_WRITE)


class HugetlbPool:
    """Pages reserved for hugetlbfs.

    Also held where the job does not use them, so that Linux has the same amount
    of memory to itself under all managers.
    """

    def __enter__(self):
        want = plan.POOL_BYTES // (2 * plan.MIB)
        NR_HUGEPAGES.write_text(f"{want}\n")
        got = int(NR_HUGEPAGES.read_text())
        if got < want:
            NR_HUGEPAGES.write_text("0\n")
            raise RunError(f"hugetlbfs: {got} of {want} pages of 2 MB could be reserved")
        return self

    def __exit__(self, *_):
        NR_HUGEPAGES.write_text("0\n")


class HpmmapPool:
    """Memory blocks handed to HPMMAP, and given back to Linux."""

    def __init__(self, hpmmap: str):
        self._hpmmap = hpmmap

    def __enter__(self):
        size = f"{plan.POOL_BYTES // plan.MIB}M"
        call([self._hpmmap, "pool", "add", "--node", "0", "--size", size])
        return self

    def __exit__(self, *_):
        # The last pages of a job are given up a moment after its end.
        deadline = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                call([self._hpmmap, "pool", "remove", "--all"])
                return
            except RunError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)


class Session:
    """Carries out the runs of one configuration."""

    def __init__(self, directory: Path):
        config = json.loads((directory / "config.json").read_text())
        self.directory = directory
        self.hpmmap = config["hpmmap"]
        self.large = config["large"]
        self.runs = [plan.Run(**run) for run in config["runs"]]
        self.tracer = Tracer([app.marker for app in plan.APPS])
        # The neighbour wants what is left beside the pool, less room for the
        # compilers and for the kernel: the same under all managers.
        free = meminfo("MemAvailable") - plan.POOL_BYTES
        self.neighbour_bytes = free - ROOM_BYTES
        if self.neighbour_bytes < 256 * plan.MIB:
            raise RunError(f"the guest has {free // plan.MIB} MB beside the pool: give it at least 2 GB")

    def all(self) -> None:
        THP.joinpath("enabled").write_text("always\n")
        tell(
            "begin",
            kernel=os.uname().release,
            memory_bytes=meminfo("MemTotal"),
            neighbour_bytes=self.neighbour_bytes,
            pool_bytes=plan.POOL_BYTES,
        )
        warm_memory()
        for (_, key), block in groupby(self.runs, lambda r: (r.round, r.manager)):
            self.block(plan.manager(key), list(block))
        tell("finish")

    def pool(self, manager: plan.Manager):
        if manager.pool == "hpmmap":
            return HpmmapPool(self.hpmmap)
        return HugetlbPool()

    def block(self, manager: plan.Manager, runs: list[plan.Run]) -> None:
        """The runs of a manager within a round, alone and then with company."""
        left = list(runs)
        try:
            with self.pool(manager):
                for condition, group in groupby(runs, lambda r: r.condition):
                    if condition == "neighbour":
                        tell("neighbour", manager=manager.key)
                        with Neighbour(WORK / "neighbour", self.neighbour_bytes) as company:
                            for run in group:
                                left.remove(run)
                                self.attempt(run, company)
                    else:
                        for run in group:
                            left.remove(run)
                            self.attempt(run, None)
        except (RunError, OSError) as error:
            if not left:
                tell("problem", manager=manager.key, error=str(error))
            for run in left:
                tell("failed", run=run.id, error=f"preparation: {error}")

    def attempt(self, run: plan.Run, company: Neighbour | None) -> None:
        tell("start", run=run.id)
        try:
            facts = self.run(run, company)
        except (RunError, OSError) as error:
            tell("failed", run=run.id, error=str(error))
        else:
            tell("end", run=run.id, **facts)

    def command(self, manager: plan.Manager, app: plan.App) -> list[str]:
        mpirun = ["mpirun", "-n", "1", "--allow-run-as-root", "--oversubscribe"]
        # Ranks of one machine need neither a network nor its probing.
        mpirun += ["--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
        if manager.pool == "hpmmap":
            prefix = [self.hpmmap, "run", "--"]
        elif manager.tunables:
            prefix = ["env", f"GLIBC_TUNABLES={manager.tunables}"]
        else:
            prefix = []
        return [*mpirun, *prefix, *app.command, *(app.large_arguments if self.large else ())]

    def input(self, app: plan.App) -> str:
        text = (HERE / app.input).read_text()
        if self.large and app.large_input:
            small, large = app.large_input
            if small not in text:
                raise RunError(f"{app.input} has no line '{small}'")
            text = text.replace(small, large)
        return text

    def run(self, run: plan.Run, company: Neighbour | None) -> dict:
        """Run it, leave its files, return the facts known in the guest."""
        manager, app = plan.manager(run.manager), plan.app(run.app)
        work = WORK / "job"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / app.input_as).write_text(self.input(app))
        keep = self.directory / run.id
        keep.mkdir()

        command = self.command(manager, app)
        before = vmstat()
        self.tracer.start(run.traced)
        with (work / "output").open("wb") as output:
            job = subprocess.Popen(
                command,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: self.enter_job(manager),
            )
            sampler = Sampler(job.pid, app.process) if run.traced else None
            deadline = time.monotonic() + app.timeout
            late = False
            while job.poll() is None:
                if time.monotonic() > deadline:
                    late = True
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()
                    break
                if sampler:
                    sampler.sample()
                time.sleep(1 if sampler else 0.2)
        lost = self.tracer.stop(keep / "trace.txt")
        after = vmstat()

        for name in ("output", app.marker):
            if (work / name).exists():
                shutil.copy(work / name, keep / name)
        if sampler:
            (keep / "samples.json").write_text(json.dumps(sampler.result()))
        if late:
            raise RunError(f"still running after {app.timeout} s: killed")
        if job.returncode:
            raise RunError(f"{' '.join(command)}: exit status {job.returncode}")
        if company:
            company.check()
        return {
            "lost_events": lost,
            "vmstat": {name: after[name] - before[name] for name in after},
        }

    def enter_job(self, manager: plan.Manager) -> None:
        """In the child, before exec: everything a job inherits."""
        import ctypes

        os.sched_setaffinity(0, {plan.JOB_CPU})
        libc = ctypes.CDLL(None, use_errno=True)
        if not manager.thp and libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")
        self.tracer.follow(os.getpid())


def main() -> int:
    directory = Path(sys.argv[1])
    os.sched_setaffinity(0, {plan.OTHER_CPU})
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        Session(directory).all()
    except (RunError, OSError) as error:
        print(f"demo: guest: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

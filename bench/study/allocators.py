# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest that counts instructions as nanoseconds.

Programs on each allocator, with 4 KB pages, THP and HPMMAP. Prints a line of JSON for each: its CPU
time as millions of instructions, without that of its start, the most memory in MB (what is resident, or
taken of the pools), and a digest of its result, which must be the same on all allocators.

They run on a CPU of nohz_full=, where the kernel takes the time at each entry instead of asking 250
times a second who runs. It needs tsc=reliable: without ticks, a clock that the kernel holds for unstable
goes on by a tick at most. The times are those of a cgroup: those of a process lack what it has run since
it last waited.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIB = Path("/usr/lib/x86_64-linux-gnu")
OURS = "hpmmap-jemalloc"
JEMALLOC = f"{LIB}/libjemalloc.so.2"
OURS_JEMALLOC = f"{ROOT}/build/lib/libhpmmap_jemalloc.so:{JEMALLOC}"
# As `hpmmap bench alloc` has it: no more than is needed, and given back.
OURS_CONF = "retain:false,oversize_threshold:2097152"
AT_ONCE = "dirty_decay_ms:0,muzzy_decay_ms:0"
PEERS = {
    "glibc": "",
    "jemalloc": JEMALLOC,
    "tcmalloc": f"{LIB}/libtcmalloc_minimal.so.4",
    "mimalloc": f"{LIB}/libmimalloc.so.2.0",
    "lowmem": JEMALLOC,
}
ALLOCATORS = PEERS | {OURS: OURS_JEMALLOC, "hpmmap-lowmem": OURS_JEMALLOC}
"""What LD_PRELOAD names. `lowmem` gives memory back when it is freed, like the seed's allocator of that name."""
MALLOC_CONF = {"lowmem": AT_ONCE, OURS: OURS_CONF, "hpmmap-lowmem": f"{OURS_CONF},{AT_ONCE}"}
METHODS = {"4k": ("never", PEERS), "thp": ("always", PEERS), "hpmmap": ("always", ALLOCATORS)}
"""The setting of transparent huge pages, and the allocators."""
LESS = {"4k": ("never", PEERS), "hpmmap": ("always", [OURS])}
INPUT = ROOT / "crates/hpmmap-bench/src/colocation/lammps.in"
QUIET = ["-log", "none"]
QUERY = """
import duckdb
base = duckdb.connect(config={"threads": 1})
# A progress bar comes after two seconds, which a clock that leaps may see.
base.execute("set enable_progress_bar = false")
base.sql("create table t as select (range * 7919) % 100003 as k, hash(range) % 1000 as v from range(50000)")
print(base.sql("select k % 5000 as g, count(*), sum(v) from t group by g order by g").fetchall())
print(base.sql("select count(*) from t a join t b on a.k = b.k where a.v < 50").fetchall())
"""
APPS = ROOT / "build/bench/apps"
PYTHON = str(ROOT / "build/venv/bin/python")
CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup/allocators")


@dataclass(frozen=True)
class Program:
    """What it is run on (the seed has huge pages and reuse for two of them), and with which arguments."""

    methods: dict[str, tuple[str, Iterable[str]]]
    file: str
    work: list[str]
    start: list[str]
    """It starts and ends, with all libraries."""


PROGRAMS = {
    "minihydro": Program(METHODS, str(APPS / "minihydro"), ["--json", "--size=400", "--iterations=10"], ["--help"]),
    "miniamr": Program(METHODS, str(APPS / "miniamr"), ["--json", "--size=24", "--iterations=20"], ["--help"]),
    "lammps": Program(LESS, "lmp", ["-in", str(INPUT), *QUIET, "-var", "steps", "2"], ["-in", "/dev/null", *QUIET]),
    "duckdb": Program(LESS, PYTHON, ["-c", QUERY], ["-c", "import duckdb"]),
}


def result_of(program: str, said: str) -> str:
    """What must not depend on the allocator."""
    if program.startswith("mini"):
        report = json.loads(said)
        if not report["verified"]:
            raise ValueError(f"{program} has not verified its result")
        return report["checksum"]
    if program == "lammps":
        # The table of energies; times follow it.
        said = re.search(r"^\s*Step .*?^Loop", said, re.MULTILINE | re.DOTALL)[0]
    return hashlib.sha256(said.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """CPU time in millions of instructions, and the most memory."""

    user: float
    system: float
    mb: float
    said: str


def used() -> dict[str, int]:
    """CPU time of the cgroup in microseconds."""
    return {key: int(value) for key, value in map(str.split, (CGROUP / "cpu.stat").read_text().splitlines())}


def run(command: list[str], allocator: str, method: str) -> Run:
    environment = [f"LD_PRELOAD={ALLOCATORS[allocator]}", f"MALLOC_CONF={MALLOC_CONF.get(allocator, '')}"]
    report = Path("/tmp/report.json")
    launch = ["hpmmap", "run", "--strict", "--report", str(report), "--"] if method == "hpmmap" else []
    enter = ["sh", "-c", f'echo $$ >{CGROUP}/cgroup.procs; exec "$@"', "sh"]
    before = used()
    with subprocess.Popen(
        [*enter, *launch, "env", *environment, *command], stdout=subprocess.PIPE, text=True, cwd="/tmp"
    ) as child:
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise ValueError(f"{command[0]} on {allocator} ended with {child.returncode}")
    time = {key: value - before[key] for key, value in used().items()}
    pool = json.loads(report.read_text())["memory"]["peak_bytes"] if method == "hpmmap" else 0
    # What a process has of the pools is resident, too.
    return Run(time["user_usec"] / 1e3, time["system_usec"] / 1e3, max(usage.ru_maxrss / 1024, pool / (1 << 20)), said)


def measure(name: str, program: Program, allocator: str, method: str) -> dict:
    # The first start reads files.
    _, start = (run([program.file, *program.start], allocator, method) for _ in range(2))
    work = run([program.file, *program.work], allocator, method)
    user, system = work.user - start.user, work.system - start.system
    return {
        "app": name,
        "allocator": f"{allocator}-{method}",
        "total": round(user + system),
        "user": round(user),
        "system": round(system),
        "mb": round(work.mb),
        "result": result_of(name, work.said),
    }


def main() -> None:
    os.environ |= {"TMPDIR": "/tmp", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    os.environ |= {"OMPI_MCA_ess_singleton_isolated": "1"}
    cpu = int((CPUS / "nohz_full").read_text())
    # Linux 6.1 does not boot on two CPUs whose instructions are counted.
    (CPUS / f"cpu{cpu}/online").write_text("1")
    os.sched_setaffinity(0, {cpu})
    CGROUP.mkdir(exist_ok=True)
    subprocess.run(["hpmmap", "pool", "add", "--size", "1536M", "--leave", "256M"], check=True, stdout=sys.stderr)
    for name, program in PROGRAMS.items():
        results = set()
        for method, (setting, allocators) in program.methods.items():
            Path("/sys/kernel/mm/transparent_hugepage/enabled").write_text(setting)
            for allocator in allocators:
                row = measure(name, program, allocator, method)
                results.add(row["result"])
                print(json.dumps(row), flush=True)
        if len(results) != 1:
            raise ValueError(f"{name} has another result on another allocator: {results}")
    subprocess.run(["hpmmap", "pool", "remove", "--all"], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()

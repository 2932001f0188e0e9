# SPDX-License-Identifier: GPL-2.0
"""What the preloaded library of the manager hugetlb-populate does."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1]
LIBRARY = BENCH.parent / "build/bench/populate.so"
MEGABYTES = 8
PROGRAM = f"""
import mmap
resident = lambda: int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS:")).split()[1])
before = resident()
memory = mmap.mmap(-1, {MEGABYTES} << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(resident() - before)
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    subprocess.run(["make", "--silent", "-C", BENCH, "../build/bench/populate.so"], check=True)


def run(**environment: str) -> subprocess.CompletedProcess:
    command = ["/usr/bin/python3", "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_memory_is_there_when_it_is_mapped():
    if os.geteuid() and resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY:
        pytest.skip("this user may not lock memory")
    assert int(run().stdout) < 1024
    done = run(LD_PRELOAD=str(LIBRARY))
    assert done.returncode == 0 and int(done.stdout) >= MEGABYTES << 10, done


def test_a_user_who_may_not_lock_memory_is_told():
    if os.geteuid():
        pytest.skip("only root can take the right away")
    command = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-all", "prlimit", "--memlock=0"]
    command += ["setpriv", "--reuid=65534", "--clear-groups", "env", f"LD_PRELOAD={LIBRARY}", "/bin/true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 127 and done.stderr.startswith("populate: mlockall: "), done

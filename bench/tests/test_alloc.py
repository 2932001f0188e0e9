# SPDX-License-Identifier: GPL-2.0
"""What alloc_counts.py starts in the guest."""

import json
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from alloc_counts import PROGRESS, guest_script
from counting import samples_of

BENCH = Path(__file__).resolve().parents[1]
PROCESSES = [BENCH.parent / "build/bench/bench-alloc", "--pattern", "processes", "--method", "4k", "--threads", "2"]


@pytest.fixture(scope="module")
def built():
    subprocess.run(["make", "--silent", "-C", BENCH, "../build/bench/bench-alloc"], check=True)


def test_the_script_runs_the_command_from_memory():
    last = guest_script(Path("/out dir"), ["--icount", "--size", "2M"]).splitlines()[-1]
    assert last.startswith("/mnt/hpmmap bench alloc --verbose --prepare --out '/out dir' --icount --size 2M")


def test_progress_is_told_from_results():
    assert PROGRESS.fullmatch("hpmmap: 3 of 90: map thp 2M")[1] == "3 of 90: map thp 2M"
    assert not PROGRESS.fullmatch("hpmmap: the worker failed")


def test_samples_are_the_json_lines():
    printed = 'hello\n{"method": "4k", "total": 3}\n{}\n'
    assert samples_of(printed) == [json.loads('{"method": "4k", "total": 3}')]


def test_a_process_that_fails_ends_the_measurement(built):
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (60000 << 10, 60000 << 10))

    command = [*PROCESSES, "--size", str(128 << 20), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited, timeout=60, check=False)
    assert done.returncode == 1 and "a process has failed" in done.stderr


def test_processes_end_with_their_parent(built):
    parent = subprocess.Popen([*PROCESSES, "--size", str(1 << 20), "--rounds", "1000000"])
    listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    until = time.monotonic() + 60
    while len(children := listed.read_text().split()) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()

    def lives(pid: str) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    while (left := [pid for pid in children if lives(pid)]) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(children) == 2 and not left

# SPDX-License-Identifier: GPL-2.0
"""What alloc_counts.py starts in the guest."""

import json
from pathlib import Path

from alloc_counts import PROGRESS, guest_script
from counting import samples_of


def test_the_script_runs_the_command_from_memory():
    last = guest_script(Path("/out dir"), ["--icount", "--size", "2M"]).splitlines()[-1]
    assert last.startswith("/mnt/hpmmap bench alloc --verbose --prepare --out '/out dir' --icount --size 2M")


def test_progress_is_told_from_results():
    assert PROGRESS.fullmatch("hpmmap: 3 of 90: map thp 2M")[1] == "3 of 90: map thp 2M"
    assert not PROGRESS.fullmatch("hpmmap: the worker failed")


def test_samples_are_the_json_lines():
    printed = 'hello\n{"method": "4k", "total": 3}\n{}\n'
    assert samples_of(printed) == [json.loads('{"method": "4k", "total": 3}')]

# SPDX-License-Identifier: GPL-2.0
"""Whether the machine had time for the guest: how long QEMU waited for a CPU."""

from __future__ import annotations

import os
import time
from pathlib import Path


def _children() -> list[int]:
    """All descendants of this process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        parents.setdefault(parent, []).append(int(entry.name))
    found = []
    todo = [os.getpid()]
    while todo:
        mine = parents.get(todo.pop(), [])
        found += mine
        todo += mine
    return found


def _waiting() -> dict[str, float]:
    """Seconds that each thread of our QEMU was ready but did not run, so far."""
    waited = {}
    for pid in _children():
        try:
            if "qemu" not in Path(f"/proc/{pid}/comm").read_text():
                continue
            for task in Path(f"/proc/{pid}/task").iterdir():
                waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue
    return waited


class Meter:
    """Measures from start() to wait_part()."""

    def start(self) -> None:
        self._began = time.monotonic()
        self._waited = _waiting()

    def wait_part(self) -> float:
        """Waiting, of the thread that waited most, as a part of the time that passed."""
        passed = time.monotonic() - self._began
        waited = [now - self._waited.get(task, now) for task, now in _waiting().items()]
        return max(waited, default=0.0) / passed

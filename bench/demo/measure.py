# SPDX-License-Identifier: GPL-2.0
"""Measurement in the guest: kernel trace, samples of a process's memory.

Standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path

from demo import smaps

TRACEFS = Path("/sys/kernel/tracing")
HPMMAP_CONTEXTS = Path("/sys/kernel/hpmmap/contexts")

MEMORY_CALLS = ("mmap", "munmap", "mremap", "mprotect", "madvise", "brk")

# Counters of /proc/vmstat that tell how hard memory was to get.
VMSTAT = (
    "oom_kill",
    "allocstall_normal",
    "allocstall_movable",
    "compact_stall",
    "thp_fault_alloc",
    "thp_fault_fallback",
)


def meminfo(name: str) -> int:
    """A line of /proc/meminfo, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/meminfo has no line {name}")


def vmstat() -> dict[str, int]:
    lines = Path("/proc/vmstat").read_text().splitlines()
    found = dict(line.split() for line in lines)
    return {name: int(found[name]) for name in VMSTAT if name in found}


class Tracer:
    """A trace instance that follows one job and its children.

    Exec, exit and the opening of the marker files are always recorded. Page
    faults and calls that change the address space are on request: recording
    them takes about as long as a small fault.
    """

    _DEFINITIONS = (
        "p:hpmmap_demo/fault_in handle_mm_fault regs=%cx:x64",
        "r:hpmmap_demo/fault_out handle_mm_fault",
    )
    _ALWAYS = (
        "sched/sched_process_exec",
        "sched/sched_process_exit",
        "syscalls/sys_enter_openat",
    )
    _FAULTS = (
        "exceptions/page_fault_user",
        "exceptions/page_fault_kernel",
        "hpmmap_demo/fault_in",
        "hpmmap_demo/fault_out",
    )

    def __init__(self, markers: list[str]):
        with (TRACEFS / "kprobe_events").open("w") as events:
            for definition in self._DEFINITIONS:
                events.write(definition + "\n")
                events.flush()
        self._dir = TRACEFS / "instances" / "hpmmap_demo"
        self._dir.mkdir()
        self._put("buffer_size_kb", "16384")
        self._put("trace_clock", "mono")
        self._put("options/event-fork", "1")
        self._put(
            "events/syscalls/sys_enter_openat/filter",
            " || ".join(f'filename.ustring ~ "*{marker}"' for marker in markers),
        )
        # A fault that the kernel handles for itself, as when it fills memory
        # ahead of use, has no registers of an interrupted instruction.
        self._put("events/hpmmap_demo/fault_in/filter", "regs != 0")
        self._details = list(self._FAULTS)
        for name in MEMORY_CALLS:
            self._details += [f"syscalls/sys_enter_{name}", f"syscalls/sys_exit_{name}"]

    def _put(self, name: str, text: str) -> None:
        """Write a setting; an empty text only empties what the file holds."""
        path = self._dir / name
        try:
            path.write_text(text + "\n" if text else "")
        except OSError as error:
            raise OSError(error.errno, f"cannot write '{text}': {error.strerror}", str(path)) from error

    def _enable(self, events, on: bool) -> None:
        for event in events:
            self._put(f"events/{event}/enable", "1" if on else "0")

    def start(self, details: bool) -> None:
        self._put("trace", "")
        self._put("set_event_pid", "")
        self._enable(self._ALWAYS, True)
        self._enable(self._details, details)

    def follow(self, pid: int) -> None:
        self._put("set_event_pid", str(pid))

    def stop(self, copy_to: Path) -> int:
        """End recording, leave the text, return the number of events lost."""
        self._enable(self._details, False)
        self._enable(self._ALWAYS, False)
        lost = 0
        for stats in (self._dir / "per_cpu").glob("cpu*/stats"):
            for line in stats.read_text().splitlines():
                name, _, value = line.partition(": ")
                if name in ("overrun", "commit overrun", "dropped events"):
                    lost += int(value)
        copy_to.write_bytes((self._dir / "trace").read_bytes())
        return lost


class Sampler:
    """Looks at the memory of the job's process from time to time."""

    def __init__(self, launcher_pid: int, process: str):
        self._launcher = launcher_pid
        self._process = process
        self._pid: int | None = None
        self._samples: list[dict] = []

    def _find(self) -> int | None:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) <= self._launcher:
                continue
            try:
                comm = (entry / "comm").read_text().strip()
            except OSError:
                continue
            if comm == self._process:
                return int(entry.name)
        return None

    def sample(self) -> None:
        """Take a sample if the process is there."""
        if self._pid is None:
            self._pid = self._find()
            if self._pid is None:
                return
        try:
            text = Path(f"/proc/{self._pid}/smaps").read_text()
        except OSError:
            return
        if not text:
            return
        sample = smaps.summary(text)
        sample["hpmmap"] = self._context()
        self._samples.append(sample)

    def _context(self) -> dict[str, int] | None:
        """The module's own figures of the process, if it is registered."""
        try:
            for context in HPMMAP_CONTEXTS.iterdir():
                if int((context / "pid").read_text()) != self._pid:
                    continue
                return {
                    file.name: int(file.read_text())
                    for file in context.iterdir()
                    if re.fullmatch(r"\w+", file.name) and file.is_file()
                }
        except (OSError, ValueError):
            pass
        return None

    def result(self) -> list[dict]:
        return self._samples

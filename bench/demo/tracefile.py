# SPDX-License-Identifier: GPL-2.0
"""Reading the text of a kernel trace: times, page faults, stalls of a process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LINE = re.compile(
    r"^\s*(?P<comm>.+)-(?P<tid>\d+)\s+\[\d+\]\s+\S+\s+(?P<time>\d+\.\d+): "
    r"(?P<event>\w+)(?P<rest>.*)$"
)
_ADDRESS = re.compile(r"address=0x([0-9a-f]+)")
_EXEC = re.compile(r"filename=(\S+) pid=(\d+)")


class TraceError(Exception):
    """The trace does not tell what it should; the text says what is missing."""


@dataclass
class Fault:
    """A page fault: when it was taken, where, and how long it was handled."""

    time: float
    address: int
    seconds: float


@dataclass
class Call:
    """A system call that changes the address space."""

    time: float
    name: str
    seconds: float


@dataclass
class ProcessTrace:
    """What happened to one process from exec to exit."""

    exec_time: float
    start_time: float
    exit_time: float
    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def total_seconds(self) -> float:
        return self.exit_time - self.exec_time

    @property
    def run_seconds(self) -> float:
        """From the end of the start-up to the exit."""
        return self.exit_time - self.start_time

    def faults_after_start(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.time >= self.start_time]

    def calls_after_start(self) -> list[Call]:
        return [call for call in self.calls if call.time >= self.start_time]


@dataclass
class _OpenFault:
    time: float
    address: int
    entered: bool = False
    left: float | None = None


def read(text: str, process: str) -> ProcessTrace:
    """The trace of the last process that executed a program called @process.

    A fault lasts from the exception to the last return of the kernel's fault
    handler that belongs to it: the handler may be called again to retry.
    """
    exec_time = start_time = exit_time = None
    pid = None
    faults: list[Fault] = []
    calls: list[Call] = []
    open_faults: dict[int, _OpenFault] = {}
    open_calls: dict[int, tuple[str, float]] = {}

    def close_fault(tid: int) -> None:
        fault = open_faults.pop(tid, None)
        if fault and fault.left is not None:
            faults.append(Fault(fault.time, fault.address, fault.left - fault.time))

    for line in text.splitlines():
        match = _LINE.match(line)
        if not match or match["comm"].strip() != process:
            continue
        tid, time = int(match["tid"]), float(match["time"])
        event, rest = match["event"], match["rest"]

        if event == "sched_process_exec":
            found = _EXEC.search(rest)
            if found and found[1].rsplit("/", 1)[-1] == process:
                pid, exec_time = int(found[2]), time
                start_time = exit_time = None
                faults.clear()
                calls.clear()
                open_faults.clear()
                open_calls.clear()
        elif pid is None:
            continue
        elif event == "sched_process_exit":
            close_fault(tid)
            if tid == pid:
                exit_time = time
        elif event == "sys_openat" and rest.startswith("("):
            if start_time is None:
                start_time = time
        elif event in ("page_fault_user", "page_fault_kernel"):
            close_fault(tid)
            address = _ADDRESS.search(rest)
            if address:
                open_faults[tid] = _OpenFault(time, int(address[1], 16))
        elif event == "fault_in":
            if tid in open_faults:
                open_faults[tid].entered = True
        elif event == "fault_out":
            fault = open_faults.get(tid)
            if fault and fault.entered:
                fault.left = time
                fault.entered = False
        elif event.startswith("sys_"):
            if rest.startswith("("):
                open_calls[tid] = (event.removeprefix("sys_"), time)
            elif tid in open_calls:
                name, began = open_calls.pop(tid)
                calls.append(Call(began, name, time - began))

    for tid in list(open_faults):
        close_fault(tid)
    if exec_time is None:
        raise TraceError(f"the trace has no exec of {process}")
    if start_time is None:
        raise TraceError(f"the trace has no end of start-up of {process}")
    if exit_time is None:
        raise TraceError(f"the trace has no exit of {process}")
    return ProcessTrace(exec_time, start_time, exit_time, faults, calls)

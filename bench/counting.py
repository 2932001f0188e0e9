# SPDX-License-Identifier: GPL-2.0
"""A guest in which clocks count instructions, and what the counting benchmarks share."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from hpmmap_guest import Guest, kernels

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
# The emulator counts each round of a repeated string instruction. With the
# bytewise ones the count would be that of zeroed bytes and little else.
# The clock leaps while the CPU idles, which self tests take for a time-out.
KERNEL_OPTIONS = "clearcpuid=erms,fsrm cryptomgr.notests=1"


class BenchError(Exception):
    """The benchmark gave no valid figures; the text says why."""


def counting_guest(
    kver: str | None,
    memory: str = "4G",
    movable: str = "1536M",
    load_module: bool = True,
    qemu: Sequence[str] = (),
    append: str = "",
) -> Guest:
    """One CPU; its clock advances by one nanosecond with each instruction."""
    return Guest(
        kver or kernels()[-1],
        memory=memory,
        cpus=1,
        icount=True,
        append=f"{KERNEL_OPTIONS} {append}",
        movable=movable,
        load_module=load_module,
        qemu=qemu,
    )


def run_script(guest: Guest, script: str, timeout: float, console: Console, progress: re.Pattern | None = None) -> str:
    """What the script printed; a BenchError, and its last lines on the console, if it failed.

    progress: lines of the script whose first group says how far it is
    """
    # Ends through the handlers that end the guest.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with console.status("booting the guest") as status:

        def follow(stream: str, line: str) -> None:
            if progress and stream == "stdout" and (match := progress.fullmatch(line)):
                if console.is_terminal:
                    status.update(match[1])
                else:
                    console.print(match[1], highlight=False, markup=False, soft_wrap=True)

        outcome = guest.run(script, timeout=timeout, boot_timeout=600, on_line=follow)
    if not outcome.ok:
        for line in outcome.stdout.splitlines()[-20:]:
            console.print(f"guest: {escape(line)}", highlight=False, soft_wrap=True)
        raise BenchError(outcome.reason)
    return outcome.stdout


def samples_of(stdout: str) -> list[dict]:
    """The lines of JSON objects among what else the guest printed."""
    return [json.loads(line) for line in stdout.splitlines() if line.startswith('{"')]


def millions(value: float) -> str:
    return f"{value / 1e6:.2f}"

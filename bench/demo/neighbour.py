# SPDX-License-Identifier: GPL-2.0
"""The neighbour: a compile job and stress-ng, which together eat the memory.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from demo import plan
from demo.measure import meminfo

FUNCTIONS = 150
SETTLE_SECONDS = 10


def c_source(seed: int) -> str:
    """A C file that keeps an optimising compiler busy."""
    lines = ["#include <stddef.h>", "#include <string.h>", ""]
    for n in range(FUNCTIONS):
        k = seed * FUNCTIONS + n
        lines += [
            f"double work_{k}(double *a, const double *b, size_t n)",
            "{",
            f"\tdouble sum = {k}.0;",
            "\tfor (size_t i = 1; i + 1 < n; i++) {",
            f"\t\ta[i] = b[i - 1] * {k + 1}.5 + b[i + 1] / {k + 2}.25;",
            f"\t\tif (a[i] > {k}.0)",
            f"\t\t\tsum += a[i] * b[i * {n % 7 + 1} % n];",
            "\t\telse",
            "\t\t\tmemmove(a, b, i * sizeof(*a));",
            "\t}",
            "\treturn sum;",
            "}",
            "",
        ]
    return "\n".join(lines)


class Neighbour:
    """Runs on its own CPU from entering to leaving the context."""

    def __init__(self, directory: Path, vm_bytes: int):
        self._directory = directory
        self._vm_bytes = vm_bytes
        self._processes: dict[str, subprocess.Popen] = {}

    def _start(self, name: str, command: list[str]) -> None:
        with (self._directory / f"{name}.out").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {plan.OTHER_CPU}),
            )

    def __enter__(self) -> Neighbour:
        self._directory.mkdir(parents=True, exist_ok=True)
        for seed in range(3):
            (self._directory / f"work{seed}.c").write_text(c_source(seed))
        before = meminfo("MemFree")
        # Without --vm-keep it maps, fills and unmaps its memory over and over.
        self._start(
            "stress-ng",
            [
                *("stress-ng", "--vm", "1", "--vm-bytes", str(self._vm_bytes)),
                *("--vm-method", "write64", "--temp-path", str(self._directory)),
            ],
        )
        self._start(
            "compile",
            ["sh", "-ec", "while :; do for f in *.c; do gcc -O2 -c $f -o work.o; done; done"],
        )
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if before - meminfo("MemFree") > self._vm_bytes * 3 // 4:
                break
            time.sleep(0.2)
        return self

    def check(self) -> None:
        """OSError if a part of the neighbour is gone, with what it printed."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                said = (self._directory / f"{name}.out").read_text(errors="replace")
                raise OSError(
                    f"the neighbour's {name} ended early, "
                    f"exit status {process.returncode}: {said.strip()[-2000:]}"
                )

    def __exit__(self, *_) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

# SPDX-License-Identifier: GPL-2.0
"""Results of the applications: reading them, and whether they are right.

A reader returns lines that must be the same under every memory manager, and
raises ResultError if the application itself says that something is wrong.
"""

from __future__ import annotations

import re


class ResultError(Exception):
    """A result is missing or the application calls it wrong."""


def lammps(log: str) -> list[str]:
    """The thermodynamic output: step, temperature, energies, pressure."""
    lines = log.splitlines()
    heads = [n for n, line in enumerate(lines) if line.split()[:2] == ["Step", "Temp"]]
    ends = [n for n, line in enumerate(lines) if line.startswith("Loop time of")]
    if not heads or not ends or ends[-1] < heads[-1] + 2:
        raise ResultError("LAMMPS: no complete thermodynamic output in its log")
    return [" ".join(line.split()) for line in lines[heads[-1] : ends[-1]]]


# Residuals and errors that do not depend on time. hpcc seeds DGEMM with the
# clock, so that residual is held against hpcc's own threshold only.
_HPCC_SAME = (
    r"^\|\|Ax-b\|\|.*PASSED$",
    r"^Found \d+ errors in \d+ locations",
    r"^ +\d+ tests completed and (passed|failed) residual checks",
    r"^PTRANS_residual=",
    r"^MPIFFT_maxErr=",
    r"^MPIRandomAccess(_LCG)?_Errors=",
    r"^HPL_N=",
    r"^HPL_RnormI=",
    r"^HPL_XnormI=",
    r"^Success=",
)
_HPCC_WRONG = (
    r"FAILED",
    r"^Success=0",
    r"^Node\(s\) with error [1-9]",
    r"^Found [1-9]\d* errors",
    r"^ +[1-9]\d* tests completed and failed",
)
_DGEMM = re.compile(r"^Scaled residual: (\S+)", re.MULTILINE)
_THRESHOLD = 16.0


def hpcc(output: str) -> list[str]:
    """The residual checks of all tests of hpcc."""
    lines = output.splitlines()
    for pattern in _HPCC_WRONG:
        for line in lines:
            if re.search(pattern, line):
                raise ResultError(f"hpcc: {line.strip()}")
    residuals = [float(value) for value in _DGEMM.findall(output)]
    if not residuals or max(residuals) >= _THRESHOLD:
        raise ResultError(f"hpcc: DGEMM residuals {residuals}, all must be below {_THRESHOLD}")
    same = []
    for pattern in _HPCC_SAME:
        found = [" ".join(line.split()) for line in lines if re.search(pattern, line)]
        if not found:
            raise ResultError(f"hpcc: its output has no line like {pattern}")
        same += found
    return same


READERS = {"lammps": lammps, "hpcc": hpcc}


def difference(expected: list[str], got: list[str]) -> str | None:
    """The first line that differs, or None."""
    for one, other in zip(expected, got, strict=False):
        if one != other:
            return f"'{other}' instead of '{one}'"
    if len(expected) != len(got):
        return f"{len(got)} lines instead of {len(expected)}"
    return None

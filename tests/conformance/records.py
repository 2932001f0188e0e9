#!/usr/bin/env python3
"""Compares the observations of the conformance cases, natively and under HPMMAP.

    records.py compare DIRECTORY            the records of one kernel; fails if they differ in
                                            anything that differences.toml does not list
    records.py table OUTPUT [DIRECTORY...]  write the table of all kernels (docs/conformance.md)

A directory has native.jsonl and one file for each set of options of hpmmap run.
"""

import itertools
import json
import re
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "build/conformance/records"
DIFFERENCES = Path(__file__).with_name("differences.toml")
NATIVE = "native"
# Units of 256 MB are for memory placed in gigabytes, and natively for comparison.
_LARGE = "1g"


class RecordError(Exception):
    """A record, or the list of differences, cannot be used."""


@dataclass(frozen=True, order=True)
class Run:
    """One way to run one case."""

    call: str
    case: str
    process: str
    align: str

    @property
    def id(self) -> str:
        return f"{self.call}/{self.case}"

    def __str__(self) -> str:
        return f"{self.id} [{self.process}, {self.align}]"


@dataclass
class Record:
    """The output of one run of the program."""

    kernel: str
    registered: bool
    observed: dict[Run, str]
    not_run: dict[Run, str]


def read_record(path: Path) -> Record:
    """Read one or more concatenated outputs of the program. An incomplete one is an error."""
    record, lines, ended = None, 0, False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            data = json.loads(line)
            if "kernel" in data:
                here = Record(data["kernel"], data["registered"], {}, {})
                record = record or here
                if (record.kernel, record.registered) != (here.kernel, here.registered):
                    raise RecordError(f"{path}:{number}: what is before it was run in another way")
                if number > 1 and not ended:
                    raise RecordError(f"{path}:{number}: what is before it has no end")
                lines, ended = 0, False
                continue
            if "end" in data:
                ended = data["end"] == lines
                continue
            lines += 1
            run = Run(data["call"], data["case"], data["process"], data["align"])
            if run in record.observed or run in record.not_run:
                raise RecordError(f"{path}:{number}: {run} is there twice")
            if "not_run" in data:
                record.not_run[run] = data["not_run"]
            else:
                record.observed[run] = data["observed"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path}:{number}: not a line of a record: {error}") from error
    if record is None or not ended:
        raise RecordError(f"{path}: the record has no end: the program did not run to its end")
    return record


@dataclass(frozen=True)
class Change:
    """One place of a documented difference: a piece of the native observation, and its replacement
    under HPMMAP."""

    difference: int
    cases: tuple[str, ...]
    native: str
    hpmmap: str
    kernels: str = "*"
    aligns: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()

    def concerns(self, run: Run, kernel: str) -> str | None:
        """The pattern of a case that names the run, if any."""
        if not fnmatchcase(kernel, self.kernels):
            return None
        if (self.aligns and run.align not in self.aligns) or (self.processes and run.process not in self.processes):
            return None
        return next((pattern for pattern in self.cases if fnmatchcase(run.id, pattern)), None)

    def apply(self, text: str) -> str:
        return re.sub(self.native, self.hpmmap, text)


@dataclass(frozen=True)
class Differences:
    """The documented differences: their reasons, numbered from 1, and their places."""

    reasons: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def read_differences(path: Path = DIFFERENCES) -> Differences:
    reasons, changes = [], []
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("difference", []), 1):
        try:
            reasons.append(entry.pop("reason"))
            found = entry.pop("change")
            if entry:
                raise RecordError(f"{path}: difference {number}: unknown: {', '.join(entry)}")
            for change in found:
                lists = {k: tuple(v) for k, v in change.items() if k in ("cases", "aligns", "processes")}
                changes.append(Change(number, **{**change, **lists}))
                re.compile(changes[-1].native)
        except (KeyError, TypeError, AttributeError, re.error) as error:
            raise RecordError(f"{path}: difference {number}: {error}") from error
    return Differences(tuple(reasons), tuple(changes))


def explain(native: str, observed: str, candidates: list[Change]) -> list[Change] | None:
    """The smallest set of changes that turns one observation into the other."""
    for number in range(1, len(candidates) + 1):
        for chosen in itertools.combinations(candidates, number):
            text = native
            for change in chosen:
                text = change.apply(text)
            if text == observed:
                return list(chosen)
    return None


@dataclass
class Comparison:
    """The records of one kernel."""

    kernel: str
    placements: list[str]
    identical: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    documented: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    unlisted: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    not_run: dict[str, str] = field(default_factory=dict)
    documented_runs: int = 0
    stale: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [*self.wrong, *itertools.chain.from_iterable(self.unlisted.values()), *self.stale]


def _compare_one(
    result: Comparison,
    native: Record,
    other: Record,
    name: str,
    changes: tuple[Change, ...],
    used: set[tuple[Change, str]],
    ran: set[tuple[Change, str]],
) -> None:
    """Add to the result, to the changes (by pattern) that were used, and to those that could be."""
    for run in sorted(native.observed.keys() | native.not_run.keys()):
        if run not in other.observed and run not in other.not_run:
            continue
        if run in native.not_run and run in other.not_run:
            result.not_run[run.id] = native.not_run[run]
            continue
        if run in native.not_run or run in other.not_run:
            reason = native.not_run.get(run) or other.not_run[run]
            result.unlisted[run.id].append(f"{run} {name}: run in one of the two only: {reason}")
            continue
        before, after = native.observed[run], other.observed[run]
        candidates = []
        for change in changes:
            pattern = change.concerns(run, native.kernel)
            if pattern:
                candidates.append(change)
                ran.add((change, pattern))
        if before == after:
            result.identical[run.id] += 1
            continue
        chosen = explain(before, after, candidates)
        if chosen is None:
            result.unlisted[run.id].append(f"{run} {name}:\n    native: {before}\n    hpmmap: {after}")
            continue
        result.documented_runs += 1
        times = result.documented[run.id]
        used |= {(change, change.concerns(run, native.kernel)) for change in chosen}
        for number in {change.difference for change in chosen}:
            times[number] = times.get(number, 0) + 1


def compare(directory: Path, differences: Differences) -> Comparison:
    native = read_record(directory / f"{NATIVE}.jsonl")
    others = {p.stem: read_record(p) for p in sorted(directory.glob("*.jsonl")) if p.stem != NATIVE}
    if not others:
        raise RecordError(f"{directory}: there is only a native record")
    result = Comparison(native.kernel, sorted(others))
    if native.registered:
        result.wrong.append("the native run was registered")
    used: set[tuple[Change, str]] = set()
    ran: set[tuple[Change, str]] = set()
    every = native.observed.keys() | native.not_run.keys()
    covered: set[Run] = set()
    for name, other in others.items():
        if other.kernel != native.kernel:
            result.wrong.append(f"{name} was run on {other.kernel}, not on {native.kernel}")
        if not other.registered:
            result.wrong.append(f"{name} was not registered")
        unknown = (other.observed.keys() | other.not_run.keys()) - every
        result.wrong += [f"{run} was run as {name} only" for run in sorted(unknown)]
        covered |= other.observed.keys() | other.not_run.keys()
        _compare_one(result, native, other, name, differences.changes, used, ran)
    result.wrong += [f"{run} was run natively only" for run in sorted(every - covered)]
    for change, pattern in sorted(ran - used, key=lambda pair: (pair[0].difference, pair[1])):
        result.stale.append(
            f"difference {change.difference} no longer occurs in {pattern} ('{change.native}'): take it out"
        )
    return result


def label(directory: Path, kernel: str) -> str:
    """The column for the records: 6.12, 6.12-rt, debug, or the directory if that is not a version."""
    series = re.match(r"\d+\.\d+", kernel)
    if directory.name != kernel or not series:
        return directory.name
    flavour = re.search(r"-(debug|rt|cloud)\b", kernel)
    if not flavour:
        return series[0]
    return "debug" if flavour[1] == "debug" else f"{series[0]}-{flavour[1]}"


def _cell(comparison: Comparison, case: str) -> str:
    """The outcome of a case on one kernel, over all options it was run with."""
    identical = comparison.identical.get(case, 0)
    documented = comparison.documented.get(case, {})
    unlisted = comparison.unlisted.get(case)
    parts = []
    if unlisted:
        parts.append(f"**differs** ({len(unlisted)})")
    if documented:
        parts += [f"[difference {n}](#difference-{n}) ({times})" for n, times in sorted(documented.items())]
    if identical:
        parts.append(f"identical ({identical})")
    if case in comparison.not_run:
        parts.append(f"not run: {comparison.not_run[case]}")
    return ", ".join(parts) if parts else "not run"


def table(directories: list[Path], differences: Differences) -> str:
    columns = []
    for directory in directories:
        comparison = compare(directory, differences)
        columns.append((label(directory, comparison.kernel), comparison))
    if not columns:
        raise RecordError(f"no records in {RECORDS}: run the scenario 'conformance' first (make vm)")
    columns.sort(key=lambda c: ("." not in c[0], [int(n) for n in re.findall(r"\d+", c[0])], c[0]))
    cases: dict[str, set[str]] = defaultdict(set)
    for _, c in columns:
        for case in itertools.chain(c.identical, c.documented, c.unlisted, c.not_run):
            cases[case.split("/")[0]].add(case)
    lines = [_PREAMBLE.strip(), ""]
    lines += ["| | Kernel | Compared with native | Cases | Runs | identical | as documented | otherwise |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, c in columns:
        identical = sum(c.identical.values())
        unlisted = sum(map(len, c.unlisted.values()))
        total = identical + unlisted + c.documented_runs
        ran = {*c.identical, *c.documented, *c.unlisted}
        lines.append(
            f"| {name} | {c.kernel} | {', '.join(c.placements)} | {len(ran)} | {total} "
            f"| {identical} | {c.documented_runs} | {unlisted} |"
        )
    lines += ["", "## Documented differences", ""]
    for number, reason in enumerate(differences.reasons, 1):
        lines += [f'<a id="difference-{number}"></a>**{number}.** {reason}', ""]
    lines += ["## The cases", ""]
    names = [name for name, _ in columns]
    for call in sorted(cases):
        lines += [f"### {call}", "", f"| case | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
        for case in sorted(cases[call]):
            row = " | ".join(_cell(c, case) for _, c in columns)
            lines.append(f"| {case.split('/')[1]} | {row} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


_PREAMBLE = """
# Conformance

Generated by `make conformance-table` from the records of the last runs; do not edit.

Each case makes calls of the address space and writes down what it sees: return values and errnos,
contents, signals and their codes, permissions. It runs natively and under `hpmmap run` on the same
kernel, in the main process, in a forked child and in a second thread, on memory in pieces of 4 KB, of
aligned 2 MB, and of 2 MB across the boundaries; some cases also on an arena of 1 GB, and with
`--page-size 1G`. *Identical* means that both saw the same, to the letter; the number says how many runs
were compared. A difference that is not documented fails `make check`, and so does a documented one that
no longer occurs. What the cases do stands in [tests/conformance](../tests/conformance/README.md).
"""


def main(argv: list[str]) -> int:
    try:
        if len(argv) == 2 and argv[0] == "compare":
            comparison = compare(Path(argv[1]), read_differences())
            for problem in comparison.problems:
                print(problem)
            print(
                f"conformance on {comparison.kernel}: {sum(comparison.identical.values())} runs identical, "
                f"{comparison.documented_runs} as documented, {len(comparison.problems)} problems"
            )
            return 1 if comparison.problems else 0
        if len(argv) >= 2 and argv[0] == "table":
            found = [Path(p) for p in argv[2:]] or sorted(p.parent for p in RECORDS.glob(f"*/{NATIVE}.jsonl"))
            Path(argv[1]).write_text(table(found, read_differences()))
            return 0
    except (RecordError, OSError) as error:
        print(f"records.py: {error}", file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

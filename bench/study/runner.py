# SPDX-License-Identifier: GPL-2.0
"""Runs the parts of the study that are missing, each once, and keeps what they gave.

A part is one measuring command on one kernel. DIR/KERNEL/PART.json has what it gave, with the
kernel, the commit and the command; DIR/KERNEL/PART.out/ its own files and output.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PUBLISHED = ROOT / "docs/study"
"""Records of the project's own measurements, as a store has them."""
SCHEMA = 1


class StudyError(Exception):
    """The study cannot go on; the text says why."""


@dataclass(frozen=True)
class Part:
    """A measuring command, and how its output is read."""

    name: str
    about: str
    reads: str
    """The function of readers.py that makes the data of its output."""
    minutes: int
    """How long it takes on two cores, about."""
    command: str
    """For a shell in the project's directory, with {kernel} and {out}."""
    needs: tuple[str, ...] = ()
    """Files without which it cannot run, as globs in the project's directory."""
    kernels: tuple[str, ...] = ()
    """The series for which there is the part; empty: all."""
    goes_on: bool = False
    """The command goes on with what it left in its directory."""

    def is_for(self, kernel: str) -> bool:
        return not self.kernels or any(f"{kernel}.".startswith(f"{series}.") for series in self.kernels)

    def words(self, kernel: str, out: Path) -> str:
        return self.command.format(kernel=kernel, out=shlex.quote(str(out)))


def recorded(command: str) -> str:
    """A command as a record has it: the same in every directory of the project."""
    return command.replace(f"{os.fspath(ROOT)}/", "")


def load_parts(file: Path = HERE / "parts.toml") -> dict[str, Part]:
    parts = {}
    for name, given in tomllib.loads(file.read_text())["part"].items():
        parts[name] = Part(
            name=name,
            about=given["about"],
            reads=given["reads"],
            minutes=given["minutes"],
            command=given["command"],
            needs=tuple(given.get("needs", ())),
            kernels=tuple(given.get("kernels", ())),
            goes_on=given.get("goes_on", False),
        )
    return parts


def commit() -> str:
    """Of the source, with a + where the tree has changes; "unknown" outside of a repository."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


@dataclass(frozen=True)
class Store:
    """What parts gave on one kernel."""

    dir: Path
    kernel: str

    @property
    def place(self) -> Path:
        return self.dir / self.kernel

    def record(self, part: str) -> dict | None:
        """What the part gave; None if it has not been run to its end."""
        try:
            record = json.loads((self.place / f"{part}.json").read_text())
        except (OSError, ValueError):
            return None
        return record if record.get("schema") == SCHEMA else None

    def out(self, part: str) -> Path:
        """The part's own directory."""
        return self.place / f"{part}.out"

    def is_done(self, part: Part) -> bool:
        """By the command of today."""
        record = self.record(part.name)
        return record is not None and record["command"] == recorded(part.words(self.kernel, self.out(part.name)))

    def write(self, part: str, record: dict) -> None:
        """In one step: who is interrupted leaves the old one, or the new one."""
        self.place.mkdir(parents=True, exist_ok=True)
        new = self.place / f".{part}.json.new"
        new.write_text(json.dumps(record, separators=(",", ":")) + "\n")
        new.replace(self.place / f"{part}.json")

    def remove(self, part: str) -> None:
        (self.place / f"{part}.json").unlink(missing_ok=True)


def missing(parts: Iterable[Part], store: Store, again: bool) -> list[Part]:
    """The parts to run, in their order."""
    return [part for part in parts if part.is_for(store.kernel) and (again or not store.is_done(part))]


def lacking(part: Part, root: Path = ROOT) -> str | None:
    """The first of the files that the part needs and that is not there."""
    return next((need for need in part.needs if not any(root.glob(need))), None)


def run_part(part: Part, store: Store, read: Callable[[Path], object], say: Callable[[str], None]) -> bool:
    """Whether the part has given a record. Its failure is said, and its output stays."""
    lack = lacking(part)
    if lack:
        say(f"{part.name}: left out, there is no {lack}")
        return False
    store.place.mkdir(parents=True, exist_ok=True)
    with (store.place / f".{part.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"{part.name}: another study runs it")
            return False
        return _run_locked(part, store, read, say, lock.fileno())


def _run_locked(
    part: Part, store: Store, read: Callable[[Path], object], say: Callable[[str], None], lock: int
) -> bool:
    out = store.out(part.name)
    # What has been measured to its end is measured anew; interrupted, it goes on.
    if not part.goes_on or store.record(part.name):
        shutil.rmtree(out, ignore_errors=True)
        store.remove(part.name)
    out.mkdir(exist_ok=True)
    command = part.words(store.kernel, out)
    began, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    source = commit()
    with (out / "stdout").open("w") as stdout, (out / "stderr").open("w") as stderr:
        status = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            stdout=stdout,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            check=False,
            # The command holds the lock, too: it may live longer than the study.
            pass_fds=(lock,),
        ).returncode
    seconds = time.monotonic() - clock
    if status:
        last = [line for name in ("stdout", "stderr") for line in (out / name).read_text().splitlines()[-1:]]
        say(f"{part.name}: failed with status {status} after {seconds:.0f} s: {' / '.join(last)}; see {out}")
        return False
    try:
        data = read(out)
    except (OSError, ValueError, KeyError, IndexError) as error:
        say(f"{part.name}: its output cannot be read ({error!r}); see {out}")
        return False
    record = {
        "schema": SCHEMA,
        "part": part.name,
        "kernel": store.kernel,
        "commit": source,
        "command": recorded(command),
        "began": began.isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "data": data,
    }
    store.write(part.name, record)
    say(f"{part.name}: measured in {seconds:.0f} s")
    return True

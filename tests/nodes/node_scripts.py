"""The scripts for nodes: their headers, and the choice of a run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpmmap_guest import SUITES

HERE = Path(__file__).resolve().parent
# What stands before them.
LIBRARY = HERE / "lib.sh"
_END = "END-OF-A-FILE-OF-THE-TESTS"
_HEAD = re.compile(r"# (nodes|suites|after|timeout|memory|cpus|files|reboots|icount): (.+)")


@dataclass(frozen=True)
class Script:
    """A script and its requirements."""

    name: str
    nodes: int = 1
    suites: tuple[str, ...] = SUITES
    after: str = ""
    """The one that has left the disks as it finds them."""
    timeout: int = 1200
    """Of its boot, in seconds."""
    memory: str = "4G"
    """Of each node."""
    cpus: int = 2
    """Of each node."""
    reboots: bool = False
    """Whether nodes after the first may be rebooted."""
    icount: bool = False
    """Whether each counts instructions instead of time."""
    files: tuple[str, ...] = ()
    """By their paths from this directory; they are in /srv on the first node."""


def parse(name: str, text: str) -> Script:
    """Parse the comments at the head of a script."""
    says = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := _HEAD.fullmatch(line):
            says[match[1]] = match[2]
    suites = tuple(says.get("suites", " ".join(SUITES)).split())
    if wrong := set(suites) - set(SUITES):
        raise ValueError(f"{name}: there is no suite {min(wrong)}")
    return Script(
        name,
        nodes=int(says.get("nodes", Script.nodes)),
        suites=suites,
        after=says.get("after", ""),
        timeout=int(says.get("timeout", Script.timeout)),
        memory=says.get("memory", Script.memory),
        cpus=int(says.get("cpus", Script.cpus)),
        reboots=says.get("reboots") == "yes",
        icount=says.get("icount") == "yes",
        files=tuple(says.get("files", "").split()),
    )


def all_scripts() -> list[Script]:
    return [parse(path.stem, path.read_text()) for path in sorted(HERE.glob("*.sh")) if path != LIBRARY]


def text_of(script: Script) -> str:
    """The text that the node runs."""
    files = (f"cat >/srv/{Path(name).name} <<'{_END}'\n{(HERE / name).read_text()}{_END}\n" for name in script.files)
    return LIBRARY.read_text() + "".join(files) + (HERE / f"{script.name}.sh").read_text()


def chains(scripts: Sequence[Script]) -> list[list[Script]]:
    """Each first script with those that continue on its disks, in order."""
    next_of: dict[str, Script] = {}
    for script in scripts:
        if script.after in next_of:
            raise ValueError(f"both {next_of[script.after].name} and {script.name} come after {script.after}")
        if script.after:
            next_of[script.after] = script
    found = []
    for script in scripts:
        if not script.after:
            chain = [script]
            while chain[-1].name in next_of:
                chain.append(next_of[chain[-1].name])
            found.append(chain)
    return found


def chosen(words: Sequence[str], scripts: Sequence[Script]) -> list[tuple[str, list[Script]]]:
    """The chains for each suite, for words such as "trixie" and "bookworm:slurm"; without words all.

    Scripts of a chain that precede a requested one run, too.
    """
    names = {script.name for script in scripts}
    wanted: dict[str, set[str]] = {}
    for word in words or SUITES:
        suite, _, name = word.partition(":")
        if suite not in SUITES or (name and name not in names):
            raise ValueError(
                f"'{word}': it must be a suite, or SUITE:SCRIPT: {', '.join(SUITES)}: {', '.join(sorted(names))}"
            )
        wanted.setdefault(suite, set()).update([name] if name else names)
    runs = []
    for suite, asked in wanted.items():
        for chain in chains([script for script in scripts if suite in script.suites]):
            last = max((at for at, script in enumerate(chain, 1) if script.name in asked), default=0)
            if last:
                runs.append((suite, chain[:last]))
    return runs

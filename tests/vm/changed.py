"""The items, and the other parts of a check, that test a change."""

import subprocess
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatch

from hpmmap_guest.paths import ROOT
from suite import Item

# Files that no guest uses. Lint and the unit tests in Python check them.
_NO_GUEST = (
    "*.md", ".ci/", ".gitignore", "LICENSE", "bench/tests/", "docs/", "integrations/slurm/", "packaging/",
    "scripts/check*", "scripts/changed", "scripts/floors", "scripts/install", "scripts/lint*", "scripts/matrix",
    "scripts/mutants", "scripts/package", "tests/kdump/", "tests/model/", "tests/mutants/", "tests/nodes/",
    "tests/unit/",
)  # fmt: skip
# The parts of a check besides guests, and the paths that they test.
_PARTS = {
    "rust": ("Cargo.*", "crates/", "kernel/uapi/"),
    "unit": (
        "kernel/mem/",
        "kernel/uapi/",
        "lib/",
        "integrations/slurm/",
        "tests/unit/*.c",
        "tests/unit/*.h",
        "tests/unit/Makefile",
    ),
    "modules": ("kernel/", "scripts/build-module", "scripts/floors"),
}


def paths_since(ref: str) -> list[str]:
    """Files that differ from a commit or are new."""

    def git(*args: str) -> list[str]:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip())
        return done.stdout.splitlines()

    return git("diff", "--name-only", ref, "--") + git("ls-files", "--others", "--exclude-standard")


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, f"{pattern}*" if pattern.endswith("/") else pattern) for pattern in patterns)


def _unclaimed(items: list[Item], paths: list[str]) -> list[str]:
    """Paths that no item or part claims."""
    return [p for p in paths if not _matches(p, _NO_GUEST) and not any(_matches(p, item.paths) for item in items)]


def items_for(items: list[Item], paths: list[str]) -> list[Item]:
    """The items for these paths, of any tier; all items if a path is unclaimed."""
    if _unclaimed(items, paths):
        return items
    found = [item for item in items if any(_matches(path, item.paths) for path in paths)]
    return [replace(item, tier="newest") if item.tier == "all" else item for item in found]


def parts_for(items: list[Item], paths: list[str]) -> list[str]:
    """The parts of a check for these paths: some of rust, unit, modules, guests."""
    if _unclaimed(items, paths):
        return [*_PARTS, "guests"]
    parts = [part for part, patterns in _PARTS.items() if any(_matches(path, patterns) for path in paths)]
    wanted = [item for item in items_for(items, paths) if item.tier != "parallel" and not item.debug]
    return parts + ["guests"] * bool(wanted)

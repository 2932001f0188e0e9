"""scripts/check continues where it stopped, and reports what has run on which commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from record import Record

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Records that it was run, and fails if there is a file fail-NAME.
STUB = """#!/bin/bash
echo {name} >>{root}/ran
[ ! -e {root}/fail-{name} ]
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with stubs for the steps."""
    root = tmp_path / "tree"
    (root / "scripts").mkdir(parents=True)
    for name in ("check", "check-table", "common.sh"):
        shutil.copy(SCRIPTS / name, root / "scripts")
    (root / "build/venv/bin").mkdir(parents=True)
    for name in ("setup", "kernels", "archive-kernel", "check-parallel", "check-debug", "matrix", "changed", "make"):
        stub = root / ("bin" if name == "make" else "scripts") / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB.format(name="$2" if name == "make" else name, root=tmp_path))
        stub.chmod(0o755)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitignore").write_text("/build/\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "x"], cwd=root, check=True)
    monkeypatch.setenv("PATH", f"{root}/bin:/usr/bin:/bin")
    return root


def check(tree, *args):
    ran = tree.parent / "ran"
    ran.unlink(missing_ok=True)
    done = subprocess.run([tree / "scripts/check", *args], capture_output=True, text=True, check=False)
    return done.returncode, ran.read_text().split() if ran.exists() else [], done.stdout


SHORT = ["setup", "setup", "lint", "unit-python", "unit-c", "unit-rust", "kernels", "tools", "vm"]
LONG = [
    *SHORT[:7],
    "archive-kernel",
    "tools",
    "vm",
    "check-parallel",
    "kdump",
    "nodes",
    "check-debug",
    "matrix",
    "mutants",
]


def test_a_short_run_stops_at_a_failure(tree):
    assert check(tree)[:2] == (0, SHORT)
    (tree.parent / "fail-unit-c").touch()
    status, ran, said = check(tree)
    assert (status, ran) == (1, SHORT[:5])
    assert "unit tests: C: FAILED" in said


def test_a_long_run_goes_on_after_a_failure_and_later(tree):
    (tree.parent / "fail-kdump").touch()
    status, ran, said = check(tree, "all")
    assert (status, ran) == (1, LONG)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True
    ).stdout.strip()
    rows = {tuple(line.split()[i] for i in (0, -1)) for line in said.splitlines() if "crash dumps  " in line}
    assert rows == {(commit, "FAILED")}

    (tree.parent / "fail-kdump").unlink()
    assert check(tree, "all", "--resume")[:2] == (0, ["kdump"])
    assert check(tree, "all", "--resume")[:2] == (0, [])
    # Not what has passed before a change.
    (tree / "new").touch()
    (tree / "new").write_text("x")
    assert check(tree, "all", "--resume")[:2] == (0, LONG)
    assert check(tree, "all")[:2] == (0, LONG)


def test_only_what_belongs_to_a_change(tree):
    (tree / "scripts/changed").write_text("#!/bin/bash\necho unit\necho modules\n")
    assert check(tree, "--changed", "main")[:2] == (0, ["setup", "setup", "lint", "unit-python", "unit-c", "kernels"])
    (tree / "scripts/changed").write_text("#!/bin/bash\n")
    assert check(tree, "--changed", "main")[:2] == (0, ["setup", "setup", "lint", "unit-python"])
    (tree / "scripts/changed").write_text("#!/bin/bash\nexit 1\n")
    assert check(tree, "--changed", "main")[0] == 1


def test_items_that_have_passed_are_known(tmp_path):
    record = Record(tmp_path / "all", "abc", "guests", True)
    assert record.passed() == set()
    for item, result in (("a", "passed"), ("b", "FAILED"), ("c", "skipped"), ("b", "passed"), ("a", "FAILED")):
        record.add("6.12.1", item, result, 1)
    Record(record.path, "abd", "guests", True).add("6.12.1", "d", "passed", 1)
    Record(record.path, "abc", "others", True).add("6.12.1", "e", "passed", 1)
    assert record.passed() == {("6.12.1", "b"), ("6.12.1", "c")}

    shown = subprocess.run([SCRIPTS / "check-table", record.path], capture_output=True, text=True, check=True).stdout
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "commit step kernel min result",
        "abc guests 6.12.1 0.1 1 passed, 1 FAILED, 1 skipped: a",
        "abd guests 6.12.1 0.0 1 passed",
        "abc others 6.12.1 0.0 1 passed",
    ]

"""The list of faults that the tests catch: tests/mutants, scripts/mutants."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/mutants"


@pytest.fixture(scope="module")
def mutants():
    loader = importlib.machinery.SourceFileLoader("mutants", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
    sys.modules["mutants"] = module
    loader.exec_module(module)
    return module


HEAD = """Fixed-by: 0123456 brk: it is right
Wrong: the heap grows, and
  nobody sees it.
Caught-by: check: sem_madvise_brk[hpmmap] fuzz_space

--- a/kernel/call/brk.c
"""


def test_the_head_of_a_patch(mutants, tmp_path):
    patch = tmp_path / "heap.patch"
    patch.write_text(HEAD)
    mutant = mutants.read(patch)
    assert (mutant.name, mutant.run, mutant.kernel) == ("heap", "check", "6.12")
    assert mutant.wrong == "the heap grows, and nobody sees it."
    assert mutant.items == ["sem_madvise_brk[hpmmap]", "fuzz_space"]
    for line in ("Fixed-by", "Wrong", "Caught-by"):
        patch.write_text(HEAD.replace(line, "Other"))
        with pytest.raises(ValueError, match=f"heap.patch: its head has no '{line}'"):
            mutants.read(patch)
    for what in ("nightly: fuzz_space", "check:", "check"):
        patch.write_text(HEAD.replace("check: sem_madvise_brk[hpmmap] fuzz_space", what))
        with pytest.raises(ValueError, match="Caught-by must be"):
            mutants.read(patch)


def test_a_list_that_is_not_true_any_more(mutants, tmp_path):
    patch = tmp_path / "heap.patch"
    patch.write_text(
        HEAD.replace("fuzz_space", "no_such sem_brk[hpmmap]") + "+++ b/kernel/call/brk.c\n@@ -1 +1 @@\n-x\n+y\n"
    )
    wrong = mutants.check([mutants.read(patch)])
    row = "| heap | the heap grows, and nobody sees it. | 0123456 | `make check`"
    assert [line.split(":")[0] for line in wrong] == [
        f"testing.md has no row '{row}",
        "heap.patch does not apply",
        "heap.patch",
        "heap.patch",
    ]
    assert mutants.is_item("sem_fork[hpmmap_--strict]")
    assert mutants.is_item("image_pie[hpmmap_--image]")
    assert mutants.is_item("parallel_storms")


def test_only_who_fails_has_caught_it(mutants, tmp_path):
    report = tmp_path / "report.xml"
    case = '<testcase name="test_guest[6.12-{}]">{}</testcase>'
    cases = {
        "sem_brk[hpmmap]": '<failure message="AssertionError: it ended with status 1"/>',
        "fuzz_space": "",
        "trace": '<skipped message="no BTF"/>',
        "numa": '<failure message="AssertionError: the guest came to no item: it did not boot"/>',
    }
    body = "".join(case.format(name, what) for name, what in cases.items())
    report.write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    items = ["sem_brk[hpmmap]", "fuzz_space", "trace", "numa", "gone"]
    assert mutants.caught_by(report, items) == (["sem_brk[hpmmap]"], ["trace", "numa", "gone"])

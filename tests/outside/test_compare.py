"""compare.py: the definition of a difference."""

import pytest
from compare import differences

END = "\nexit status 0\n"
TAP = "ok 1 one\nnot ok 2 two\nok 3 # SKIP three\nok 4 four\n"


def test_the_same_is_no_difference():
    assert differences(TAP + END, TAP + END) == []


@pytest.mark.parametrize("line, more", [("not ok 4 four", ""), ("ok 4 # SKIP four", " -> # SKIP four"), ("", "")])
def test_what_passes_natively_only(line, more):
    assert differences(TAP + END, TAP.replace("ok 4 four", line) + END) == [f"4: four{more}"]


def test_what_fails_or_is_skipped_natively_says_nothing():
    assert differences(TAP + END, TAP.replace("ok 3 # SKIP three", "not ok 3 three") + END) == []


def test_names_in_place_of_numbers():
    native = "Testing move on anon... done\nTesting wp on hugetlb... skipped [reason: no memory]\n" + END
    assert differences(native, "Testing move on anon... ERROR: -22\n" + END) == ["move on anon"]


@pytest.mark.parametrize("text", ["", TAP])
def test_a_program_that_is_ended(text):
    assert differences(text + END, text + "\nexit status 139\n")[0].endswith("exit status 139")


def test_without_subtests_the_status_counts():
    assert differences(END, "\nexit status 1\n") == ["end: exit status 0 -> exit status 1"]
    assert differences("\nexit status 1\n", "\nexit status 1\n") == []


def test_a_record_without_an_end():
    with pytest.raises(ValueError):
        differences(END, "ok 1 one\n")

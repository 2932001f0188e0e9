"""The comparison of records, on records made up."""

import json

import pytest
from records import Difference, RecordError, compare, label, read_differences, read_record, table

RUN = {"call": "mmap", "case": "anywhere", "process": "main", "align": "4k"}
OTHER = {"call": "brk", "case": "grow", "process": "main", "align": "4k"}


def write(path, lines, registered, kernel="6.12.1", end=None):
    head = {"kernel": kernel, "registered": registered}
    tail = {"end": len(lines) if end is None else end}
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines, tail]))


@pytest.fixture
def records(tmp_path):
    """Writes what was observed natively and under HPMMAP."""

    def make(native, hpmmap, **settings):
        write(tmp_path / "native.jsonl", native, False)
        write(tmp_path / "hpmmap.jsonl", hpmmap, **{"registered": True, **settings})
        return tmp_path

    return make


def difference(**changes):
    plain = {"number": 1, "cases": ("mmap/*",), "native": "a=0", "hpmmap": "a=EINVAL", "reason": "so it is"}
    return Difference(**{**plain, **changes})


def seen(text, run=RUN):
    return {**run, "observed": text}


def test_the_same_is_identical(records):
    result = compare(records([seen("a=0")], [seen("a=0")]), [])
    assert not result.problems
    assert result.identical == {"mmap/anywhere": 1}


def test_an_unlisted_difference_is_a_problem(records):
    result = compare(records([seen("a=0")], [seen("a=EINVAL")]), [])
    assert len(result.problems) == 1
    assert "native: a=0" in result.problems[0]


def test_a_listed_difference_is_not(records):
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=1")]), [difference()])
    assert not result.problems
    assert result.documented == {"mmap/anywhere": {1: 1}}
    assert not result.identical


def test_a_listed_difference_must_be_exact(records):
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=2")]), [difference()])
    assert len(result.problems) == 2


def test_two_listed_differences_at_once(records):
    both = [difference(), difference(number=2, native="b=.", hpmmap="b=2")]
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=2")]), both)
    assert not result.problems
    assert result.documented == {"mmap/anywhere": {1: 1, 2: 1}}


def test_a_listed_difference_that_is_gone_is_a_problem(records):
    result = compare(records([seen("a=0")], [seen("a=0")]), [difference()])
    assert len(result.stale) == 1


def test_one_of_the_patterns_is_gone(records):
    native = [seen("a=0"), seen("a=0", OTHER)]
    listed = difference(cases=("mmap/*", "brk/*"))
    result = compare(records(native, [seen("a=EINVAL"), seen("a=0", OTHER)]), [listed])
    assert len(result.stale) == 1
    assert "brk/*" in result.stale[0]


def test_differences_of_other_kernels_and_alignments(records):
    directory = records([seen("a=0")], [seen("a=EINVAL")])
    assert compare(directory, [difference(kernels="6.1.*")]).unlisted
    assert compare(directory, [difference(aligns=("2m",))]).unlisted
    fitting = difference(kernels="6.12.*", aligns=("4k",), processes=("main",))
    assert not compare(directory, [fitting]).problems
    # What does not concern a run is not gone.
    assert not compare(records([seen("a=0")], [seen("a=0")]), [difference(kernels="6.1.*")]).problems


def test_runs_of_one_side_only(records):
    assert compare(records([seen("a=0"), seen("x", OTHER)], [seen("a=0")]), []).problems
    assert compare(records([seen("a=0")], [seen("a=0"), seen("x", OTHER)]), []).problems


def test_not_run_is_neither(records):
    skipped = {**RUN, "not_run": "no keys"}
    result = compare(records([skipped], [skipped]), [])
    assert not result.problems
    assert not result.identical
    assert result.not_run == {"mmap/anywhere": "no keys"}
    assert compare(records([skipped], [seen("a=0")]), []).problems
    assert compare(records([seen("a=0")], [skipped]), []).problems


def test_who_was_registered_on_which_kernel(records):
    assert compare(records([seen("a")], [seen("a")], registered=False), []).problems
    assert compare(records([seen("a")], [seen("a")], kernel="6.1.0"), []).problems


def test_incomplete_records(tmp_path):
    path = tmp_path / "native.jsonl"
    write(path, [seen("a")], False, end=2)
    with pytest.raises(RecordError, match="no end"):
        read_record(path)
    write(path, [seen("a")], False)
    whole = path.read_text()
    path.write_text(whole.rsplit("\n", 2)[0] + "\n")
    with pytest.raises(RecordError, match="no end"):
        read_record(path)
    path.write_text(whole.rsplit("\n", 2)[0] + "\n" + whole)
    with pytest.raises(RecordError, match="no end"):
        read_record(path)
    path.write_text("nonsense\n")
    with pytest.raises(RecordError, match="not a line"):
        read_record(path)


def test_records_one_after_the_other(tmp_path):
    path = tmp_path / "native.jsonl"
    write(path, [seen("a")], False)
    first = path.read_text()
    write(path, [seen("b", OTHER)], False)
    path.write_text(first + path.read_text())
    assert len(read_record(path).observed) == 2
    path.write_text(first + first)
    with pytest.raises(RecordError, match="twice"):
        read_record(path)


def test_the_list_of_the_project_is_valid(tmp_path):
    read_differences()
    path = tmp_path / "differences.toml"
    path.write_text('[[difference]]\ncases = ["a/b"]\nnative = "("\nhpmmap = ""\nreason = "x"\n')
    with pytest.raises(RecordError, match="difference 1"):
        read_differences(path)
    path.write_text('[[difference]]\ncases = ["a/b"]\nnative = "x"\nhpmmap = ""\nreason = "x"\nother = 1\n')
    with pytest.raises(RecordError, match="difference 1"):
        read_differences(path)


def test_table(records, tmp_path):
    directory = records([seen("a=0"), seen("x", OTHER)], [seen("a=EINVAL"), seen("y", OTHER)])
    text = table([directory], [difference()])
    assert "| anywhere | [difference 1](#difference-1) (1) |" in text
    assert "| grow | **differs** (1) |" in text
    assert "so it is" in text
    assert label(tmp_path / "6.12.1", "6.12.1") == "6.12"
    assert label(tmp_path / "debug", "6.12.1") == "debug"

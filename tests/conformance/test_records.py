"""The comparison of records, with invented records."""

import json

import pytest

from records import Change, Differences, RecordError, compare, label, read_differences, read_record, table

RUN = {"call": "mmap", "case": "anywhere", "process": "main", "align": "4k"}
OTHER = {"call": "brk", "case": "grow", "process": "main", "align": "4k"}


def write(path, lines, registered, kernel="6.12.1", end=None):
    head = {"kernel": kernel, "registered": registered}
    tail = {"end": len(lines) if end is None else end}
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *lines, tail]))


@pytest.fixture
def records(tmp_path):
    """Write native observations and those under HPMMAP."""

    def make(native, hpmmap, **settings):
        write(tmp_path / "native.jsonl", native, False)
        write(tmp_path / "hpmmap.jsonl", hpmmap, **{"registered": True, **settings})
        return tmp_path

    return make


def change(**other):
    plain = {"difference": 1, "cases": ("mmap/*",), "native": "a=0", "hpmmap": "a=EINVAL"}
    return Change(**{**plain, **other})


def listed(*changes):
    return Differences(("so it is", "that, too"), changes)


NOTHING = listed()


def seen(text, run=RUN):
    return {**run, "observed": text}


def test_the_same_is_identical(records):
    result = compare(records([seen("a=0")], [seen("a=0")]), NOTHING)
    assert not result.problems
    assert result.identical == {"mmap/anywhere": 1}


def test_an_unlisted_difference_is_a_problem(records):
    result = compare(records([seen("a=0")], [seen("a=EINVAL")]), NOTHING)
    assert len(result.problems) == 1
    assert "native: a=0" in result.problems[0]


def test_a_listed_difference_is_not(records):
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=1")]), listed(change()))
    assert not result.problems
    assert result.documented == {"mmap/anywhere": {1: 1}}
    assert not result.identical


def test_a_listed_difference_must_be_exact(records):
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=2")]), listed(change()))
    assert len(result.problems) == 2


def test_two_listed_differences_at_once(records):
    both = listed(change(), change(difference=2, native="b=.", hpmmap="b=2"))
    result = compare(records([seen("a=0 b=1")], [seen("a=EINVAL b=2")]), both)
    assert not result.problems
    assert result.documented == {"mmap/anywhere": {1: 1, 2: 1}}


def test_a_listed_difference_that_is_gone_is_a_problem(records):
    result = compare(records([seen("a=0")], [seen("a=0")]), listed(change()))
    assert len(result.stale) == 1


def test_one_of_the_patterns_is_gone(records):
    native = [seen("a=0"), seen("a=0", OTHER)]
    both = listed(change(cases=("mmap/*", "brk/*")))
    result = compare(records(native, [seen("a=EINVAL"), seen("a=0", OTHER)]), both)
    assert len(result.stale) == 1
    assert "brk/*" in result.stale[0]


def test_differences_of_other_kernels_and_alignments(records):
    directory = records([seen("a=0")], [seen("a=EINVAL")])
    assert compare(directory, listed(change(kernels="6.1.*"))).unlisted
    assert compare(directory, listed(change(aligns=("2m",)))).unlisted
    fitting = change(kernels="6.12.*", aligns=("4k",), processes=("main",))
    assert not compare(directory, listed(fitting)).problems
    # A change that does not apply to a run does not count as gone.
    assert not compare(records([seen("a=0")], [seen("a=0")]), listed(change(kernels="6.1.*"))).problems


def test_runs_of_one_side_only(records):
    assert compare(records([seen("a=0"), seen("x", OTHER)], [seen("a=0")]), NOTHING).problems
    assert compare(records([seen("a=0")], [seen("a=0"), seen("x", OTHER)]), NOTHING).problems


def test_not_run_is_neither(records):
    skipped = {**RUN, "not_run": "no keys"}
    result = compare(records([skipped], [skipped]), NOTHING)
    assert not result.problems
    assert not result.identical
    assert result.not_run == {"mmap/anywhere": "no keys"}
    assert compare(records([skipped], [seen("a=0")]), NOTHING).problems
    assert compare(records([seen("a=0")], [skipped]), NOTHING).problems


def test_who_was_registered_on_which_kernel(records):
    assert compare(records([seen("a")], [seen("a")], registered=False), NOTHING).problems
    assert compare(records([seen("a")], [seen("a")], kernel="6.1.0"), NOTHING).problems


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


def test_the_list_of_the_project_is_valid():
    found = read_differences()
    assert found.reasons
    assert all(c.cases and c.native for c in found.changes)


@pytest.mark.parametrize(
    "text",
    [
        'reason = "x"',
        'reason = "x"\nother = 1\nchange = []',
        'reason = "x"\n[[difference.change]]\ncases = ["a/b"]\nhpmmap = ""',
        'reason = "x"\n[[difference.change]]\ncases = ["a/b"]\nnative = "("\nhpmmap = ""',
        'reason = "x"\n[[difference.change]]\ncases = ["a/b"]\nnative = "x"\nhpmmap = ""\nother = 1',
    ],
)
def test_lists_that_are_not(tmp_path, text):
    path = tmp_path / "differences.toml"
    path.write_text(f"[[difference]]\n{text}\n")
    with pytest.raises(RecordError, match="difference 1"):
        read_differences(path)


def test_table(records):
    directory = records([seen("a=0"), seen("x", OTHER)], [seen("a=EINVAL"), seen("y", OTHER)])
    text = table([directory], listed(change()))
    assert "| anywhere | [difference 1](#difference-1) (1) |" in text
    assert "| grow | **differs** (1) |" in text
    assert "so it is" in text


@pytest.mark.parametrize(
    ("directory", "kernel", "column"),
    [
        ("6.12.117+deb12-amd64", "6.12.117+deb12-amd64", "6.12"),
        ("6.12.117+deb12-rt-amd64", "6.12.117+deb12-rt-amd64", "6.12-rt"),
        ("6.12.117-hpmmap-debug", "6.12.117-hpmmap-debug", "debug"),
        ("before", "6.12.117+deb12-amd64", "before"),
    ],
)
def test_columns(tmp_path, directory, kernel, column):
    assert label(tmp_path / directory, kernel) == column

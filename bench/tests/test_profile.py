# SPDX-License-Identifier: GPL-2.0
"""What profile_counts.py makes of the records of the QEMU plugin."""

from array import array
from collections import Counter

import pytest

from counting import BenchError
from profile_counts import ADDRESS_MASK, Symbols, last_cycle, profile_of, segments, tree_lines, tree_of

KERNEL = 0xFFFFFFFF81000000
KALLSYMS = """\
ffffffff81000000 T entry
ffffffff81000100 T handle
ffffffff81000100 T alias
ffffffff81000200 t hpmmap_block_clear\t[hpmmap]
ffffffff81000300 T clear_page_rep
ffffffff81000400 T pte_alloc_one
ffffffff81000500 D data
"""
ENTRY, HANDLE, CLEAR, CLEAR_PAGE, PTE_ALLOC = (KERNEL + 0x100 * n for n in range(5))


def symbols() -> Symbols:
    return Symbols(KALLSYMS.splitlines())


def block(address: int, size: int, times: int = 1) -> list[int]:
    return [size << 48 | (address & ADDRESS_MASK), times]


def marker(number: int) -> list[int]:
    return [0xFFFF << 48 | number, 1]


def kernel_blocks(*pairs: tuple[int, int]) -> list[tuple[int, int]]:
    return [(address & ADDRESS_MASK, count) for address, count in pairs]


def test_addresses_are_named_by_the_first_symbol_at_or_below():
    found = symbols()
    assert found.find(HANDLE & ADDRESS_MASK) == ("handle", True)
    assert found.find((HANDLE + 8) & ADDRESS_MASK) == ("handle", False)
    assert found.find((KERNEL + 0x1000) & ADDRESS_MASK) == ("pte_alloc_one", False)
    assert found.find(0x400000) == ("(user mode)", False)


def test_segments_end_at_the_next_marker():
    inside = [*marker(1), *block(ENTRY, 3, 2), *marker(2), *block(HANDLE, 4), *marker(0)]
    words = [*block(1, 9), *inside, *block(1, 9)]
    assert list(segments(array("Q", words))) == [
        (1, [(ENTRY & ADDRESS_MASK, 6)]),
        (2, [(HANDLE & ADDRESS_MASK, 4)]),
    ]


def test_callees_count_for_their_callers():
    profile = profile_of(
        kernel_blocks(
            (0x400000 & ADDRESS_MASK, 1),
            (ENTRY, 10),
            (HANDLE, 20),
            (HANDLE + 8, 5),
            (ENTRY + 8, 2),
            (HANDLE, 20),
        ),
        symbols(),
    )
    assert profile.own == Counter({"handle": 45, "entry": 12, "(user mode)": 1})
    assert profile.inclusive["entry"] == 57
    assert profile.calls["handle"] == 2
    assert profile.total == 58
    lines = list(tree_lines(tree_of(profile.stacks), blocks=1, least=2))
    assert [line.split()[-1] for line in lines] == ["mode)", "entry", "handle"]
    assert lines[1].split()[:2] == ["57", "12"]


def test_what_zeroes_counts_whole_but_page_tables_do_not():
    blocks = kernel_blocks((ENTRY, 1), (CLEAR, 100), (HANDLE, 7), (CLEAR + 8, 3), (ENTRY + 8, 1))
    blocks += kernel_blocks((CLEAR_PAGE, 50), (ENTRY + 8, 1), (PTE_ALLOC, 2), (CLEAR_PAGE, 60))
    profile = profile_of(blocks, symbols())
    assert profile.own["hpmmap_block_clear"] == 110
    assert profile.own["clear_page_rep"] == 110
    assert profile.zeroing == 160


def test_the_last_cycle_counts(tmp_path):
    words = []
    for size in (1, 2):
        for phase in (1, 2, 3):
            words += [*marker(phase), *block(ENTRY, size * phase), *marker(0)]
    trace = tmp_path / "trace"
    trace.write_bytes(array("Q", words).tobytes())
    profiles = last_cycle(trace, symbols())
    assert {phase: p.total for phase, p in profiles.items()} == {"map": 2, "touch": 4, "unmap": 6}


def test_a_trace_without_a_phase_is_an_error(tmp_path):
    trace = tmp_path / "trace"
    trace.write_bytes(array("Q", [*marker(1), *block(ENTRY, 1), *marker(0)]).tobytes())
    with pytest.raises(BenchError, match="no record of touch, unmap"):
        last_cycle(trace, symbols())

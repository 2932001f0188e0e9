# SPDX-License-Identifier: GPL-2.0
"""What writes_counts.py makes of the records of the QEMU plugin."""

from array import array

from profile_counts import ADDRESS_MASK, Symbols
from writes_counts import ROOT, VARIANTS, lines_of, row

KERNEL = 0xFFFFFFFF81000000
KALLSYMS = [
    "ffffffff81000000 T _raw_spin_lock",
    "ffffffff81000100 t node_alloc\t[hpmmap]",
    "ffffffff81000200 T schedule",
]
LOCK, ALLOC, SCHEDULE = ((KERNEL + 0x100 * n) & ADDRESS_MASK for n in range(3))
NODE, RUNQUEUE, OTHER = 0xFF110000_00000800, 0xFF110000_00010000, 0xFF110000_00020000
LOCKED = 1 << 48


def record(line: int, what: int, times: int, cpu: int) -> list[int]:
    return [line, what, cpu << 56 | 1 << 48 | times]


def test_lines_that_several_cpus_write_to_count(tmp_path):
    words = array("Q")
    for cpu in range(4):
        words.extend(record(NODE, 0, 10, cpu) + record(NODE, LOCK | LOCKED, 10, cpu))
        words.extend(record(NODE + 64, 0, 10, cpu) + record(NODE + 64, ALLOC, 30, cpu))
        words.extend(record(RUNQUEUE, 0, 10, cpu) + record(RUNQUEUE, SCHEDULE, 10, cpu))
    # What another CPU had once moves there and back.
    words.extend(record(OTHER, 0, 10, 0) + record(OTHER, ALLOC | LOCKED, 10, 0))
    words.extend(record(OTHER, 0, 1, 1) + record(OTHER, ALLOC, 1, 1))
    (tmp_path / "trace").write_bytes(words.tobytes())
    lines = lines_of(tmp_path / "trace", Symbols(KALLSYMS), {"node_alloc"})[1]
    assert [lines[at].ours for at in (NODE, NODE + 64, RUNQUEUE, OTHER)] == [True, True, False, True]
    assert [lines[at].moves for at in (NODE, RUNQUEUE, OTHER)] == [40, 40, 2]
    assert row("2 MB", lines, 4, 40) == ["2 MB", "2.05", "2.00", "1.00", "1.25"]


def test_the_module_has_what_is_changed_in_it():
    for path, old, _ in VARIANTS.values():
        assert (ROOT / "kernel" / path).read_text().count(old) == 1

# SPDX-License-Identifier: GPL-2.0
"""Reading /proc/PID/smaps: how much memory is mapped by which page size.

Standard library only.
"""

from __future__ import annotations

import re

_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$")

# In kB; the first three are part of Rss, the hugetlb ones are not.
_LARGE_IN_RSS = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")
_HUGETLB = ("Private_Hugetlb", "Shared_Hugetlb")


def _is_file(name: str) -> bool:
    """Whether the name of a mapping is that of a file, not of plain memory.

    Memory of HPMMAP and of hugetlbfs has the form of a file without being one.
    """
    if not name.startswith("/"):
        return False
    return not name.startswith(("/hpmmap", "/anon_hugepage", "/anon_inode:"))


def summary(text: str) -> dict:
    """Bytes of memory by page size, and where images are mapped.

    Returns memory_2m_bytes and memory_4k_bytes for plain memory (heap, stack,
    anonymous), hugetlb_bytes (the part of the first from hugetlbfs),
    image_bytes for the program with its static data, libraries and shared
    files, and image_ranges, a list of [start, end).
    """
    total = dict.fromkeys(("memory_2m_bytes", "memory_4k_bytes", "hugetlb_bytes", "image_bytes"), 0)
    ranges: list[list[int]] = []
    # The lowest file is the program; what follows it without a gap and a name
    # is its static data that is not in the file.
    program = ""
    program_end = 0
    image = False
    values: dict[str, int] = {}

    def finish() -> None:
        large = sum(values.get(key, 0) for key in _LARGE_IN_RSS)
        hugetlb = sum(values.get(key, 0) for key in _HUGETLB)
        if image:
            total["image_bytes"] += values.get("Rss", 0) * 1024
            return
        total["memory_2m_bytes"] += (large + hugetlb) * 1024
        total["memory_4k_bytes"] += (values.get("Rss", 0) - large) * 1024
        total["hugetlb_bytes"] += hugetlb * 1024

    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            finish()
            values = {}
            start, end, name = int(head[1], 16), int(head[2], 16), head[3]
            image = _is_file(name) or (not name and start == program_end)
            if image:
                ranges.append([start, end])
                program = program or name
                if name in ("", program):
                    program_end = end
            continue
        key, _, rest = line.partition(":")
        if rest.endswith("kB"):
            values[key] = int(rest.split()[0])
    finish()
    return {**total, "image_ranges": ranges}

"""Looks at the mappings of files of hpmmapfs below directories, of all processes, until /tmp/watch-end is there.

Prints the most KB that were mapped at once, and the most of whole slots that were not mapped by 2 MB entries.
"""

import glob
import os
import re
import sys
import time

SLOT = 2 << 20
DIRECTORIES = tuple(f"{directory}/" for directory in sys.argv[1:])
HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ (\d+)\s*(.*)")


def mappings(process):
    """Of each: first and last address, offset, path, KB resident and KB by 2 MB entries."""
    current, found = None, []
    with open(f"{process}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if head := HEAD.match(line):
                current = None
                if head[6].startswith(DIRECTORIES):
                    current = [int(head[1], 16), int(head[2], 16), int(head[4], 16), head[6], 0, 0]
                    found.append(current)
            elif current and line.startswith("Rss:"):
                current[4] += int(line.split()[1])
            elif current and line.startswith(("FilePmdMapped:", "ShmemPmdMapped:")):
                current[5] += int(line.split()[1])
    return found


def in_pages(start, end, offset, path):
    """How many KB of a mapping no 2 MB entry can have: its ends, and that of its file."""
    size = os.stat(path).st_size if os.path.exists(path) else end - start + offset
    end = min(end, start - offset + -(-size // 4096) * 4096)
    first, last = -(-start // SLOT) * SLOT, min(end, start - offset + size) // SLOT * SLOT
    return (end - start - max(0, last - first)) >> 10


def look():
    mapped = small = 0
    for process in glob.glob("/proc/[0-9]*"):
        try:
            found = mappings(process)
        except OSError:
            continue
        for start, end, offset, path, rss, large in found:
            mapped += rss
            small = max(small, rss - large - in_pages(start, end, offset, path))
    return mapped, small


most = worst = 0
while not os.path.exists("/tmp/watch-end"):
    got, bad = look()
    most, worst = max(most, got), max(worst, bad)
    time.sleep(0.05)
print(most, worst)

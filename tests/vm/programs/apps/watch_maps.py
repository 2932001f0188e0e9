"""Watches the mappings of files of hpmmapfs, of all processes, until /tmp/watch-end exists.

Prints the most KB that were mapped at once, and the most KB of whole slots that were not mapped by 2 MB entries: in
one mapping, in two looks in a row, with its file as long as before. Mappings at the end are looked at twice.
/tmp/watch-seen exists once something was mapped in two looks.

With the argument "internal", in a registered process, it also watches files without a mount.
"""

import glob
import os
import re
import sys
import time
from pathlib import Path

SLOT = 2 << 20
HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+)")


def internal():
    """The file system of memfds, if they are pool memory here; a memfd keeps it."""
    device = os.fstat(os.memfd_create("watch")).st_dev
    return os.major(device), os.minor(device)


def devices():
    """Device numbers of mounted hpmmapfs, each time anew: a directory may be tmpfs before or after."""
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        lines = [line.split() for line in mounts]
    mounted = {tuple(map(int, words[2].split(":"))) for words in lines if words[words.index("-") + 1] == "hpmmap"}
    return mounted | EXTRA


def mappings(process, of):
    """First and last address, offset, inode, resident KB and KB by 2 MB entries of each mapping."""
    current, found = None, []
    with open(f"{process}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            if head := HEAD.match(line):
                current = None
                if (int(head[4], 16), int(head[5], 16)) in of:
                    current = [int(head[1], 16), int(head[2], 16), int(head[3], 16), int(head[6]), 0, 0]
                    found.append(current)
            elif current and line.startswith("Rss:"):
                current[4] += int(line.split()[1])
            elif current and line.startswith(("FilePmdMapped:", "ShmemPmdMapped:")):
                current[5] += int(line.split()[1])
    return found


def in_pages(start, end, offset, size):
    """KB of a mapping that no 2 MB entry can map: its ends, and the end of its file."""
    end = min(end, start - offset + -(-size // 4096) * 4096)
    first, last = -(-start // SLOT) * SLOT, min(end, start - offset + size) // SLOT * SLOT
    return (end - start - max(0, last - first)) >> 10


def look():
    """Mapped KB, and for each mapping the KB that 2 MB entries could map but do not."""
    mapped, small = 0, {}
    of = devices()
    for process in glob.glob("/proc/[0-9]*"):
        try:
            found = mappings(process, of)
        except OSError:
            continue
        for start, end, offset, inode, rss, large in found:
            mapped += rss
            try:
                # Also for a file without a name.
                size = os.stat(f"{process}/map_files/{start:x}-{end:x}").st_size
            except OSError:
                continue
            if (bad := rss - large - in_pages(start, end, offset, size)) > 0:
                small[process, start, end, offset, inode, size] = bad
    return mapped, small


EXTRA = {internal()} if sys.argv[1:] == ["internal"] else set()
most = worst = left = seen = 0
before = {}
while left < 2:
    left = left + 1 if os.path.exists("/tmp/watch-end") else 0
    got, small = look()
    most = max(most, got)
    seen += got > 0
    if seen == 2:
        Path("/tmp/watch-seen").touch()
    worst = max([worst] + [min(bad, before[key]) for key, bad in small.items() if key in before])
    before = small
    time.sleep(0.05)
print(most, worst)

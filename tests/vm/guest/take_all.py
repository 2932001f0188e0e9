"""Takes the free pool memory, 2 MB by 2 MB, as a strict job: take_all.py [FILE [MB]].

Without FILE it writes to each page, and fails if another task has written to one a second later. With FILE it takes
that much, or all, makes FILE and sleeps until it is killed.
"""

import mmap
import sys
import time
from pathlib import Path

PIECE = 2 << 20
most = int(sys.argv[2]) // 2 if len(sys.argv) > 2 else sys.maxsize
# Made now: later there may be no memory for it.
new = Path(sys.argv[1] + ".new") if len(sys.argv) > 1 else None
if new:
    new.touch()
held = []
try:
    while len(held) < most:
        held.append(mmap.mmap(-1, PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
except (OSError, MemoryError):
    pass
if new:
    new.rename(sys.argv[1])
    time.sleep(1000)
# One byte of each page.
written = b"\xff" * (PIECE // mmap.PAGESIZE)
for memory in held:
    memory[:: mmap.PAGESIZE] = written
time.sleep(1)
assert all(memory[:: mmap.PAGESIZE] == written for memory in held), "another task has written to this memory"
print(len(held), "blocks overwritten")

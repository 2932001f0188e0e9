"""Processes that share memory, by name and by files: prints hashes. Arguments: scale, directory."""

import hashlib
import mmap
import multiprocessing
import os
import sys
from multiprocessing import shared_memory

import numpy as np

SCALE, DIRECTORY = int(sys.argv[1]), sys.argv[2]
ROWS, COLUMNS, WORKERS = 512 * SCALE, 1024, 4


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def fill(name, worker):
    """A block of rows that depends on those of the worker before."""
    memory = shared_memory.SharedMemory(name)
    rows = np.ndarray((ROWS, COLUMNS), dtype=np.int64, buffer=memory.buf)
    part = slice(worker * ROWS // WORKERS, (worker + 1) * ROWS // WORKERS)
    rows[part] += np.arange(COLUMNS) * (worker + 1)
    del rows
    memory.close()


def by_name():
    memory = shared_memory.SharedMemory(create=True, size=ROWS * COLUMNS * 8)
    rows = np.ndarray((ROWS, COLUMNS), dtype=np.int64, buffer=memory.buf)
    assert not rows.any()
    rows[:] = 7
    workers = [multiprocessing.Process(target=fill, args=(memory.name, n)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    print("shared_memory", digest(rows.tobytes()))
    del rows
    memory.close()
    memory.unlink()


def pattern(segment, n):
    return bytes([(segment * 31 + n * 7) % 251 + 1]) * 4096


def by_file():
    """As programs use --huge-dir: segment files, mapped whole by a primary and a secondary process."""
    paths = [os.path.join(DIRECTORY, f"segment{n}") for n in range(3)]
    for path in paths:
        with open(path, "w+b") as file:
            file.truncate(8 << 20)
    if os.fork() == 0:
        for segment, path in enumerate(paths):
            with open(path, "r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
            for n in range(0, 2048, 5):
                memory[n * 4096 : (n + 1) * 4096] = pattern(segment, n)
        os._exit(0)
    assert os.wait()[1] == 0
    for path in paths:
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        print("segment", digest(memory))
        memory.close()
        with open(path, "rb") as file:
            print("file", digest(file.read()))
        os.unlink(path)


by_name()
by_file()

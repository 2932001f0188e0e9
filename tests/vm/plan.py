"""How many guests run at once, and how the items are spread over them."""

import os
from collections.abc import Callable
from pathlib import Path

from suite import Item

# The largest guests, and what QEMU and the caches of the host need beside them.
_GUEST_BYTES = 7 << 30
# Of a guest with less to do, half as much in each of two is not worth another boot.
_WORTH_A_BOOT = 120


def guests_at_once() -> int:
    """As many as this process may use CPUs (see taskset(1)) for, and as there is memory for."""
    available = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    return at_once(len(os.sched_getaffinity(0)), available)


def at_once(cpus: int, available: int) -> int:
    """Each guest has two CPUs, which on a machine with two are emulated in one thread."""
    return max(1, min(max(cpus // 2, min(cpus, 2)), available // _GUEST_BYTES))


def seconds_of(known: dict[str, float]) -> Callable[[str, Item], float]:
    """How long an item takes on a kernel: measured here before, or as its head says."""
    return lambda kver, item: known.get(f"{kver} {item.name}", item.takes)


def parts(items: list[Item], seconds: Callable[[Item], float], total: float, slots: int) -> list[list[Item]]:
    """The items of one guest, for as many as it takes that they end with the others.

    @total: seconds of all guests, of which @slots run at once. Those that must come last
    (a guest gives everything back) are in each part.
    """
    first = [item for item in items if not item.last]
    last = [item for item in items if item.last]
    weight = sum(map(seconds, first))
    n = min(round(weight * slots / total) if total else 1, int(weight // _WORTH_A_BOOT), len(first))
    found: list[list[Item]] = [[] for _ in range(max(1, n))]
    loads = [0.0] * len(found)
    for item in sorted(first, key=seconds, reverse=True):
        lightest = loads.index(min(loads))
        found[lightest].append(item)
        loads[lightest] += seconds(item)
    # In the order they had.
    return [sorted(part, key=items.index) + last for part in found]

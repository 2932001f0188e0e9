"""The number of guests at once, and the distribution of items over them."""

import os
from collections.abc import Callable
from pathlib import Path

from suite import Item

# Memory of the largest guest, with that of QEMU and of the host's caches.
_GUEST_BYTES = 7 << 30
# A guest with less to do is not split: a boot costs more than the halves save.
_WORTH_A_BOOT = 120


def guests_at_once() -> int:
    """As many as the CPUs of this process (see taskset(1)) and the memory allow."""
    available = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    return at_once(len(os.sched_getaffinity(0)), available)


def at_once(cpus: int, available: int) -> int:
    """Guests for a number of CPUs: each has two, which a machine with two emulates in one thread."""
    return max(1, min(max(cpus // 2, min(cpus, 2)), available // _GUEST_BYTES))


def seconds_of(known: dict[str, float]) -> Callable[[str, Item], float]:
    """The time of an item on a kernel: measured here before, or from its head."""
    return lambda kver, item: known.get(f"{kver} {item.name}", item.takes)


def parts(items: list[Item], seconds: Callable[[Item], float], total: float, slots: int) -> list[list[Item]]:
    """Split the items of one guest into as many guests as are needed to end with the others.

    @total: seconds of all guests, of which @slots run at once. Items that must come last
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
    # In the original order.
    return [sorted(part, key=items.index) + last for part in found]

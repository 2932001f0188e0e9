"""Boots the guests and hands their outcomes to the tests."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest

from hpmmap_guest import is_debug_kernel, kernel_label, kernels, resolve_kernel
from suite import (
    LOGS,
    MACHINES,
    GuestRun,
    Item,
    Outcome,
    leaving,
    problems,
    program_items,
    runs_in,
    scenario_items,
    selected_tier,
)


def pytest_addoption(parser):
    group = parser.getgroup("hpmmap")
    group.addoption(
        "--kernel", action="append", default=[], help="kernel version or series; may be repeated (default: both series)"
    )
    group.addoption("--item", action="append", default=[], help="an item by its full name; may be repeated")
    group.addoption("--module", type=Path, help="the module to load, of one kernel (default: build/VERSION/hpmmap.ko)")
    group.addoption("--logs", type=Path, default=LOGS, help="where what the guests say is written (default: build/vm)")


def pytest_configure(config):
    config.hpmmap_kernels = [resolve_kernel(name) for name in config.getoption("--kernel")] or kernels()
    config.hpmmap_runs = {}
    # Ends the session, and the guests with it. A shell's background jobs ignore Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _version_key(kver: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", kver)]


def pytest_generate_tests(metafunc):
    if "item" not in metafunc.fixturenames:
        return
    items = program_items() + scenario_items()
    if asked := metafunc.config.getoption("--item"):
        if unknown := set(asked) - {item.name for item in items}:
            raise pytest.UsageError(f"there is no item {', '.join(sorted(unknown))}")
        items = [item for item in items if item.name in asked]
    tier = selected_tier()
    params, ids = [], []
    newest = max(metafunc.config.hpmmap_kernels, key=_version_key)
    for kver in metafunc.config.hpmmap_kernels:
        for machine in MACHINES:
            here = [i for i in items if i.machine == machine and runs_in(i, tier, kver == newest)]
            here = [i for i in here if not i.debug or is_debug_kernel(kver)]
            for item in sorted(here, key=lambda i: i.last) + [leaving(machine)] * bool(here):
                params.append((kver, item))
                ids.append(f"{kernel_label(kver)}-{item.name}")
    metafunc.parametrize("kver,item", params, ids=ids)


def _kver_and_item(node) -> tuple[str, Item] | None:
    params = getattr(getattr(node, "callspec", None), "params", {})
    return (params["kver"], params["item"]) if "item" in params else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Whatever -k and -m select, each of its guests gives everything back in the end."""
    nodes = list(items)
    result = yield
    guests = {(kver, item.machine) for kver, item in filter(None, map(_kver_and_item, items))}
    for node in nodes:
        found = _kver_and_item(node)
        if found and node not in items:
            kver, item = found
            if item == leaving(item.machine) and (kver, item.machine) in guests:
                items.append(node)
    return result


def pytest_collection_finish(session):
    """Only what was selected is run."""
    wanted: dict[tuple[str, str], list[Item]] = {}
    for node in session.items:
        found = _kver_and_item(node)
        if found:
            kver, item = found
            wanted.setdefault((kver, item.machine), []).append(item)
    if session.config.option.collectonly:
        return
    factor = float(os.environ.get("HPMMAP_TIMEOUT_FACTOR", "2"))
    module, logs = session.config.getoption("--module"), session.config.getoption("--logs")
    slots = threading.Semaphore(guests_at_once())
    for kver, machine in sorted(wanted, key=lambda guest: list(MACHINES).index(guest[1])):
        items = wanted[kver, machine]
        run = GuestRun(kver, machine, items, slots, factor, module, logs)
        session.config.hpmmap_runs[kver, machine] = run
        run.start()


def guests_at_once() -> int:
    """As many as this process may use CPUs (see taskset(1)), and memory for, at most one for each kernel."""
    available = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    return max(1, min(len(kernels()), len(os.sched_getaffinity(0)), available // (5 << 30)))


@pytest.fixture
def outcome(request, kver: str, item: Item) -> Outcome:
    """What became of an item: waits until its guest has come to it."""
    found = request.config.hpmmap_runs[kver, item.machine].outcome(item.name)
    for title, lines in (("output", found.output), ("kernel log", found.dmesg)):
        text = "\n".join(lines).strip()
        if text:
            print(f"--- {title}\n{text}")
    return found


@pytest.fixture
def failures(outcome: Outcome) -> list[str]:
    return problems(outcome)


def pytest_terminal_summary(terminalreporter, config):
    """Where the time went, since waiting for a guest says nothing about it."""
    for (kver, machine), run in config.hpmmap_runs.items():
        slow = sorted(run.outcomes.items(), key=lambda pair: -pair[1].seconds)[:6]
        total = sum(outcome.seconds for outcome in run.outcomes.values())
        names = ", ".join(f"{name} {outcome.seconds:.0f} s" for name, outcome in slow)
        terminalreporter.write_line(
            f"guest {machine} on {kver}: {total:.0f} s in {len(run.outcomes)} items: {names} (log: {run.log})"
        )

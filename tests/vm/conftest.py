"""Boot the guests and pass their outcomes to the tests."""

import os
import re
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from changed import items_for, paths_since
from hpmmap_guest import is_debug_kernel, kernel_label, kernels, resolve_kernel
from plan import guests_at_once, parts, seconds_of
from record import Record
from suite import (
    LOGS,
    MACHINES,
    GuestRun,
    Item,
    Outcome,
    all_items,
    in_order,
    leaving,
    problems,
    runs_in,
    selected_tier,
)

# Times of the items, in pytest's cache.
_SECONDS = "hpmmap/seconds"
# Number of items that are shown with their time.
_SLOWEST = 15


def pytest_addoption(parser):
    group = parser.getgroup("hpmmap")
    group.addoption(
        "--kernel", action="append", default=[], help="kernel version or series; may be repeated (default: both series)"
    )
    group.addoption("--item", action="append", default=[], help="an item by its full name; may be repeated")
    group.addoption("--changed", metavar="REF", help="only the items that belong to what has changed since this commit")
    group.addoption("--module", type=Path, help="the module to load, of one kernel (default: build/VERSION/hpmmap.ko)")
    group.addoption("--logs", type=Path, default=LOGS, help="where what the guests say is written (default: build/vm)")


def pytest_configure(config):
    config.hpmmap_kernels = [resolve_kernel(name) for name in config.getoption("--kernel")] or kernels()
    config.hpmmap_runs = []
    config.hpmmap_done = 0
    # Ends the session, and the guests with it. A shell's background jobs ignore Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _version_key(kver: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", kver)]


def pytest_generate_tests(metafunc):
    if "item" not in metafunc.fixturenames:
        return
    items = all_items()
    if ref := metafunc.config.getoption("--changed"):
        items = items_for(items, paths_since(ref))
    asked = metafunc.config.getoption("--item")
    if asked:
        if unknown := set(asked) - {item.name for item in items}:
            raise pytest.UsageError(f"there is no item {', '.join(sorted(unknown))}")
        items = [item for item in items if item.name in asked]
    tier = selected_tier()
    params, ids = [], []
    newest = max(metafunc.config.hpmmap_kernels, key=_version_key)
    for kver in metafunc.config.hpmmap_kernels:
        on_kernel = [item.on(kver) for item in items]
        for machine in MACHINES:
            here = [i for i in on_kernel if i.machine == machine and runs_in(i, tier, kver == newest)]
            here = [i for i in here if not i.debug or is_debug_kernel(kver)]
            # With --item only these items run.
            ends = [leaving(machine)] if here and not asked else []
            for item in in_order(here) + ends:
                params.append((kver, item))
                ids.append(f"{kernel_label(kver)}-{item.name}")
    metafunc.parametrize("kver,item", params, ids=ids)


def _kver_and_item(node) -> tuple[str, Item] | None:
    params = getattr(getattr(node, "callspec", None), "params", {})
    # A parameter set without items still needs one node.
    return (params["kver"], params["item"]) if isinstance(params.get("item"), Item) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Add the final check to each guest that -k and -m leave with items."""
    nodes = list(items)
    result = yield
    record = Record.of_check()
    if record and record.resume:
        done = record.passed()
        left = [node for node in items if not (found := _kver_and_item(node)) or (found[0], found[1].name) not in done]
        config.hpmmap_done = len(items) - len(left)
        items[:] = left
    guests = {(kver, item.machine) for kver, item in filter(None, map(_kver_and_item, items))}
    for node in nodes:
        found = _kver_and_item(node)
        if found and node not in items:
            kver, item = found
            if item == leaving(item.machine) and (kver, item.machine) in guests:
                items.append(node)
    return result


def pytest_collection_finish(session):
    """Run only the selected items."""
    wanted: dict[tuple[str, str], list[Item]] = {}
    for node in session.items:
        found = _kver_and_item(node)
        if found:
            kver, item = found
            wanted.setdefault((kver, item.machine), []).append(item)
    if session.config.option.collectonly:
        return
    _start_guests(session.config, wanted)


def _start_guests(config, wanted: dict[tuple[str, str], list[Item]]) -> None:
    options = {
        "slots": threading.Semaphore(n := guests_at_once()),
        "timeout_factor": float(os.environ.get("HPMMAP_TIMEOUT_FACTOR", "2")),
        "module": config.getoption("--module"),
        "logs": config.getoption("--logs"),
    }
    seconds = seconds_of(config.cache.get(_SECONDS, {}))
    weights = {(kver, machine): sum(seconds(kver, item) for item in items) for (kver, machine), items in wanted.items()}
    total = sum(weights.values())
    # The longest guests first, so that the last ones end at about the same time.
    for kver, machine in sorted(wanted, key=weights.get, reverse=True):
        found = parts(wanted[kver, machine], partial(seconds, kver), total, n)
        for number, items in enumerate(found, 1):
            run = GuestRun(kver, machine, items, part=number if len(found) > 1 else 0, **options)
            config.hpmmap_runs.append(run)
            run.start()


@pytest.fixture
def outcome(request, kver: str, item: Item) -> Outcome:
    """The outcome of an item; waits until its guest has run it."""
    runs = [run for run in request.config.hpmmap_runs if run.kver == kver and item in run.items]
    outcomes = [run.outcome(item.name) for run in runs]
    # All guests end with the same item: its problem, if one has any.
    found = next(filter(problems, outcomes), outcomes[0])
    for title, lines in (("output", found.output), ("kernel log", found.dmesg)):
        text = "\n".join(lines).strip()
        if text:
            print(f"--- {title}\n{text}")
    return found


@pytest.fixture
def failures(outcome: Outcome) -> list[str]:
    return problems(outcome)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    record, found = Record.of_check(), _kver_and_item(item)
    if record and found and (call.when == "call" or (call.when == "setup" and report.failed)):
        kver, wanted = found
        seconds = sum(run.seconds(wanted.name) for run in item.config.hpmmap_runs if run.kver == kver)
        record.add(kver, wanted.name, "FAILED" if report.failed else report.outcome, seconds)
    return report


def pytest_sessionfinish(session):
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.hpmmap_done:
        session.exitstatus = pytest.ExitCode.OK
    cache = session.config.cache
    measured = {
        f"{run.kver} {name}": o.seconds for run in session.config.hpmmap_runs for name, o in run.outcomes.items()
    }
    if measured:
        cache.set(_SECONDS, cache.get(_SECONDS, {}) | measured)


def pytest_terminal_summary(terminalreporter, config):
    """Print the items' times: pytest only knows the time of waiting for a guest."""
    if config.hpmmap_done:
        terminalreporter.write_line(f"{config.hpmmap_done} items passed before")
    items = []
    for run in config.hpmmap_runs:
        total = sum(outcome.seconds for outcome in run.outcomes.values())
        terminalreporter.write_line(
            f"guest {run.name} on {run.kver}: {total:.0f} s in {len(run.outcomes)} items (log: {run.log})"
        )
        items += [(o.seconds, f"{kernel_label(run.kver)}-{name}") for name, o in run.outcomes.items()]
    if items:
        terminalreporter.write_line("the slowest items:")
    for seconds, name in sorted(items, reverse=True)[:_SLOWEST]:
        terminalreporter.write_line(f"{seconds:7.0f} s  {name}")

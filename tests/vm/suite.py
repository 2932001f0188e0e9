"""The items of each guest, and following a guest while it runs them."""

import os
import re
import secrets
import shlex
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from hpmmap_guest import Guest, is_debug_kernel, kernel_problems, parse_size
from hpmmap_guest.paths import BUILD, ROOT

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
# Only on a kernel of scripts/build-debug-kernel.
DEBUG_SCENARIOS = HERE / "debug"
# In guests whose CPUs run at once.
PARALLEL_SCENARIOS = HERE / "parallel"
SCRIPTS = (SCENARIOS, DEBUG_SCENARIOS, PARALLEL_SCENARIOS)
RUNNER = HERE / "guest/runner.sh"
PROGRAMS = BUILD / "tests"
LOGS = BUILD / "vm"

# The machines that items request by name.
MACHINES = {
    "main": {"memory": "4G", "cpus": 2},
    "apps": {"memory": "4G", "cpus": 2},
    # The test programs and the conformance cases, at the same time as the scenarios.
    # Page tables of four levels, as on most machines; the other guests have five.
    "programs": {"memory": "4G", "cpus": 2, "append": "no5lvl"},
    # The debug kernel without its check of page tables, which forbids windows onto ordinary memory.
    "windows": {"memory": "4G", "cpus": 2, "append": "no5lvl page_table_check=off"},
    # The module's debug build, which can leave hooked calls to Linux.
    "unhooked": {"memory": "4G", "cpus": 2, "debug": True},
    # CPUs to take, and some that stay.
    "partition": {"memory": "2G", "cpus": 4, "movable": "768M"},
    "numa": {"numa": ["2G", "2G"], "cpus": 2},
    # CPUs of both NUMA nodes for ranks, and one that stays.
    "ranks": {"numa": ["2G", "2G"], "cpus": 6},
    # The same with the module's debug build, which counts promises anew.
    "promises": {"numa": ["2G", "2G"], "cpus": 2, "debug": True},
    # Whole gigabytes of memory that can be taken offline, and a device behind an IOMMU.
    "gigabytes": {
        "memory": "7G",
        "cpus": 2,
        "movable": "5G",
        "append": "intel_iommu=on",
        "qemu": ["-device", "intel-iommu,caching-mode=on", "-device", "edu,dma_mask=0xffffffffffffffff"],
    },
    # Persistent memory, which dax/kmem can add to Linux.
    "dax": {"memory": "4G", "cpus": 2, "movable": "512M", "append": "memmap=768M!4G"},
    "icount": {"memory": "2G", "icount": True, "movable": "768M"},
    # For kernels in virtual machines in the guest. They need one CPU and instructions for time: otherwise an emulated
    # machine in an emulated one does nothing but serve its timer. Strings are copied faster by words than by bytes.
    "vm": {"memory": "3G", "icount": True, "movable": "1280M", "append": "clearcpuid=erms,fsrm"},
    # The same with whole gigabytes of memory that can be taken offline.
    "vm-gigabytes": {"memory": "7G", "icount": True, "movable": "5G", "append": "clearcpuid=erms,fsrm"},
    # The same with an IOMMU, a disk (this file, of which writes are forgotten) and a network card behind it.
    "vm-devices": {
        "memory": "7G",
        "icount": True,
        "movable": "5G",
        "append": "clearcpuid=erms,fsrm intel_iommu=on",
        "qemu": [
            *("-device", "intel-iommu,caching-mode=on"),
            *("-drive", f"if=none,id=disk,format=raw,snapshot=on,file={Path(__file__)}"),
            *("-device", "nvme,serial=disk,drive=disk"),
            *("-netdev", "user,id=net", "-device", "e1000e,netdev=net"),
        ],
    },
    # More CPUs than many hosts have, so a CPU can lose its core at any instruction.
    "parallel": {"memory": "4G", "cpus": 3, "parallel": True},
    # The same without the debug kernel's check of page tables, which forbids windows onto ordinary memory.
    "parallel-windows": {"memory": "4G", "cpus": 3, "parallel": True, "append": "page_table_check=off"},
    # Two nodes with whole gigabytes, and the debug build.
    "parallel-gigabytes": {"numa": ["4G", "4G"], "movable": "6G", "cpus": 4, "parallel": True, "debug": True},
    # The same with the module's debug build.
    "skipping": {"memory": "4G", "cpus": 3, "parallel": True, "append": "page_table_check=off", "debug": True},
    # Two of the CPUs can stop their tick.
    "quiet": {"memory": "4G", "cpus": 4, "parallel": True, "append": "nohz_full=2-3 rcu_nocbs=2-3"},
}
# The clock of a guest that counts instructions leaps ahead whenever it waits for
# the host, so its timeouts mean little.
_CLOCK_FACTOR = {"icount": 30, "vm": 30, "vm-gigabytes": 30, "vm-devices": 30}
# The scenarios start thousands of processes, which start twice as fast under emulation
# without random addresses. On the debug kernel addresses are random.
_SAME_ADDRESSES = {"main", "apps"}

# The tiers of items, from comments at their heads, that a run takes: on the newest of its
# kernels, and on the others. HPMMAP_TIER selects the run.
TIERS = {
    "check": ({"check", "newest"}, {"check", "older"}),
    "all": ({"check", "newest", "older", "all"}, {"check", "newest", "older", "all"}),
    "parallel": ({"parallel"}, {"parallel"}),
}
# If a guest dies one item has failed; the others get a new guest, a bounded number
# of times.
_MAX_BOOTS = 4
_SKIPPED = 77
# What stands before the reason where an item has told nothing of what it tests.
NO_GUEST = "the guest came to no item"
# Number of kernel problems that are shown; the first one tells most.
_SHOWN = 3


@dataclass(frozen=True)
class Item:
    """One test to run in a guest."""

    name: str
    machine: str
    timeout: int
    pool: str
    command: str
    last: bool = False
    """Whether it must come after all others of its guest."""
    debug: bool = False
    """Whether it needs a kernel of scripts/build-debug-kernel."""
    tier: str = "check"
    """check: runs on every kernel; newest: in check only on the newest; older: only in check, and not
    there; all: not in check; parallel: alone."""
    paths: tuple[str, ...] = ()
    """Patterns of the sources that it belongs to."""
    takes: int = 8
    """About how many seconds it takes, for where it has not run yet."""
    windows: bool = False
    """Has it windows onto ordinary memory?"""

    def on(self, kver: str) -> "Item":
        """The same on a kernel."""
        return replace(self, machine="windows") if self.windows and is_debug_kernel(kver) else self


@dataclass
class Outcome:
    """The outcome of an item."""

    status: int | None
    """Exit status; None if the guest never told."""
    output: list[str] = field(default_factory=list)
    dmesg: list[str] = field(default_factory=list)
    trouble: str = ""
    """Why there is no status."""
    seconds: float = 0
    """How long it took."""

    @property
    def skipped(self) -> str | None:
        """The reason, if the item reports that it cannot run here."""
        if self.status != _SKIPPED:
            return None
        reasons = [line for line in self.output if line.startswith("SKIP: ")]
        return reasons[-1].removeprefix("SKIP: ") if reasons else "no reason given"


def _registered(options: str) -> str:
    policy = "strict" if "--strict" in options.split() else "fallback"
    image = "yes" if "--image" in options.split() else "no"
    others = "HPMMAP_TEST_STACKS=eager " if "--stacks eager" in options else ""
    others += "HPMMAP_TEST_FIRST_TOUCH=1 " if "first-touch" in options.split() else ""
    others += "HPMMAP_TEST_SHARED=linux " if "--shared linux" in options else ""
    others += "HPMMAP_TEST_GIGABYTES=yes " if "--page-size 1G" in options else ""
    static = re.search(r"--static (\S+)", options)
    others += f"HPMMAP_TEST_STATIC={parse_size(static[1])} " if static else ""
    return (
        f"HPMMAP_TEST_EXPECT=registered HPMMAP_TEST_POLICY={policy} HPMMAP_TEST_IMAGE={image} "
        f"{others}hpmmap run {options} --"
    )


def selected_tier() -> str:
    """The run that HPMMAP_TIER selects."""
    tier = os.environ.get("HPMMAP_TIER") or "check"
    if tier not in TIERS:
        raise ValueError(f"HPMMAP_TIER is '{tier}'; there are: {', '.join(TIERS)}")
    return tier


def runs_in(item: Item, tier: str, newest: bool) -> bool:
    """Does a run take an item, on the newest of its kernels or on another one?"""
    on_newest, on_others = TIERS[tier]
    return item.tier in (on_newest if newest else on_others)


def _item_tier(source: Path, text: str, key: str = "tier", default: str = "check") -> str:
    """The tier of a line "# KEY: TIER  REASON". The reason tells when to drop it."""
    found = re.search(rf"^# {key}:(.*)$", text, re.MULTILINE)
    if not found:
        return default
    tier, _, reason = found[1].strip().partition(" ")
    known = set().union(*(set().union(*kernels) for kernels in TIERS.values()))
    if tier not in known or not reason:
        raise ValueError(f"{source}: '# {key}:{found[1]}': it must be one of {', '.join(sorted(known))}, and a reason")
    return tier


def _item_paths(source: Path, text: str) -> tuple[str, ...]:
    """The paths whose changes it tests: its own source, and lines "# paths: PATTERN..."."""
    named = " ".join(re.findall(r"^# paths: (.*)$", text, re.MULTILINE)).split()
    return (str(source.relative_to(ROOT)), *named)


def all_items() -> list[Item]:
    """All items in the order in which they run."""
    return program_items() + scenario_items()


def in_order(items: list[Item]) -> list[Item]:
    """Sort by growing pools, since each change takes seconds; items that must come last at the end."""
    return sorted(
        items,
        key=lambda item: (item.last, item.name.startswith("leave-"), 0 if item.pool == "-" else parse_size(item.pool)),
    )


def program_items() -> list[Item]:
    """Every test program, natively and under hpmmap run: without options, and with those of
    each line of tests/guest/<name>.args, if that exists. Natively most only check the test
    itself, and options do the same on every kernel."""
    items = []
    sources = ROOT / "tests/guest"
    for program in sorted(p for p in PROGRAMS.glob("*") if p.is_file() and p.stat().st_mode & 0o111):
        args = sources / f"{program.name}.args"
        text = args.read_text() if args.exists() else ""
        variants = {
            "native": ("HPMMAP_TEST_EXPECT=native", _item_tier(args, text, "natively", "all")),
            "hpmmap": (_registered(""), _item_tier(args, text, "without options")),
        }
        with_options = _item_tier(args, text, "with options", "newest")
        given_up = " ".join(re.findall(r"^# static gives up: (.*)$", text, re.MULTILINE))
        for line in filter(None, map(str.strip, text.splitlines())):
            if not line.startswith("#"):
                up = f"HPMMAP_TEST_GIVEN_UP={shlex.quote(given_up)} " if "--static" in line and given_up else ""
                variants[f"hpmmap {line}".replace(" ", "_")] = (up + _registered(line), with_options)
        for variant, (prefix, tier) in variants.items():
            # The line of success must be the program's own.
            command = f"set -o pipefail; {prefix} {program} | tee /tmp/out; status=$?; "
            command += f"[ $status = 0 ] || exit $status; grep -qx 'HPMMAP-TEST-PASS {program.name}' /tmp/out"
            own, *others = _item_paths(args, text)
            paths = (f"tests/guest/{program.name}.c", own, *(others if variant != "native" else ()))
            name = f"{program.name}[{variant}]"
            windows = "\n# windows: yes\n" in f"\n{text}"
            machine = "gigabytes" if "\n# gigabytes: yes\n" in f"\n{text}" else "programs"
            pool = "3584M" if machine == "gigabytes" else "2G"
            items.append(Item(name, machine, 300, pool, command, tier=tier, paths=paths, windows=windows))
    return items


def scenario_items() -> list[Item]:
    """The scripts; comments "# key: value" at their heads replace defaults. Scripts that scale
    do more with the environment variable HPMMAP_TEST_SCALE."""
    items = []
    run = selected_tier()
    scale = int(os.environ.get("HPMMAP_TEST_SCALE", "1"))
    # A seed for the endless fuzzers, which print it.
    seed = int(os.environ.get("HPMMAP_SEED") or secrets.randbelow(1 << 30))
    cases = shlex.quote(os.environ.get("HPMMAP_CONFORMANCE_CASES", ""))
    for script in [path for where in SCRIPTS for path in sorted(where.glob("*.sh"))]:
        debug = script.parent == DEBUG_SCENARIOS
        text = script.read_text()
        settings = {"machine": "main", "timeout": "120", "pool": "512M", "last": "no", "scales": "no", "takes": "8"}
        settings |= {"windows": "no"}
        for key, value in re.findall(r"^# (\w+): (\S+)$", text, re.MULTILINE):
            if key == "paths":
                continue
            if key not in settings:
                raise ValueError(f"{script}: unknown setting '{key}'")
            settings[key] = value
        if settings["machine"] not in MACHINES:
            raise ValueError(f"{script}: unknown machine '{settings['machine']}'; there are: {', '.join(MACHINES)}")
        scaled = scale if settings["scales"] == "yes" else 1
        items.append(
            Item(
                script.stem,
                settings["machine"],
                int(settings["timeout"]) * scaled,
                settings["pool"],
                f"HPMMAP_TIER={run} HPMMAP_TEST_SCALE={scaled} HPMMAP_SEED={seed} "
                f"HPMMAP_CONFORMANCE_CASES={cases} exec bash {shlex.quote(str(script))}",
                settings["last"] == "yes",
                debug,
                _item_tier(script, text),
                _item_paths(script, text),
                int(settings["takes"]) * scaled,
                settings["windows"] == "yes",
            )
        )
    return items


def leaving(machine: str) -> Item:
    """The last item of every guest: everything is given back and checked."""
    return Item(f"leave-{machine}", machine, 120, "-", f"exec bash {HERE}/guest/leave.sh", last=True)


class GuestRun:
    """The items of one machine on one kernel, run in the background."""

    def __init__(
        self,
        kver: str,
        machine: str,
        items: list[Item],
        slots: threading.Semaphore,
        timeout_factor: float = 1.0,
        module: Path | None = None,
        logs: Path = LOGS,
        part: int = 0,
    ):
        self.kver = kver
        self.machine = machine
        self.items = in_order(items)
        self.slots = slots
        self.timeout_factor = timeout_factor
        self.module = module
        self.logs = logs
        self.name = f"{machine}-{part}" if part else machine
        self.outcomes: dict[str, Outcome] = {}
        self._changed = threading.Condition()
        self._done = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def log(self) -> Path:
        """The file with all output of the guest, written while it runs."""
        return self.logs / f"{self.kver}-{self.name}.log"

    def start(self) -> None:
        """Run as soon as a slot is free."""
        self._thread.start()

    def outcome(self, name: str) -> Outcome:
        """Wait for an item to end."""
        with self._changed:
            self._changed.wait_for(lambda: name in self.outcomes or self._done)
            return self.outcomes.get(name) or Outcome(None, trouble="it was never run")

    def seconds(self, name: str) -> float:
        """The time of an item, if it was run here."""
        return self.outcomes[name].seconds if name in self.outcomes else 0

    def _run(self) -> None:
        with self.slots:
            self._run_items()

    def _run_items(self) -> None:
        try:
            self.log.unlink(missing_ok=True)
            left = self.items
            for _ in range(_MAX_BOOTS):
                left = self._boot(left)
                if not left:
                    break
            for item in left:
                self._set(item.name, Outcome(None, trouble="too many guests died before it"))
        except Exception as error:  # the failure of the thread must not be silent
            for item in self.items:
                if item.name not in self.outcomes:
                    self._set(item.name, Outcome(None, trouble=f"{NO_GUEST}: {type(error).__name__}: {error}"))
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _set(self, name: str, outcome: Outcome) -> None:
        with self._changed:
            self.outcomes[name] = outcome
            self._changed.notify_all()

    def _boot(self, items: list[Item]) -> list[Item]:
        """Run items in one guest; return those that it did not reach."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        listing = self.log.with_name(f"{secrets.token_hex(8)}.items")
        clock = _CLOCK_FACTOR.get(self.machine, 1)
        listing.write_text(
            "".join(f"{i.name} {int(i.timeout * self.timeout_factor * clock)} {i.pool} {i.command}\n" for i in items)
        )
        same_addresses = self.machine in _SAME_ADDRESSES and not is_debug_kernel(self.kver)
        options = {"append": "norandmaps"} if same_addresses else {}
        machine = dict(MACHINES[self.machine])
        debug = machine.pop("debug", False)
        module = self.module or (BUILD / self.kver / "debug/hpmmap.ko" if debug else None)
        guest = Guest(self.kver, module=module, **options, **machine)
        with self.log.open("a") as log:
            follower = _Follower(self._set, log)
            result = guest.run(
                f"exec bash {shlex.quote(str(RUNNER))} {shlex.quote(str(listing))} {follower.nonce}",
                timeout=sum(i.timeout * self.timeout_factor + 60 for i in items),
                boot_timeout=180 * self.timeout_factor,
                on_line=follower.line,
            )

        left = [item for item in items if item.name not in self.outcomes]
        if left and result.exit_status is None:
            tail = result.console.splitlines()[-60:]
            dead = next((item for item in left if item.name == follower.current), left[0])
            died = "the guest died" if follower.current else NO_GUEST
            self._set(dead.name, Outcome(None, follower.output, tail, f"{died}: {result.reason}"))
            left.remove(dead)
        elif left:
            for item in left:
                self._set(item.name, Outcome(None, result.stdout.splitlines()[-20:], trouble=result.reason))
            left = []
        return left


class _Follower:
    """Splits the output of a guest into items."""

    def __init__(self, report, log: TextIO):
        self.nonce = secrets.token_hex(8)
        self.report = report
        self.log = log
        self.token = re.compile(rf"HPMMAP-ITEM-(BEGIN|DMESG|END):(.+?)(?::(\d+))?:{self.nonce}")
        self.current: str | None = None
        self.started = 0.0
        self.output: list[str] = []
        self.dmesg: list[str] | None = None

    def line(self, stream: str, line: str) -> None:
        print(line, file=self.log, flush=True)
        if stream != "stdout":
            return
        match = self.token.fullmatch(line)
        if not match:
            if self.current:
                (self.output if self.dmesg is None else self.dmesg).append(line)
            return
        what, name, status = match.groups()
        if what == "BEGIN":
            self.current, self.output, self.dmesg = name, [], None
            self.started = time.monotonic()
        elif what == "DMESG":
            self.dmesg = []
        else:
            seconds = time.monotonic() - self.started
            self.report(name, Outcome(int(status), self.output, self.dmesg or [], seconds=seconds))
            self.current = None


def problems(outcome: Outcome) -> list[str]:
    """The problems for which an item does not pass."""
    found = []
    if outcome.trouble:
        found.append(outcome.trouble)
    elif outcome.status not in (0, _SKIPPED):
        found.append(f"it ended with status {outcome.status}")
    complaints = kernel_problems("\n".join(outcome.dmesg))
    found += [f"kernel: {line}" for line in complaints[:_SHOWN]]
    if len(complaints) > _SHOWN:
        found.append(f"and {len(complaints) - _SHOWN} more lines of that kind")
    return found

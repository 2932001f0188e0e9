"""What partitions change of a host: host_state.py FILE writes all values, host_state.py FILE BEFORE compares.

Tasks are compared if they are there both times; they are told apart by number and start. Also a module: state().
"""

import json
import os
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# Values of processes, clocks and random numbers, and the taint of a warning that Linux 6.12 may log where a fair server
# stops (harness/hpmmap_guest/kmsg.py).
CHANGING = ("max_newidle_lb_cost", "random/", "ns_last_pid", "pty/nr", "hung_task_detect_count", "kernel/tainted")
PF_NO_SETAFFINITY = 0x4000000


def read(path: Path) -> str | None:
    """The contents; None if it is gone or cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def files() -> list[Path]:
    """Every file that is compared."""
    found = [*CGROUPS.rglob("cpuset.*"), *CGROUPS.rglob("cgroup.subtree_control")]
    found += Path("/proc/irq").rglob("*affinity*")
    found += Path("/sys/devices/virtual/workqueue").rglob("*cpumask*")
    found += Path("/proc/sys/kernel").rglob("*")
    found += Path("/sys/kernel/debug/sched").rglob("*")
    found += Path("/sys/devices/system/machinecheck").rglob("*")
    found += Path("/sys/devices/system/cpu").glob("*")
    # Where an interrupt goes is the kernel's choice, and the rest changes by itself.
    left_out = ("effective_affinity", "effective_affinity_list", "debug")
    return [path for path in found if path.name not in left_out and path.is_file() and not path.is_symlink()]


def tasks() -> dict[str, str]:
    """The CPUs of each task whose affinity can be set."""
    found = {}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        stat, status = read(task / "stat"), read(task / "status")
        if not stat or not status:
            continue
        fields = stat.rpartition(")")[2].split()
        if int(fields[6]) & PF_NO_SETAFFINITY:
            continue
        cpus = next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
        found[f"{task.name} {fields[19]} {read(task / 'comm')}".strip()] = cpus
    return found


def state() -> dict[str, dict[str, str]]:
    """All of it."""
    values = {str(path): read(path) for path in files() if not any(name in str(path) for name in CHANGING)}
    return {
        "files": {path: text for path, text in values.items() if text is not None},
        "tasks": tasks(),
        "records": sorted(os.listdir("/run/hpmmap/partitions")) if os.path.isdir("/run/hpmmap/partitions") else [],
    }


def differences(before: dict, after: dict) -> list[str]:
    """Each value that is not as before."""
    found = []
    old, new = before["files"], after["files"]
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            found.append(f"{path}: {old.get(path)!r} -> {new.get(path)!r}")
    for task in old_and_new(before["tasks"], after["tasks"]):
        found.append(f"task {task}: {before['tasks'][task]} -> {after['tasks'][task]}")
    left = [name for name in after["records"] if name not in (".lock", ".enter")]
    return found + [f"record {name}" for name in left]


def old_and_new(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Tasks of both with other CPUs."""
    return sorted(task for task in old.keys() & new.keys() if old[task] != new[task])


def main() -> int:
    """Write, and compare if there is something to compare with."""
    now = state()
    Path(sys.argv[1]).write_text(json.dumps(now))
    if len(sys.argv) == 2:
        print(f"{len(now['files'])} files, {len(now['tasks'])} tasks")
        return 0
    found = differences(json.loads(Path(sys.argv[2]).read_text()), now)
    print("\n".join(found) or f"{len(now['files'])} files and {len(now['tasks'])} tasks are as before")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

"""Problems in a kernel log."""

import re

_PROBLEM = re.compile(
    r"""
    \bBUG:|\bWARNING:|\bOops\b|Call\ Trace|[Bb]ad\ page|KASAN|UBSAN|kernel\ BUG\ at
    |possible\ circular\ locking|inconsistent\ lock\ state|possible\ recursive\ locking|suspicious\ RCU
    |rcu.*(?:detected\ stall|detected\ expedited\ stall|kthread\ starved)|soft\ lockup|hard\ LOCKUP
    |hung\ task|blocked\ for\ more\ than
    |general\ protection|page\ allocation\ failure|Kernel\ panic|refcount_t:|list_(?:add|del)\ corruption
    |INFO:\ (?:possible|trying\ to\ register)|ODEBUG:|new\ suspected\ memory\ leak|unreferenced\ object
    # A check that has switched itself off finds no problems any more.
    |turning\ off\ the\ locking\ correctness\ validator|kmemleak:.*(?:disabled|pool\ empty|Cannot)
    |unable\ to\ handle|scheduling\ while\ atomic|sleeping\ function\ called|Bad\ rss-counter|non-zero\ pgtables_bytes
    """,
    re.VERBOSE,
)

# Lines that match the above but are harmless in an emulated guest.
_HARMLESS = re.compile(
    r"""
    # An emulated CPU loses to the watchdog clock when the host is busy.
    clocksource:.*(?:tsc|kvm-clock|hpet|acpi_pm)
    # The host was too busy to run the guest in time.
    |perf:\ interrupt\ took\ too\ long
    # A single page that cannot be allocated is normal when memory is full.
    |page\ allocation\ failure:\ order:0,
    # Notices about a wrong action of a user process, not of the kernel.
    |traps:\ .*\ general\ protection\ fault\ ip:
    """,
    re.VERBOSE,
)


# The kernel's own code has many data races, some of them on purpose.
_RACE = re.compile(r"BUG: KCSAN: ")
_RACE_ACCESS = re.compile(r"\bto 0x[0-9a-f]+ of \d+ bytes by ")
_RACE_END = "=" * 66
# Frames that show which code made an access: the function itself and, if that only copies
# or links, its caller. Every hooked call has the module further up.
_RACE_FRAMES = 2


# A test that wants the OOM killer to act writes this to /dev/kmsg.
_OOM_WANTED = "hpmmap-test: the OOM killer is wanted"
# Actions of a program that Linux reports once an hour, with a call trace.
_TRACED_NOTICE = "GUP no longer grows the stack in "
# Linux 6.12 may warn so where the fair server of a CPU that runs something is stopped.
_OWN_WARNING = re.compile(r"WARNING: .* task_non_contending\+")


def kernel_problems(log: str) -> list[str]:
    """Lines of a kernel log that report a problem."""
    lines = _without_harmless_traces(log.splitlines())
    return [
        line
        for number, line in enumerate(lines)
        if _PROBLEM.search(line)
        and not _HARMLESS.search(line)
        and (not _RACE.search(line) or _is_race_of_module(lines[number:]))
    ]


def _without_harmless_traces(lines: list[str]) -> list[str]:
    """Remove call traces of an OOM kill that a test wants, and of notices, and a warning of Linux's own."""
    left = []
    wanted = traced = False
    for line in lines:
        wanted = wanted or _OOM_WANTED in line
        traced = traced or _TRACED_NOTICE in line or (wanted and "invoked oom-killer" in line)
        if _OWN_WARNING.search(line):
            traced = True
        elif traced and "Call Trace" in line:
            traced = False
        else:
            left.append(line)
    return left


def _is_race_of_module(report: list[str]) -> bool:
    """Is one of the accesses of a data race the module's?"""
    if "[hpmmap]" in report[0]:
        return True
    frames_left = 0
    for line in report[1:]:
        if _RACE_END in line:
            return False
        if _RACE_ACCESS.search(line):
            frames_left = _RACE_FRAMES
        elif frames_left:
            if "[hpmmap]" in line:
                return True
            frames_left -= 1
    return False

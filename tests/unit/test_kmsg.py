"""Problems in a kernel log."""

from hpmmap_guest import kernel_problems

LINE = "=" * 66


def race(title, *accesses):
    said = [LINE, f"BUG: KCSAN: data-race in {title}", ""]
    for frames in accesses:
        said += ["write to 0xffff888003bd9a40 of 8 bytes by task 211 on cpu 1:", *(f" {frame}" for frame in frames), ""]
    said += ["Reported by Kernel Concurrency Sanitizer on:", "CPU: 1 PID: 211 Comm: stress-ng", LINE]
    return [f"[   61.3{n:05}] {line}" for n, line in enumerate(said)]


def problems(*lines):
    return kernel_problems("\n".join(lines))


def test_data_races_of_the_module_count():
    ours = race("pool_take [hpmmap] / pool_give [hpmmap]", ["pool_take+0x1/0x2 [hpmmap]"])
    assert problems(*ours) == [ours[1]]
    # A function of the kernel that the module has called.
    called = race("list_del / strscpy", ["list_del+0x1/0x2", "pool_give+0x1/0x2 [hpmmap]"], ["strscpy+0x1/0x2"])
    assert problems(*called) == [called[1]]


def test_those_of_the_kernel_do_not():
    # Every call that is hooked has the module further up.
    frames = ["do_mmap+0x1/0x2", "vm_mmap_pgoff+0x1/0x2", "hpmmap_call_orig+0x1/0x2 [hpmmap]"]
    theirs = race("do_mmap / exit_mmap", frames, ["exit_mmap+0x1/0x2"])
    assert problems(*theirs) == []
    # Another report follows.
    ours = race("pool_take [hpmmap] / pool_give [hpmmap]", ["pool_take+0x1/0x2 [hpmmap]"])
    assert problems(*theirs, *ours) == [ours[1]]
    assert problems(*theirs, "[   99.0] WARNING: CPU: 0 PID: 1 at mm/memory.c:1") == [
        "[   99.0] WARNING: CPU: 0 PID: 1 at mm/memory.c:1"
    ]


def test_only_a_wanted_oom_kill_is_no_problem():
    report = "[1.0] python3 invoked oom-killer: order=0\n[1.0] Call Trace:\n[1.0]  dump_stack\n[1.1] Killed process 5"
    assert kernel_problems(report) == ["[1.0] Call Trace:"]
    wanted = f"[0.9] hpmmap-test: the OOM killer is wanted\n{report}"
    assert kernel_problems(wanted) == []
    assert kernel_problems(f"{wanted}\n[2.0] BUG: x\n[2.0] Call Trace:") == ["[2.0] BUG: x", "[2.0] Call Trace:"]


def test_the_trace_of_a_notice_is_no_problem():
    notice = "[1.0] GUP no longer grows the stack in x (1): 10-20 (f)\n[1.0] Call Trace:\n[1.0]  f\n"
    assert kernel_problems(notice) == []
    assert kernel_problems(f"{notice}[2.0] Call Trace:") == ["[2.0] Call Trace:"]


def test_a_warning_of_linux_itself_is_no_problem():
    own = "[1.0] WARNING: CPU: 1 PID: 4 at deadline.c:265 task_non_contending+0x410/0x4d0\n[1.0] Call Trace:\n"
    assert kernel_problems(own) == []
    assert kernel_problems(f"{own}[2.0] Call Trace:") == ["[2.0] Call Trace:"]

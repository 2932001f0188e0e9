# SPDX-License-Identifier: GPL-2.0
"""Seed 003: Big Memory."""

from __future__ import annotations

from .model import Bars, Claim, Lines, Rows, Section


def _message(ranks: int, pattern: str, size: int, way: str) -> str:
    return f"{{messages:{ranks}/[pattern={pattern},bytes={float(size)}]/{way}}}"


def _best(pattern: str) -> str:
    """What 1 MB costs natively at best, on four ranks."""
    return f"min({', '.join(_message(4, pattern, 1 << 20, way) for way in NATIVE)})"


NATIVE = ("copied", "cma", "xpmem")
QUIET = "{noise:detours/[variant=plain,method=4k,condition=alone]/noise}"

SECTIONS = (
    Section(
        "003-fig4",
        ("noise", "noise-tasks"),
        (
            Claim(
                "Noise of a CPU with nothing else to do is 0.05 % (here: within a factor of four).",
                f"{QUIET} >= 0.000125 and {QUIET} <= 0.002",
            ),
            Claim(
                "Managing memory adds none (HPMMAP, resident memory: within 0.05 % of the loop without memory).",
                "{noise:detours/[variant=touch,method=hpmmap,condition=alone]/noise} <= 0.0005 + " + QUIET,
                ours=True,
            ),
            Claim(
                "One of four cores has ten times the noise of the others.",
                metal="It was a driver of Blue Gene's console. In emulated guests CPUs take turns, which is noise itself.",
            ),
        ),
        (
            Bars(
                "Part of the instructions that detours took",
                "%",
                {
                    f"{loop}, {method}": f"100 * {{noise:detours/[variant={loop},method={method},condition=alone]/noise}}"
                    for loop, methods in (
                        ("plain", ("4k", "hpmmap")),
                        ("touch", ("4k", "thp", "hugetlb", "hpmmap")),
                        ("fresh", ("4k", "thp", "hugetlb", "hpmmap")),
                    )
                    for method in methods
                },
            ),
        ),
    ),
    Section(
        "003-fig5",
        ("noise", "noise-tasks"),
        (
            Claim("Big Memory is as fast as CNK.", metal="CNK is the kernel of Blue Gene/P."),
            Claim("Small pages fall off where the TLB ends.", metal="An emulated CPU has no TLB."),
            Claim("Unbound tasks are slower.", metal="Migrations cost caches, which an emulated CPU has none of."),
        ),
        (
            Lines(
                "Dependent accesses, one task",
                "bytes of the array",
                "instructions",
                {
                    method: ("noise:accesses", f"mode=dependent,tasks=one,method={method}", "{size_bytes}", "{median}")
                    for method in ("4k", "thp", "hugetlb", "hpmmap")
                },
                log=True,
            ),
            Lines(
                "Four tasks, ns (of the emulator)",
                "bytes of the array",
                "ns",
                {
                    f"{method}, {tasks}": (
                        "noise-tasks:accesses",
                        f"mode=dependent,tasks={tasks},method={method}",
                        "{size_bytes}",
                        "{median}",
                    )
                    for method in ("4k", "hpmmap")
                    for tasks in ("bound", "unbound")
                },
                log=True,
            ),
        ),
    ),
    Section(
        "003-fig6",
        ("messages",),
        (
            Claim(
                "Ping-pong of small messages costs no more in lightweight memory (the seed: than under CNK; here: than in ordinary memory, "
                "8 bytes, at most 5 % more).",
                f"{_message(2, 'pingpong', 8, 'registered:copied')} <= 1.05 * {_message(2, 'pingpong', 8, 'copied')}",
            ),
            Claim(
                "Barrier: at most 5 % more, too.",
                f"{_message(4, 'barrier', 0, 'registered:copied')} <= 1.05 * {_message(4, 'barrier', 0, 'copied')}",
            ),
            Claim(
                "Broadcast of 1 MB costs at most 2 % more (by windows, natively by what is best).",
                f"{_message(4, 'bcast', 1 << 20, 'registered:xpmem')} <= 1.02 * {_best('bcast')}",
            ),
            Claim(
                "Allreduce of 1 MB: at most 2 % more, too.",
                f"{_message(4, 'allreduce', 1 << 20, 'registered:xpmem')} <= 1.02 * {_best('allreduce')}",
            ),
            Claim("On up to 32,768 cores.", metal="It takes Blue Gene/P."),
        ),
        (
            Rows(
                "Thousand instructions of all ranks",
                ("natively, copied", "natively, CMA", "natively, windows", "HPMMAP, copied", "HPMMAP, windows"),
                {
                    f"{pattern} {size} bytes, {ranks} ranks": tuple(
                        _message(ranks, pattern, size, way)
                        for way in (*NATIVE, "registered:copied", "registered:xpmem")
                    )
                    for ranks, pattern, size in (
                        (4, "barrier", 0),
                        (2, "pingpong", 8),
                        (2, "pingpong", 16 << 20),
                        (4, "bcast", 1 << 20),
                        (4, "allreduce", 16),
                        (4, "allreduce", 1 << 20),
                    )
                },
            ),
        ),
    ),
    Section(
        "003-fig7",
        ("kernels",),
        (
            Claim("EP, which hardly communicates, is faster than in paged memory.", metal="That gain is the TLB's."),
            Claim(
                "FT, which has all ranks exchange, is ahead (here: at least 2 % fewer instructions, 2 ranks).",
                "{kernels:rows/[app=ft,manager=hpmmap,ranks=2]/instructions} <= 0.98 * {kernels:rows/[app=ft,manager=4k,ranks=2]/instructions}",
            ),
            Claim(
                "Speed, bound and unbound.",
                metal="The gain is the TLB's, and that of a network that needs memory in one piece.",
            ),
        ),
        (
            Rows(
                "Million instructions of all ranks, class S",
                ("1 rank", "2 ranks", "4 ranks"),
                {
                    f"{app}, {manager}": tuple(
                        f"{{kernels:rows/[app={app},manager={manager},ranks={n}]/instructions}}" for n in (1, 2, 4)
                    )
                    for app in ("ep", "ft")
                    for manager in ("4k", "hpmmap")
                },
            ),
        ),
    ),
)

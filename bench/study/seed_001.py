# SPDX-License-Identifier: GPL-2.0
"""Seed 001: page reuse."""

from __future__ import annotations

from .model import Bars, Claim, Lines, Rows, Section

SEEDS = ("glibc-4k", "jemalloc-4k", "tcmalloc-4k")
SMALL = (*SEEDS, "mimalloc-4k", "lowmem-4k")
HUGE = ("glibc-thp", "jemalloc-thp", "tcmalloc-thp", "mimalloc-thp", "lowmem-thp")
OURS = "hpmmap-jemalloc-hpmmap"
LOWMEM, REUSE = "lowmem-hpmmap", "hpmmap-lowmem-hpmmap"
POOL = ("glibc-hpmmap", "jemalloc-hpmmap", "tcmalloc-hpmmap", "mimalloc-hpmmap", OURS, LOWMEM, REUSE)
LEAST_SAVED = 5
"""Million instructions; a figure is the difference of two runs, rounded to a million."""
NO_SMALL_PAGES = "The pools have blocks of 2 MB: reuse with pages of 4 KB takes the seed's kernel."
PROGRAMS = ("minihydro", "miniamr")
DECAY = "jemalloc 5 gives memory back ten seconds after it was freed, and the programs run for less than three here"


def _touch(pattern: str, method: str, threads: int, figure: str = "touch_p50") -> str:
    return f"{{touches:rows/[pattern={pattern},method={method},threads={threads}]/{figure}}}"


def _page(pattern: str, method: str, threads: int) -> str:
    """Instructions for a page, calls included: by the throughput, whose second is 1e9 instructions."""
    return f"1000000000 / {_touch(pattern, method, threads, 'pages_per_second')}"


def _calls(*methods: str) -> Lines:
    return Lines(
        "Map, touch and unmap, for each 4 KB",
        "threads",
        "instructions",
        {
            method: ("touches:rows", f"pattern=threads,method={method}", "{threads}", "1000000000 / {pages_per_second}")
            for method in methods
        },
    )


def _allocator(app: str, allocator: str, figure: str) -> str:
    return f"{{allocators:rows/[app={app},allocator={allocator}]/{figure}}}"


def _system(allocators: tuple[str, ...]) -> str:
    """System work of the meshes on several allocators, with commas."""
    return ", ".join(_allocator("miniamr", allocator, "system") for allocator in allocators)


def _saved(app: str, rest: float) -> str:
    """Reuse leaves at most a part of the system work on the pools, and saves more than figures err by."""
    without, reuse = (_allocator(app, allocator, "system") for allocator in (LOWMEM, REUSE))
    return f"{reuse} <= {rest} * {without} and {without} - {reuse} >= {LEAST_SAVED}"


def _allocator_rows(app: str, names: tuple[str, ...]) -> Rows:
    figures = ("total", "user", "system", "mb")
    rows = {name: tuple(_allocator(app, name, figure) for figure in figures) for name in names}
    return Rows(f"{app}: instructions in millions, memory in MB", ("total", "user", "system", "MB"), rows)


SECTIONS = (
    Section(
        "001-fig1",
        ("touches",),
        (
            Claim(
                "With threads the median grows linearly with their number.",
                metal="Locks are waited for only by CPUs that run at once.",
            ),
            Claim(
                "With processes it stays the same within a socket.",
                metal="On one CPU nothing contends, so it stays the same in any case.",
            ),
            Claim(
                "HPMMAP's first touches cost nothing, whatever the number of threads.",
                f"{_touch('threads', 'hpmmap', 8, 'touch_p90')} * 50 <= {_touch('threads', '4k', 8)}",
                ours=True,
            ),
        ),
        (
            Lines(
                "First touch, median",
                "threads or processes",
                "instructions",
                {
                    f"{method}, {pattern}": (
                        "touches:rows",
                        f"pattern={pattern},method={method}",
                        "{threads}",
                        "{touch_p50}",
                    )
                    for method in ("4k", "hpmmap")
                    for pattern in ("threads", "processes")
                },
            ),
            Rows(
                "Quantiles of first touches of 4 KB, in instructions",
                ("10 %", "25 %", "50 %", "75 %", "90 %", "pages in 10^9 instructions"),
                {
                    f"{method}, {threads} {pattern}": tuple(
                        _touch(pattern, method, threads, figure)
                        for figure in (
                            "touch_p10",
                            "touch_p25",
                            "touch_p50",
                            "touch_p75",
                            "touch_p90",
                            "pages_per_second",
                        )
                    )
                    for method in ("4k", "thp", "hugetlb", "hpmmap")
                    for pattern in ("threads", "processes")
                    for threads in (1, 4, 8)
                },
            ),
        ),
    ),
    Section(
        "001-fig3",
        ("touches",),
        (
            Claim(
                "On one thread huge pages cost at least 40 % less for 4 KB than pages of 4 KB (the seed: 40 %).",
                f"{_page('threads', 'thp', 1)} <= 0.6 * {_page('threads', '4k', 1)}",
            ),
            Claim("On 24 threads both cost the same.", metal="Locks are waited for only by CPUs that run at once."),
        ),
        (_calls("4k", "thp", "hugetlb", "hpmmap"),),
    ),
    Section(
        "001-fig5",
        ("touches",),
        (
            Claim(
                "Reuse saves at least 44 % of what 4 KB cost where each block has to be zeroed (the seed: 45 %, 1,900 instead of "
                "3,400; here: map, touch and unmap, one thread).",
                f"{_page('threads', 'hpmmap-reuse', 1)} <= 0.56 * {_page('threads', 'hpmmap-dirty', 1)}",
            ),
            Claim("On 12 threads it saves 66 %.", metal="Locks are waited for only by CPUs that run at once."),
        ),
        (_calls("4k", "hpmmap", "hpmmap-dirty", "hpmmap-reuse"),),
    ),
    Section(
        "001-fig6",
        ("touches",),
        (
            Claim(
                "Reuse costs what memory costs that needs no zeroing (the control: clean blocks), within a factor of two either way.",
                f"{_page('threads', 'hpmmap-reuse', 4)} <= 2 * {_page('threads', 'hpmmap', 4)} and "
                f"{_page('threads', 'hpmmap', 4)} <= 2 * {_page('threads', 'hpmmap-reuse', 4)}",
            ),
            Claim("On 24 threads of two sockets it saves a constant 1,500 cycles.", metal="It takes two sockets."),
        ),
        (
            Rows(
                "Map, touch and unmap, instructions for each 4 KB",
                ("1", "2", "4", "8"),
                {
                    f"{method}, {pattern}": tuple(_page(pattern, method, n) for n in (1, 2, 4, 8))
                    for method in ("4k", "hpmmap-dirty", "hpmmap", "hpmmap-reuse")
                    for pattern in ("threads", "processes")
                },
            ),
        ),
    ),
    Section(
        "001-fig7",
        ("touches",),
        (
            Claim(
                "With huge pages reuse takes at least 57 times less for 4 KB than they cost without.",
                f"{_page('threads', 'thp', 1)} >= 57 * {_page('threads', 'hpmmap-reuse', 1)}",
                "what remains is the calls themselves, which are part of the figures here; in the seed a touch alone is timed",
            ),
        ),
        (
            Bars(
                "Map, touch and unmap, one thread, for each 4 KB",
                "instructions",
                {
                    method: _page("threads", method, 1)
                    for method in ("4k", "thp", "hugetlb", "hpmmap-dirty", "hpmmap", "hpmmap-reuse")
                },
            ),
        ),
    ),
    Section(
        "001-table1",
        ("allocators",),
        (
            Claim(
                "What gives memory back at once (MPC's lowmem) has most work in the system,",
                f"{_allocator('miniamr', 'lowmem-4k', 'system')} >= 1.1 * max({_system(SEEDS)})",
            ),
            Claim(
                "and takes less memory than what keeps it (tcmalloc; at least 10 %).",
                f"{_allocator('miniamr', 'lowmem-4k', 'mb')} <= 0.9 * {_allocator('miniamr', 'tcmalloc-4k', 'mb')}",
            ),
            Claim(
                "jemalloc has more work in the system than glibc (meshes that are refined; here: at least 10 %, as below).",
                f"{_allocator('miniamr', 'jemalloc-4k', 'system')} >= 1.1 * {_allocator('miniamr', 'glibc-4k', 'system')}",
                DECAY,
            ),
            Claim(
                "and takes less memory.",
                f"{_allocator('miniamr', 'jemalloc-4k', 'mb')} <= 0.9 * {_allocator('miniamr', 'glibc-4k', 'mb')}",
                DECAY,
            ),
            Claim(
                "tcmalloc has least work in the system.",
                f"{_allocator('miniamr', 'tcmalloc-4k', 'system')} <= 0.9 * min({_system(SEEDS[:2])})",
                DECAY,
            ),
            Claim(
                "On 32 and 128 cores the system time of what gives memory back grows.", metal="It takes so many CPUs."
            ),
        ),
        tuple(_allocator_rows(app, (*SMALL, OURS)) for app in (*PROGRAMS, "lammps", "duckdb")),
    ),
    Section(
        "001-table2",
        ("allocators",),
        (
            Claim(
                "Huge pages raise the memory of jemalloc (at least 10 %).",
                f"{_allocator('miniamr', 'jemalloc-thp', 'mb')} >= 1.1 * {_allocator('miniamr', 'jemalloc-4k', 'mb')}",
            ),
            Claim(
                "and of glibc (at least 10 %),",
                f"{_allocator('miniamr', 'glibc-thp', 'mb')} >= 1.1 * {_allocator('miniamr', 'glibc-4k', 'mb')}",
                "one thread has one heap here, which is contiguous; the seed has a thread on each core",
            ),
            Claim(
                "but not that of tcmalloc (less than 10 %).",
                f"{_allocator('miniamr', 'tcmalloc-thp', 'mb')} < 1.1 * {_allocator('miniamr', 'tcmalloc-4k', 'mb')}",
            ),
            Claim("The program is a little slower with them.", metal="Time needs a CPU."),
        ),
        tuple(_allocator_rows(app, HUGE) for app in PROGRAMS),
    ),
    Section(
        "001-table3",
        ("allocators",),
        (
            Claim(
                "Huge pages: reuse saves at least half of the system work of an allocator that gives memory back "
                "(the seed: 90 % of MPC's lowmem's, 56 % of jemalloc's; here: lowmem).",
                _saved("miniamr", 0.5),
            ),
            Claim("Pages of 4 KB: it saves a third.", metal=NO_SMALL_PAGES),
        ),
        (_allocator_rows("miniamr", ("jemalloc-4k", "lowmem-4k", "jemalloc-thp", "lowmem-thp", *POOL)),),
    ),
    Section(
        "001-table4",
        ("allocators",),
        (
            Claim(
                "Huge pages: reuse saves at least half of the system work of a hydrodynamics program (the seed: 61 %).",
                _saved("minihydro", 0.5),
            ),
            Claim("Pages of 4 KB: it saves 37 % of it, and 12 % of the runtime.", metal=NO_SMALL_PAGES),
        ),
        (
            _allocator_rows(
                "minihydro", ("glibc-4k", "jemalloc-4k", "lowmem-4k", "glibc-thp", "jemalloc-thp", "lowmem-thp", *POOL)
            ),
        ),
    ),
)

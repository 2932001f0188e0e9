# SPDX-License-Identifier: GPL-2.0
"""Seed 000: HPMMAP and its slides."""

from __future__ import annotations

from .model import Bars, Claim, Points, Rows, Section

MANAGERS = ("4k", "thp", "hugetlb", "hugetlb-populate", "hpmmap")
# Of those parts whose pages of the same kind need no telling apart.
FOUR = ("4k", "thp", "hugetlb-populate", "hpmmap")
METAL_CYCLES = "Instructions are counted here, and an instruction is not a cycle."
COSTS = "instructions of a fault"
FEW_MERGES = "few faults of so short a run meet a merge, or none (0)"
NO_RECLAIM = "no fault of 4 KB had to reclaim memory itself"
NO_METAL_TIME = "Runtimes of emulated guests mean nothing: `hpmmap bench colocation` measures them on a host."


def _fault(app: str, manager: str, neighbour: str, kind: str, figure: str) -> str:
    return f"{{faults:{app}-1-{manager}-{neighbour}/kinds/{kind}/{figure}}}"


def _thp(neighbour: str, kind: str, figure: str) -> str:
    return f"{{faults-thp:minimd-1-thp-{neighbour}/kinds/{kind}/{figure}}}"


def _count(run: str, kind: str) -> str:
    """How many faults of a kind there were, which may be none."""
    return f"{{{run}/counts/{kind}|0}}"


def _dear(app: str) -> str:
    """Some faults of 4 KB cost more than large pages beside a build."""
    return f"{_fault(app, 'hugetlb', 'build', '4k', 'max')} > {_fault(app, 'hugetlb', 'build', 'hugetlb', 'p50')}"


def _outliers(app: str) -> str:
    """The dearest fault of 4 KB beside a build is none that is seen alone."""
    return f"{_fault(app, 'hugetlb', 'build', '4k', 'max')} >= 2 * {_fault(app, 'hugetlb', 'none', '4k', 'max')}"


def _more(app: str) -> str:
    """Beside a build there are more faults of 4 KB."""
    return f"{_count(f'faults:{app}-1-hugetlb-build', '4k')} >= 1.1 * {_count(f'faults:{app}-1-hugetlb-none', '4k')}"


def _cell(part: str, name: str, figure: str = "seconds/mean") -> str:
    return f"{{{part}:cells/{name}/{figure}}}"


def _late(ranks: int, manager: str) -> str:
    return f"{{ranks:{ranks}/cells/minimd-{manager}-a/late_faults}}"


SECTIONS = (
    Section(
        "000-fig2",
        ("faults-thp", "faults"),
        (
            Claim("A fault of 2 MB costs over 350,000 cycles more than one of 4 KB.", metal=METAL_CYCLES),
            Claim(
                "Beside a build a fault of 2 MB costs nearly twice as much (here: at least 1.5 times in the mean).",
                f"{_thp('build', '2m', 'mean')} >= 1.5 * {_thp('none', '2m', 'mean')}",
                "of so few faults the build interrupted hardly one; else a fault executes the same instructions beside it, "
                "and bandwidth, caches and locks are shared only by CPUs that run at once",
            ),
            Claim(
                "Alone a fault that waits for a merge costs roughly 1,000 times what others of 4 KB cost (here: 300 to 3,000 times).",
                f"{_thp('none', 'merge', 'mean')} >= 300 * {_thp('none', '4k', 'p50')} "
                f"and {_thp('none', 'merge', 'mean')} <= 3000 * {_thp('none', '4k', 'p50')}",
                FEW_MERGES,
            ),
            Claim(
                "Beside a build it costs over four times as much (the slides: 300 % more).",
                f"{_thp('build', 'merge', 'mean')} > 4 * {_thp('none', 'merge', 'mean')} and {_thp('none', 'merge', 'mean')} > 0",
                FEW_MERGES,
            ),
            Claim(
                "Under HPMMAP no fault brings a page of 2 MB, alone or beside a build.",
                f"{_count('faults:minimd-1-hpmmap-build', '2m')} + {_count('faults:minimd-1-hpmmap-none', '2m')} < 1",
                ours=True,
            ),
        ),
        (
            Bars(
                "miniMD-like program under THP, medians",
                COSTS,
                {
                    f"{kind}, {'alone' if beside == 'none' else 'build'}": _thp(beside, kind, "p50")
                    for kind in ("4k", "2m", "merge")
                    for beside in ("none", "build")
                },
            ),
            Rows(
                "All costs, in instructions",
                ("faults", "mean", "deviation", "median", "99 %", "most"),
                {
                    f"{kind}, {beside}": tuple(
                        _thp(beside, kind, figure) for figure in ("count", "mean", "stddev", "p50", "p99", "max")
                    )
                    for kind in ("4k", "2m", "merge")
                    for beside in ("none", "build")
                },
            ),
        ),
    ),
    Section(
        "000-fig3",
        ("faults",),
        (
            Claim(
                "Faults of large pages cost no more beside a build (at most 10 % more in the median).",
                f"{_fault('minimd', 'hugetlb', 'build', 'hugetlb', 'p50')} <= 1.1 * {_fault('minimd', 'hugetlb', 'none', 'hugetlb', 'p50')}",
            ),
            Claim(
                "Faults of 4 KB cost some 475,000 cycles more beside it (here: at least 1.5 times in the mean).",
                f"{_fault('minimd', 'hugetlb', 'build', '4k', 'mean')} >= 1.5 * {_fault('minimd', 'hugetlb', 'none', '4k', 'mean')}",
                "the kernel has kswapd reclaim ahead of the job here, and the job's own pages of 4 KB are few",
            ),
        ),
        (
            Bars(
                "miniMD-like program with hugetlbfs, means",
                COSTS,
                {
                    f"{kind}, {'alone' if beside == 'none' else 'build'}": _fault(
                        "minimd", "hugetlb", beside, kind, "mean"
                    )
                    for kind in ("4k", "hugetlb")
                    for beside in ("none", "build")
                },
            ),
            Rows(
                "All costs, in instructions",
                ("faults", "mean", "deviation", "median", "99 %", "most"),
                {
                    f"{kind}, {beside}": tuple(
                        _fault("minimd", "hugetlb", beside, kind, figure)
                        for figure in ("count", "mean", "stddev", "p50", "p99", "max")
                    )
                    for kind in ("4k", "hugetlb")
                    for beside in ("none", "build")
                },
            ),
        ),
    ),
    Section(
        "000-fig4",
        ("faults-thp", "faults"),
        (
            Claim(
                "Faults of 2 MB are among the dearest: the median one costs more than 99 % of those of 4 KB.",
                f"{_thp('none', '2m', 'p50')} > {_thp('none', '4k', 'p99')}",
            ),
            Claim(
                "The spread of faults of 4 KB grows beside a build (here: at least twice the standard deviation).",
                f"{_thp('build', '4k', 'stddev')} >= 2 * {_thp('none', '4k', 'stddev')}",
            ),
        ),
        (
            Points("THP, alone", "faults-thp:minimd-1-thp-none"),
            Points("THP, beside a build", "faults-thp:minimd-1-thp-build"),
            Points("HPMMAP, beside a build", "faults:minimd-1-hpmmap-build"),
        ),
    ),
    Section(
        "000-fig5",
        ("faults-thp",),
        (
            Claim(
                "Merges stop faults of ranks beside a build.",
                f"{_count('faults-thp:minimd-4-thp-build', 'merge')} >= 1",
                "no fault fell into a merge in this run",
            ),
            Claim(
                "At which times they do so differs from core to core.",
                metal="The ranks take turns on one CPU here; the picture shows their own times.",
            ),
        ),
        (Points("Faults that waited for a merge, by rank", "faults-thp:minimd-4-thp-build", ("merge",)),),
    ),
    Section(
        "000-fig6",
        ("faults",),
        (
            Claim(
                "HPCCG: some faults of 4 KB cost more than large pages beside a build (CoMD's, too, which has no stand-in of its own).",
                _dear("minicg"),
                NO_RECLAIM,
            ),
            Claim("miniFE: the same.", _dear("minife"), NO_RECLAIM),
            Claim(
                "HPCCG, miniFE: faults of 4 KB are more beside it (at least 10 %).",
                f"{_more('minicg')} and {_more('minife')}",
                "the pool of large pages has room for the whole job",
            ),
            Claim(
                "miniMD suffers less, by outliers that are not seen alone (here: the dearest fault of 4 KB at least twice).",
                _outliers("minimd"),
                NO_RECLAIM,
            ),
            Claim("CloverLeaf: the same.", _outliers("minihydro"), NO_RECLAIM),
        ),
        tuple(
            Points(f"{app}, {'alone' if beside == 'none' else 'beside a build'}", f"faults:{app}-1-hugetlb-{beside}")
            for app in ("minicg", "minimd", "minife", "minihydro")
            for beside in ("none", "build")
        ),
    ),
    Section(
        "000-fig8",
        ("managers", "filled", "ranks"),
        (
            Claim("Beside A HPMMAP's runtime is 15 % below THP's and 9 % below hugetlbfs's.", metal=NO_METAL_TIME),
            Claim("Beside B it is 16 % below THP's and 36 % below hugetlbfs's.", metal=NO_METAL_TIME),
            Claim(
                "Under HPMMAP runtimes vary little beside a build, under THP the more the more ranks.",
                metal=NO_METAL_TIME,
            ),
            Claim(
                "MAP_POPULATE gains nothing for hugetlbfs (miniMD alone: within 2 %).",
                f"{_cell('managers', 'minimd-hugetlb-populate-none')} >= 0.98 * {_cell('managers', 'minimd-hugetlb-none')}",
            ),
            Claim(
                "HPMMAP takes no fault of memory after the start-up: fewer than a hundred, of programs and libraries.",
                f"{_cell('managers', 'minimd-hpmmap-a', 'late_faults')} < 100",
                ours=True,
            ),
            Claim(
                "Nor on eight ranks: fewer than a hundred of each (beside A), under THP ten times as many.",
                f"{_late(8, 'hpmmap')} < 800 and {_late(8, 'thp')} >= 10 * {_late(8, 'hpmmap')}",
                ours=True,
            ),
            Claim(
                "With memory filled and fragmented a job suffers under THP (at least 5 % more instructions), not under HPMMAP (at most 2 %).",
                f"{_cell('filled', 'phases-thp-d', 'slowdown/value')} >= 0.05 and {_cell('filled', 'phases-hpmmap-d', 'slowdown/value')} <= 0.02",
                ours=True,
            ),
        ),
        (
            *(
                Bars(
                    f"{app}, one rank: thousand million instructions",
                    "thousand million instructions",
                    {
                        f"{manager} {neighbour}": _cell("managers", f"{app}-{manager}-{neighbour}")
                        for manager in MANAGERS
                        for neighbour in ("none", "a", "b")
                    },
                )
                for app in ("minicg", "minimd")
            ),
            Rows(
                "What a neighbour adds (part of the instructions), and faults after the start-up",
                ("A", "B", "faults alone", "faults beside A"),
                {
                    f"{app}, {manager}": (
                        *(_cell("managers", f"{app}-{manager}-{beside}", "slowdown/value") for beside in "ab"),
                        _cell("managers", f"{app}-{manager}-none", "late_faults"),
                        _cell("managers", f"{app}-{manager}-a", "late_faults"),
                    )
                    for app in ("minicg", "minimd")
                    for manager in MANAGERS
                },
            ),
            Rows(
                "Memory filled (phases, beside D): thousand million instructions, what D adds, faults after the start-up",
                ("alone", "beside D", "added", "faults alone", "faults beside D"),
                {
                    manager: (
                        _cell("filled", f"phases-{manager}-none"),
                        _cell("filled", f"phases-{manager}-d"),
                        _cell("filled", f"phases-{manager}-d", "slowdown/value"),
                        _cell("filled", f"phases-{manager}-none", "late_faults"),
                        _cell("filled", f"phases-{manager}-d", "late_faults"),
                    )
                    for manager in FOUR
                },
            ),
            Rows(
                "Faults after the start-up over ranks, miniMD beside A",
                ("1", "2", "4", "8"),
                {manager: tuple(_late(n, manager) for n in (1, 2, 4, 8)) for manager in FOUR},
            ),
        ),
    ),
    Section(
        "000-fig9",
        ("hosts",),
        (
            Claim("Alone hugetlbfs and HPMMAP are ahead of THP for HPCCG and miniFE.", metal=NO_METAL_TIME),
            Claim("LAMMPS alone is as fast under each.", metal=NO_METAL_TIME),
            Claim("Beside C HPMMAP is best for miniFE.", metal=NO_METAL_TIME),
            Claim(
                "Faults of a job on four hosts beside C are fewer under HPMMAP than under THP by a factor of ten.",
                f"{_cell('hosts', 'minicg-thp-c-4', 'late_faults')} >= 10 * {_cell('hosts', 'minicg-hpmmap-c-4', 'late_faults')}",
                ours=True,
            ),
        ),
        (
            Rows(
                "Faults after the start-up of the whole job",
                ("1 host", "2 hosts", "4 hosts"),
                {
                    f"{app}, {manager}, {beside}": tuple(
                        _cell("hosts", f"{app}-{manager}-{beside}{suffix}", "late_faults")
                        for suffix in ("", "-2", "-4")
                    )
                    for app in ("lammps", "minicg")
                    for manager in ("thp", "hpmmap")
                    for beside in ("none", "c")
                },
            ),
        ),
    ),
)

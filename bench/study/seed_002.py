# SPDX-License-Identifier: GPL-2.0
"""Seed 002: Kitten, SMARTMAP, Palacios."""

from __future__ import annotations

from .model import Bars, Claim, Lines, Rows, Section

WAYS = ("copied", "cma", "xpmem", "registered:copied", "registered:cma", "registered:xpmem")


def _put(way: str, size: int) -> str:
    return f"{{puts:rows/[way={way},bytes={size}]/instructions}}"


def _message(ranks: int, pattern: str, size: int, way: str) -> str:
    return f"{{messages:{ranks}/[pattern={pattern},bytes={float(size)}]/{way}}}"


def _ways(ranks: int, pattern: str) -> dict[str, tuple[str, str, str, str]]:
    return {way: (f"messages:{ranks}", f"pattern={pattern}", "{bytes}", f"{{{way}}}") for way in WAYS}


def _over_sizes(pattern: str, ranks: int) -> Lines:
    title = f"{pattern}, {ranks} ranks"
    return Lines(title, "bytes", "thousand instructions of all ranks", _ways(ranks, pattern), log=True)


def _vm(workload: str, pages: str, paging: str, method: str, figure: str = "ratio") -> str:
    return f"{{vm:rows/[workload={workload},pages={pages},paging={paging},method={method}]/{figure}}}"


PUTS = {"by a window (shmem_putmem)": "shmem", "by the kernel (process_vm_writev)": "kernel"}
SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20)

SECTIONS = (
    Section(
        "002-fig1.4",
        ("windows", "puts"),
        (
            Claim(
                "Another process's memory takes no fault once it is shared.",
                "{windows:page faults afterwards} <= 0",
                ours=True,
            ),
            Claim(
                "A put of a byte takes 230 ns by SMARTMAP, more than 5 us by default (here: of 8 bytes, by the kernel at least 21 times as much).",
                f"{_put('kernel', 8)} >= 21 * {_put('shmem', 8)}",
            ),
            Claim(
                "The bandwidth of large puts is much higher, too (here: by the kernel a put of 1 MB costs at least 1.5 times as much).",
                f"{_put('kernel', 1 << 20)} >= 1.5 * {_put('shmem', 1 << 20)}",
            ),
            Claim("230 ns.", metal="Time needs a CPU."),
        ),
        (
            Lines(
                "A put",
                "bytes",
                "instructions",
                {name: ("puts:rows", f"way={way}", "{bytes}", "{instructions}") for name, way in PUTS.items()},
                log=True,
            ),
            Rows(
                "A put, in instructions",
                tuple(PUTS),
                {f"{size:,} bytes": tuple(_put(way, size) for way in PUTS.values()) for size in SIZES},
            ),
            Bars(
                "Reading another process's memory, instructions",
                "instructions",
                {
                    f"{kb} KB, {way}": f"{{windows:read {kb} KB {text}}}"
                    for kb in (4, 64)
                    for way, text in (("CMA", "by process_vm_readv"), ("window", "from a populated window"))
                },
            ),
        ),
    ),
    Section(
        "002-fig1.5",
        ("messages",),
        (
            Claim(
                "Large messages cost less by one copy: PingPong of 1 MB by windows less than by two copies.",
                f"{_message(2, 'pingpong', 1 << 20, 'registered:xpmem')} < {_message(2, 'pingpong', 1 << 20, 'registered:copied')}",
            ),
            Claim(
                "Windows cost less than copies by the kernel: PingPong of 64 KB.",
                f"{_message(2, 'pingpong', 64 << 10, 'registered:xpmem')} < {_message(2, 'pingpong', 64 << 10, 'registered:cma')}",
            ),
            Claim(
                "Sendrecv of 64 KB: windows less than the kernel's copies.",
                f"{_message(4, 'sendrecv', 64 << 10, 'registered:xpmem')} < {_message(4, 'sendrecv', 64 << 10, 'registered:cma')}",
            ),
            Claim(
                "Exchange of 64 KB: the same.",
                f"{_message(4, 'exchange', 64 << 10, 'registered:xpmem')} < {_message(4, 'exchange', 64 << 10, 'registered:cma')}",
            ),
            Claim("9.4 GB/s, 0.63 us.", metal="Bandwidth and latency need a CPU."),
        ),
        (_over_sizes("pingpong", 2), _over_sizes("sendrecv", 4), _over_sizes("exchange", 4)),
    ),
    Section(
        "002-fig1.6",
        ("messages",),
        (
            Claim(
                "One pair: a small message costs 46 % more by windows than by shared memory (64 bytes: 30 to 60 % more).",
                f"{_message(2, 'rate', 64, 'registered:xpmem')} >= 1.3 * {_message(2, 'rate', 64, 'registered:copied')} and "
                f"{_message(2, 'rate', 64, 'registered:xpmem')} <= 1.6 * {_message(2, 'rate', 64, 'registered:copied')}",
                "Open MPI sends small messages through its shared memory in either case; windows carry large ones",
            ),
            Claim(
                "A second pair nearly doubles the rate of windows, and not that of shared memory.",
                metal="On one CPU the pairs take turns, and nothing contends.",
            ),
            Claim("2.4 and 4.6 million messages a second.", metal="Rates need CPUs that run at once."),
        ),
        (_over_sizes("rate", 2), _over_sizes("rate", 4)),
    ),
    Section(
        "002-fig1.7",
        ("messages", "messages-many"),
        (
            Claim(
                "Within a host windows make an exchange cheaper (64 KB: less than the kernel's copies).",
                f"{_message(4, 'halo', 64 << 10, 'registered:xpmem')} < {_message(4, 'halo', 64 << 10, 'registered:cma')}",
            ),
            Claim(
                "On 16 ranks of four hosts.", metal="The network of emulated hosts is a socket between two emulators."
            ),
        ),
        (
            _over_sizes("halo", 4),
            Bars(
                "Page tables that 64 ranks took for an alltoall of 64 KB",
                "KB of all ranks",
                {way: f"{{messages-many:64/[pattern=tables]/{way}}}" for way in WAYS},
            ),
        ),
    ),
    Section(
        "002-fig1.8",
        ("messages",),
        (
            Claim(
                "Broadcast of 256 KB: one copy is less than two.",
                f"{_message(4, 'bcast', 256 << 10, 'registered:xpmem')} < {_message(4, 'bcast', 256 << 10, 'registered:copied')}",
            ),
            Claim(
                "Alltoall of 256 KB: the same.",
                f"{_message(4, 'alltoall', 256 << 10, 'registered:xpmem')} < {_message(4, 'alltoall', 256 << 10, 'registered:copied')}",
            ),
            Claim(
                "Reduce and allreduce gain, too (256 KB).",
                f"{_message(4, 'reduce', 256 << 10, 'registered:xpmem')} < {_message(4, 'reduce', 256 << 10, 'registered:copied')} and "
                f"{_message(4, 'allreduce', 256 << 10, 'registered:xpmem')} < {_message(4, 'allreduce', 256 << 10, 'registered:copied')}",
            ),
            Claim(
                "The barrier gains by a counter in shared memory (here: at least 10 %).",
                f"{_message(4, 'barrier', 0, 'registered:xpmem')} <= 0.9 * {_message(4, 'barrier', 0, 'registered:copied')}",
                "Open MPI's barrier passes messages through its shared memory in either case",
            ),
        ),
        tuple(_over_sizes(pattern, 4) for pattern in ("bcast", "reduce", "allreduce", "alltoall")),
    ),
    Section(
        "002-fig2.4",
        ("vm",),
        (
            Claim(
                "Guests cost less than 5 % (nested paging, a computation with a matrix).",
                f"{_vm('lu', '4k', 'nested', 'hpmmap')} <= 1.05",
            ),
            Claim(
                "Shadow paging costs more where the guest switches often (the seed: 13 % over native; here: at least 10 % more than nested paging).",
                f"{_vm('switches', '4k', 'shadow', 'hpmmap')} >= 1.1 * {_vm('switches', '4k', 'nested', 'hpmmap')}",
            ),
            Claim("Where it does not, shadow paging is ahead.", metal="Its shorter walks need a TLB."),
            Claim("On 48 nodes the same.", metal="It takes the network of a Cray XT."),
        ),
        (
            Bars(
                "Instructions in a virtual machine over those on the host",
                "ratio",
                {
                    f"{work} {paging}": _vm(work, "4k", paging, "hpmmap")
                    for work in ("lu", "stream", "switches")
                    for paging in ("nested", "shadow")
                },
            ),
        ),
    ),
    Section(
        "002-fig3.11",
        ("vm",),
        (
            Claim(
                "HPL is no slower than natively under nested paging with host entries of 2 MB (here: at most 2 % more).",
                f"{_vm('lu', '4k', 'nested', 'hpmmap')} <= 1.02",
            ),
            Claim(
                "RandomAccess is 64 or 31 % slower under nested paging.",
                metal="It is the cost of walks: an emulated CPU has no TLB.",
            ),
            Claim(
                "Nested paging takes no exit of its own for RandomAccess (fewer than 100 in all).",
                f"{_vm('random', '4k', 'nested', 'hpmmap', 'exits')} < 100",
                ours=True,
            ),
        ),
        (
            Bars(
                "Instructions in a virtual machine over those on the host",
                "ratio",
                {
                    f"{work} {paging} {method}, pages {pages}": _vm(work, pages, paging, method)
                    for work in ("random", "stream", "lu")
                    for paging in ("nested", "shadow")
                    for method in ("4k", "hpmmap")
                    for pages in ("4k", "2m")
                },
            ),
        ),
    ),
    Section(
        "002-fig3.12",
        ("vm",),
        (
            Claim(
                "With many context switches KVM's shadow paging, which caches, is on par with nested paging (within 10 %).",
                f"{_vm('switches', '4k', 'shadow', '4k')} >= 0.9 * {_vm('switches', '4k', 'nested', '4k')} and "
                f"{_vm('switches', '4k', 'shadow', '4k')} <= 1.1 * {_vm('switches', '4k', 'nested', '4k')}",
                "each switch is an exit here, which the cache does not save",
            ),
            Claim(
                "The caching of Palacios costs a third more than nested paging.",
                metal="Palacios does not run on today's kernels.",
            ),
            Claim("Without caching 51 times as much as natively.", metal="KVM has no shadow paging without caching."),
        ),
        (
            Bars(
                "Two processes that take turns: instructions over those on the host",
                "ratio",
                {
                    f"{paging}, {method}": _vm("switches", "4k", paging, method)
                    for paging in ("nested", "shadow")
                    for method in ("4k", "hpmmap")
                },
            ),
        ),
    ),
)

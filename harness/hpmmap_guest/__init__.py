"""Boot a stock kernel in QEMU with the built module and the host's files.

The tests and the benchmarks use it:

    from hpmmap_guest import Guest
    result = Guest("6.12", memory="4G").run("hpmmap pool add --size 1G", timeout=120)
    assert result.ok, result.reason
"""

from .accel import choose_accel
from .cluster import Boot, Cluster, Run
from .guest import Guest, GuestError, Result, parse_size
from .kernels import is_debug_kernel, kernel_label, kernels, resolve_kernel
from .kmsg import kernel_problems
from .node import Image, image
from .roots import SUITES

__all__ = [
    "SUITES",
    "Boot",
    "Cluster",
    "Guest",
    "GuestError",
    "Image",
    "Result",
    "Run",
    "choose_accel",
    "image",
    "is_debug_kernel",
    "kernel_label",
    "kernel_problems",
    "kernels",
    "parse_size",
    "resolve_kernel",
]

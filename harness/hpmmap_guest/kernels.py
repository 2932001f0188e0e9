"""The kernels that can be booted."""

import subprocess
from pathlib import Path

from .paths import BUILD, ROOT


def kernels() -> list[str]:
    """The kernel versions the project is tested on, oldest series first."""
    done = subprocess.run([ROOT / "scripts/kernels"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout.split()


def kernel_image(version: str) -> Path:
    """The kernel to boot: one of scripts/archive-kernel or scripts/build-debug-kernel, or an installed one."""
    fetched = BUILD / "kernels" / version / "boot" / f"vmlinuz-{version}"
    return fetched if fetched.exists() else Path(f"/boot/vmlinuz-{version}")


def has_9p(version: str) -> bool:
    """Can the kernel mount QEMU's exports (9p)? Cloud kernels cannot."""
    modules = kernel_image(version).parents[1] / "lib/modules" / version
    if any(modules.glob("kernel/fs/9p/9p.ko*")):
        return True
    builtin = modules / "modules.builtin"
    return builtin.exists() and "kernel/fs/9p/9p.ko\n" in builtin.read_text()


def _has_option(version: str, option: str) -> bool:
    config = BUILD / "kernels" / version / "usr/src" / f"linux-headers-{version}" / ".config"
    return config.exists() and f"{option}=y\n" in config.read_text()


def is_debug_kernel(version: str) -> bool:
    """Is it a kernel of scripts/build-debug-kernel that checks memory accesses?"""
    return _has_option(version, "CONFIG_KASAN")


def kernel_label(version: str) -> str:
    """Its name in tests: its series, or the checks that it makes."""
    if is_debug_kernel(version):
        return "debug"
    return "kcsan" if _has_option(version, "CONFIG_KCSAN") else ".".join(version.split(".")[:2])


def debug_memory(version: str, memory: int) -> int:
    """Bytes that a debug kernel needs more than another one with this memory."""
    # KASAN takes an eighth; objects are larger, and freed ones are kept for a while.
    return memory // 4 + (512 << 20) if is_debug_kernel(version) else 0


def resolve_kernel(name: str) -> str:
    """Full version of an available kernel, named in full or by its series ("6.12")."""
    if kernel_image(name).exists():
        return name
    found = [version for version in kernels() if version.startswith(f"{name}.")]
    if not found:
        raise ValueError(f"no kernel {name}: there are {', '.join(kernels())}")
    if not kernel_image(found[-1]).exists():
        raise ValueError(f"kernel {found[-1]} is not installed: run scripts/setup guest")
    return found[-1]

"""Which kernels can be booted."""

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
    """The kernel to boot: what scripts/archive-kernel fetched, or an installed one."""
    fetched = BUILD / "kernels" / version / "boot" / f"vmlinuz-{version}"
    return fetched if fetched.exists() else Path(f"/boot/vmlinuz-{version}")


def has_9p(version: str) -> bool:
    """Whether the kernel can mount what QEMU exports by itself; cloud kernels cannot."""
    return any((kernel_image(version).parents[1] / "lib/modules" / version).glob("kernel/fs/9p/9p.ko*"))


def resolve_kernel(name: str) -> str:
    """Full version of a kernel that is here, named in full or by its series ("6.12")."""
    if kernel_image(name).exists():
        return name
    found = [version for version in kernels() if version.startswith(f"{name}.")]
    if not found:
        raise ValueError(f"no kernel {name}: there are {', '.join(kernels())}")
    if not kernel_image(found[-1]).exists():
        raise ValueError(f"kernel {found[-1]} is not installed: run scripts/setup guest")
    return found[-1]

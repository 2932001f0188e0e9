"""Which kernels can be booted."""

import subprocess
from pathlib import Path

from .paths import ROOT


def kernels() -> list[str]:
    """The kernel versions the project is tested on, oldest series first."""
    done = subprocess.run([ROOT / "scripts/kernels"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return done.stdout.split()


def resolve_kernel(name: str) -> str:
    """Full version of an installed kernel, named in full or by its series ("6.12")."""
    if Path(f"/boot/vmlinuz-{name}").exists():
        return name
    found = [version for version in kernels() if version.startswith(f"{name}.")]
    if not found:
        raise ValueError(f"no kernel {name}: there are {', '.join(kernels())}")
    if not Path(f"/boot/vmlinuz-{found[-1]}").exists():
        raise ValueError(f"kernel {found[-1]} is not installed: run scripts/setup guest")
    return found[-1]

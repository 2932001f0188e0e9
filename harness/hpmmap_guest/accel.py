"""Choose between KVM and emulation."""

import os
from pathlib import Path

from .paths import BUILD

_CACHE = BUILD / ".accel"
_PROBE_SECONDS = 10
_QEMU_HAS_FSRS = (8, 1)


def choose_accel(kver: str) -> str:
    """Return "kvm" or "tcg".

    HPMMAP_ACCEL=kvm or =tcg in the environment decides. Otherwise KVM is used only
    if a guest boots with it within ten seconds: a /dev/kvm that can be opened may
    still hang. The answer is kept until the machine reboots.
    """
    asked = os.environ.get("HPMMAP_ACCEL", "auto")
    if asked in ("kvm", "tcg"):
        return asked
    if asked != "auto":
        raise ValueError(f"HPMMAP_ACCEL={asked}: it must be kvm, tcg or auto")

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        cached_boot_id, accel = _CACHE.read_text().split()
        if cached_boot_id == boot_id and accel in ("kvm", "tcg"):
            return accel
    except (OSError, ValueError):
        pass

    accel = "kvm" if _kvm_boots(kver) else "tcg"
    BUILD.mkdir(exist_ok=True)
    _CACHE.write_text(f"{boot_id} {accel}\n")
    return accel


def _kvm_boots(kver: str) -> bool:
    from .guest import Guest

    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    probe = Guest(kver, memory="1G", cpus=1, movable="0", load_module=False, accel="kvm")
    return probe.run("true", timeout=_PROBE_SECONDS, boot_timeout=_PROBE_SECONDS).ok


def emulated_cpu(qemu_version: tuple[int, int]) -> str:
    """The CPU of an emulated guest: all that QEMU can emulate, except fast strings.

    With those, kernel and C library clear and copy by "rep stosb" and "rep movsb", which are
    emulated byte by byte: programs that touch memory take two to four times as long. ERMS and
    FSRM are removed together: Linux 6.1 does not boot on a CPU that has FSRM without ERMS.
    """
    features = ["erms", "fsrm"]
    if qemu_version >= _QEMU_HAS_FSRS:
        features += ["fzrm", "fsrs", "fsrc"]
    return ",".join(["max", *(f"{feature}=off" for feature in features)])

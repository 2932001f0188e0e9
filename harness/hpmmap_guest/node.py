"""The disk of a node as an administrator would install it: Debian's packages, systemd as init.

A root file system is made once for each suite and set of packages (mmdebstrap), and a disk once for
each set of packages of `make deb`. Both stay in build/nodes. cluster.py has the machines.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .guest import GuestError, parse_size
from .paths import BUILD
from .roots import NODES, SUITES, Tree, archive, remove, run_logged

# Files of every node.
SKELETON = Path(__file__).resolve().with_name("skeleton")
# Packages of the root file system.
_PACKAGES = (
    "apt", "bash-completion", "dbus", "dkms", "grub2-common", "grub-pc-bin", "initramfs-tools", "kmod",
    "linux-headers-amd64", "linux-image-amd64", "procps", "psmisc", "systemd-sysv", "udev", "util-linux",
    "munge", "slurm-client", "slurmctld", "slurmd", "slurm-wlm-basic-plugins", "openmpi-bin", "libopenmpi-dev", "mpich",
    "libmpich-dev", "gcc",
    "libc6-dev", "make", "podman", "crun", "uidmap", "dbus-user-session", "libpam-systemd", "prometheus-node-exporter",
    "curl", "irqbalance", "python3",
)  # fmt: skip
_OF_SUITES = {
    "bookworm": (
        "lammps", "hpcc", "openssh-server", "libvirt-daemon-system", "libvirt-clients", "qemu-system-x86",
    ),
}  # fmt: skip
_DISK = "10G"
# Timers and services that would run beside the tests or are not needed.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty@tty1.service", "grub-common.service", "logrotate.timer", "man-db.timer",
    "podman-auto-update.timer", "podman-restart.service", "serial-getty@ttyS0.service",
)  # fmt: skip
_RECIPE = f"""
systemctl mask {shlex.join(_MASKED)}
systemctl disable prometheus-node-exporter.service irqbalance.service
ls /lib/systemd/system | sed -n '/^virt.*d\\.\\|^libvirt/p' | xargs -r systemctl disable
systemctl enable memtotal.service this-node.service boot-script.service on.socket systemd-networkd.service
dkms status hpmmap | grep -w installed
modinfo -k $(ls /lib/modules | tail -1) hpmmap >/dev/null
for user in alice bob; do useradd --create-home --shell /bin/bash --groups hpmmap $user; done
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
chown -R slurm: /var/lib/slurm /var/log/slurm
update-initramfs -u -k all
"""


@dataclass(frozen=True)
class Image:
    """A directory with a disk and its kernel and initrd; hold() keeps it while this exists."""

    suite: str
    dir: Path

    @property
    def disk(self) -> Path:
        return self.dir / "disk"

    def hold(self) -> None:
        fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        weakref.finalize(self, os.close, fd)


def packages_of(suite: str, build: Path = BUILD, here: str | None = None) -> list[Path]:
    """The packages that `make deb` has built for a suite, on this machine's suite."""
    debs = {deb.name.partition("_")[0]: deb for deb in (build / "deb").glob("*.deb")}
    if not debs:
        raise GuestError("there are no packages in build/deb: make deb")
    if suite != (here or platform.freedesktop_os_release().get("VERSION_CODENAME")):
        # The plugin fits only the Slurm it was built with: make deb SUITE=...
        debs.pop("hpmmap-slurm", None)
        debs |= {deb.name.partition("_")[0]: deb for deb in (build / f"deb-{suite}").glob("*.deb")}
    return sorted(debs.values())


def image_key(root: Path, debs: Sequence[Path]) -> str:
    """A key that changes with every input of a disk."""
    key = hashlib.sha256(f"{root.name} {_DISK} {_RECIPE}".encode())
    for path in [*debs, *sorted(path for path in SKELETON.rglob("*") if path.is_file())]:
        key.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return key.hexdigest()[:12]


def image(suite: str) -> Image:
    """The image of a node of a suite, with the packages installed; made if it does not exist."""
    if suite not in SUITES:
        raise GuestError(f"suite '{suite}': it must be one of {', '.join(SUITES)}")
    NODES.mkdir(parents=True, exist_ok=True)
    debs = packages_of(suite)
    with _locked(NODES / f"image-{suite}.lock"):
        root = archive(suite, (*_PACKAGES, *_OF_SUITES.get(suite, ())))
        made = Image(suite, NODES / f"image-{suite}-{image_key(root, debs)}")
        if not made.disk.exists():
            for old in NODES.glob(f"image-{suite}-*"):
                remove_unless_held(old)
            _make(made, root, debs)
        made.hold()
    return made


def remove_unless_held(directory: Path) -> None:
    """Remove the directory of an image, unless nodes run with it."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(directory)
    except BlockingIOError:
        pass
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(made: Image, root: Path, debs: Sequence[Path]) -> None:
    log = NODES / f"image-{made.suite}.log"
    log.unlink(missing_ok=True)
    tree = Tree(root, made.dir / "root", log)
    said = tree.install(debs)
    if "is left out" in said:
        raise GuestError(f"DKMS left out a kernel:\n{said[-2000:]}")
    run_logged(["cp", "-r", f"{SKELETON}/.", tree.root], log)
    tree.chroot(_RECIPE)
    for name in ("vmlinuz", "initrd.img"):
        newest = sorted((tree.root / "boot").glob(f"{name}-*"))[-1]
        shutil.copy(newest, made.dir / name)
    new = made.dir / "disk.new"
    with new.open("wb") as out:
        out.truncate(parse_size(_DISK))
    run_logged(["mke2fs", "-q", "-t", "ext4", "-d", tree.root, new], log)
    remove(tree.root)
    new.rename(made.disk)

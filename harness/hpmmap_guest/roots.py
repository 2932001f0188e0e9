"""Root file systems of Debian's packages, each made once (mmdebstrap) and kept in build/nodes."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .guest import GuestError
from .paths import BUILD

NODES = BUILD / "nodes"
SUITES = ("bookworm", "trixie")
_MIRROR = "http://deb.debian.org"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MOUNTS = Path("/proc/self/mounts")
# Removing a tree with the machine's /dev mounted in it would remove the machine's files. So mounts
# are visible to the script only and end with it, and the script ends with this process.
_ALONE = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL",
)  # fmt: skip
# init stays outside of the tree ("|| exit": no exec), so that packages see by /proc/1/root that they
# are in a chroot.
_IN_TREE = """
mount -t proc proc "$0/proc"
mount -t sysfs sysfs "$0/sys"
mount -t devtmpfs devtmpfs "$0/dev"
mount -t devpts devpts "$0/dev/pts"
chroot "$0" bash -euo pipefail -c "$1" || exit
"""


def run_logged(command: Sequence[str | Path], log: Path, **options) -> None:
    """Run a command, and show its output only if it fails."""
    with log.open("a") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, **options)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise GuestError(f"{shlex.join(map(str, command))} failed; its output is in {log}:\n{tail}")


def archive(suite: str, packages: Iterable[str]) -> Path:
    """An archive of a root file system with these Debian packages; made if it does not exist."""
    wanted = sorted(set(packages))
    name = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    made = NODES / f"{suite}-{name}.tar"
    if made.exists():
        return made
    NODES.mkdir(parents=True, exist_ok=True)
    sources = "".join(
        f"deb [signed-by={_KEYRING}] {_MIRROR}/{where} main\n"
        for where in (f"debian {suite}", f"debian {suite}-updates", f"debian-security {suite}-security")
    )
    with tempfile.NamedTemporaryFile("w", dir=NODES, suffix=".list") as listed:
        listed.write(sources)
        listed.flush()
        new = made.with_suffix(".new.tar")
        command = [
            "mmdebstrap", "--variant=apt", f"--include={','.join(wanted)}", "--mode=root",
            "--aptopt=APT::Install-Recommends \"false\"", "--skip=cleanup/apt",
            suite, new, listed.name,
        ]  # fmt: skip
        run_logged(command, NODES / f"{suite}.log", env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        new.rename(made)
    return made


def remove(tree: Path, mounts: Path = _MOUNTS) -> None:
    """Remove a tree, if it exists; fails if something is mounted in it."""
    top = tree.resolve()
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        target = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[1]))
        if target.is_relative_to(top):
            raise GuestError(f"{tree} is not removed: {target} is mounted (umount it first)")
    if tree.exists():
        shutil.rmtree(tree)


class Tree:
    """A root file system, before it becomes a disk."""

    def __init__(self, archive: Path, directory: Path, log: Path):
        self.root = directory
        self.log = log
        directory.mkdir(parents=True)
        run_logged(["tar", "-x", "--xattrs", "--xattrs-include=*", "-p", "-f", archive, "-C", directory], log)

    def chroot(self, script: str) -> str:
        """Run a script in the tree, on this machine's kernel; return its output."""
        # Services must not start without an init of the tree.
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        done = subprocess.run(
            [*_ALONE, "sh", "-ec", _IN_TREE, self.root.resolve(), script],
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "DEBIAN_FRONTEND": "noninteractive",
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        policy.unlink()
        with self.log.open("a") as log:
            log.write(done.stdout)
        if done.returncode != 0:
            raise GuestError(f"in {self.root}: status {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def install(self, debs: Sequence[Path]) -> str:
        """Install packages with their dependencies."""
        target = self.root / "var/tmp/debs"
        target.mkdir(exist_ok=True)
        for deb in debs:
            shutil.copy(deb, target)
        resolv = self.root / "etc/resolv.conf"
        resolv.unlink(missing_ok=True)
        shutil.copy("/etc/resolv.conf", resolv)
        return self.chroot("apt-get -q -y --no-install-recommends install /var/tmp/debs/*.deb")

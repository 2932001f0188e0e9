"""A node as an administrator has it: Debian's packages, systemd as init, its own disk.

A root file system is made once for each suite and set of packages (mmdebstrap) and kept
in build/nodes. Packages are installed into a copy of it, which becomes the disk of a
machine; what a boot changes is there at the next one.
"""

import contextlib
import hashlib
import os
import re
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .accel import choose_accel
from .guest import GuestError, parse_size
from .kernels import kernels
from .kmsg import kernel_problems
from .paths import BUILD

NODES = BUILD / "nodes"
_MIRROR = "http://deb.debian.org"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What every node has.
_PACKAGES = (
    "apt", "bash-completion", "dbus", "dkms", "grub2-common", "grub-pc-bin", "initramfs-tools", "kmod",
    "linux-headers-amd64", "linux-image-amd64", "procps", "psmisc", "systemd-sysv", "udev", "util-linux",
)  # fmt: skip
_PORT = "hpmmap.out"
# The unit that runs what a boot is for.
_UNIT = f"""[Unit]
Description=What this boot is for
After=multi-user.target
ConditionPathExists=/dev/vdb

[Service]
Type=oneshot
ExecStartPre=/bin/sh -c 'until [ -e /dev/virtio-ports/{_PORT} ]; do sleep 0.2; done'
ExecStart=/bin/sh -c 'cat /dev/vdb >/run/boot-script; exec >/dev/virtio-ports/{_PORT} 2>&1; \\
  bash /run/boot-script </dev/null; echo "HPMMAP-NODE-EXIT:$?"; dmesg; echo HPMMAP-NODE-END'
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=20min

[Install]
WantedBy=graphical.target
"""
_MARK = re.compile(r"HPMMAP-NODE-EXIT:(\d+)$")
_SECTOR = 512


@dataclass
class Boot:
    """What became of a boot."""

    status: int | None
    """Exit status of the script; None if it never ended."""
    output: str
    dmesg: str
    console: str
    seconds: float
    reason: str
    """Why it is not ok, in one line."""

    @property
    def ok(self) -> bool:
        return not self.reason


def _run(command: Sequence[str | Path], log: Path, **options) -> None:
    with log.open("a") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, **options)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise GuestError(f"{shlex.join(map(str, command))} failed; its output is in {log}:\n{tail}")


def base(suite: str, packages: Sequence[str] = ()) -> Path:
    """An archive of a root file system with these packages beside those of every node."""
    wanted = sorted({*_PACKAGES, *packages})
    name = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    archive = NODES / f"{suite}-{name}.tar"
    if archive.exists():
        return archive
    NODES.mkdir(parents=True, exist_ok=True)
    sources = "".join(
        f"deb [signed-by={_KEYRING}] {_MIRROR}/{where} main\n"
        for where in (f"debian {suite}", f"debian {suite}-updates", f"debian-security {suite}-security")
    )
    with tempfile.NamedTemporaryFile("w", dir=NODES, suffix=".list") as listed:
        listed.write(sources)
        listed.flush()
        new = archive.with_suffix(".new.tar")
        command = [
            "mmdebstrap", "--variant=apt", f"--include={','.join(wanted)}", "--mode=root",
            "--aptopt=APT::Install-Recommends \"false\"", "--skip=cleanup/apt",
            suite, new, listed.name,
        ]  # fmt: skip
        _run(command, NODES / f"{suite}.log", env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
        new.rename(archive)
    return archive


class Node:
    """A machine with a disk of its own.

    suite:    of Debian
    name:     of its directory in build/nodes, which is made anew
    packages: further ones of Debian's
    memory:   size of the machine's memory
    cpus:     number of CPUs
    disk:     size of the disk
    """

    def __init__(
        self,
        suite: str,
        name: str,
        packages: Sequence[str] = (),
        memory: str = "4G",
        cpus: int = 2,
        disk: str = "6G",
    ):
        self.suite = suite
        self.memory_bytes = parse_size(memory)
        self.cpus = cpus
        self.disk = disk
        self.dir = NODES / name
        self.log = NODES / f"{name}.log"
        self.tree = self.dir / "root"
        archive = base(suite, packages)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.tree.mkdir(parents=True)
        _run(["tar", "-x", "--xattrs", "--xattrs-include=*", "-p", "-f", archive, "-C", self.tree], self.log)
        self._prepare()

    def _prepare(self) -> None:
        unit = self.tree / "etc/systemd/system/boot-script.service"
        unit.write_text(_UNIT)
        wants = unit.parent / "graphical.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.name).symlink_to(f"../{unit.name}")
        (self.tree / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
        (self.tree / "etc/hostname").write_text("node\n")
        (self.tree / "etc/hosts").write_text("127.0.0.1 localhost node\n")
        # The console is the log's.
        (self.tree / "etc/systemd/system/serial-getty@ttyS0.service").symlink_to("/dev/null")

    def write(self, path: str, text: str) -> None:
        """A file of it, before its first boot."""
        target = self.tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def chroot(self, script: str) -> str:
        """Run a script in its tree, on this machine's kernel, before its first boot; what it printed."""
        mounts = []
        try:
            for kind, path in (("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev"), ("devpts", "dev/pts")):
                target = self.tree / path
                subprocess.run(["mount", "-t", kind, kind, target], check=True)
                mounts.append(target)
            # Services are not started where there is no init of its own.
            policy = self.tree / "usr/sbin/policy-rc.d"
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
            done = subprocess.run(
                ["chroot", self.tree, "bash", "-euo", "pipefail", "-c", script],
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
        finally:
            for target in reversed(mounts):
                subprocess.run(["umount", target], check=False)
        with self.log.open("a") as log:
            log.write(done.stdout)
        if done.returncode != 0:
            raise GuestError(f"in the tree of {self.dir.name}: status {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout

    def install(self, debs: Sequence[Path], also: Sequence[str] = ()) -> str:
        """Install packages, and further ones of Debian's, with what they need."""
        target = self.tree / "var/tmp/debs"
        target.mkdir(exist_ok=True)
        for deb in debs:
            shutil.copy(deb, target)
        resolv = self.tree / "etc/resolv.conf"
        resolv.unlink(missing_ok=True)
        shutil.copy("/etc/resolv.conf", resolv)
        return self.chroot(f"apt-get -q -y --no-install-recommends install /var/tmp/debs/*.deb {shlex.join(also)}")

    def finish(self) -> None:
        """The tree becomes the disk; kernel and initrd stay beside it."""
        for name in ("vmlinuz", "initrd.img"):
            newest = sorted((self.tree / "boot").glob(f"{name}-*"))[-1]
            shutil.copy(newest, self.dir / name)
        image = self.dir / "disk"
        with image.open("wb") as out:
            out.truncate(parse_size(self.disk))
        _run(["mke2fs", "-q", "-t", "ext4", "-d", self.tree, image], self.log)
        shutil.rmtree(self.tree)

    def boot(self, script: str, append: str = "", timeout: float = 900) -> Boot:
        """Boot it, run a bash script as root once it is up, and power it off."""
        accel = choose_accel(kernels()[-1])
        text = script.encode()
        (self.dir / "script").write_bytes(text + b"\n" * (-len(text) % _SECTOR))
        output = self.dir / "output"
        output.unlink(missing_ok=True)
        options = f"root=/dev/vda rw console=ttyS0 loglevel=5 oops=panic panic=-1 net.ifnames=0 {append}"
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
            "-m", f"{self.memory_bytes >> 20}M", "-smp", str(self.cpus),
            "-kernel", self.dir / "vmlinuz", "-initrd", self.dir / "initrd.img", "-append", options,
            "-drive", f"file={self.dir / 'disk'},format=raw,if=virtio,cache=unsafe",
            "-drive", f"file={self.dir / 'script'},format=raw,if=virtio,readonly=on",
            "-device", "virtio-serial", "-chardev", f"file,id=out,path={output}",
            "-device", f"virtserialport,chardev=out,name={_PORT}",
        ]  # fmt: skip
        if accel == "kvm":
            command += ["-enable-kvm", "-cpu", "host"]
        else:
            single = "single" if (os.cpu_count() or 1) <= 2 else "multi"
            command += ["-cpu", "max,erms=off", "-accel", f"tcg,thread={single}"]
        started = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            console, late = _console(process, started + timeout)
        finally:
            process.kill()
            process.wait()
        (self.dir / "console").write_text(console)
        return _result(output, console, timeout if late else None, time.monotonic() - started)


def _console(process: subprocess.Popen, deadline: float) -> tuple[str, bool]:
    """All it prints, and whether it was late."""
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(min(left, 1.0)):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return text.decode(errors="replace"), False
                text += data
    return text.decode(errors="replace"), True


def _result(output: Path, console: str, late: float | None, seconds: float) -> Boot:
    said = ""
    with contextlib.suppress(FileNotFoundError):
        said = output.read_text(errors="replace")
    lines = said.splitlines()
    status, end = None, len(lines)
    for number, line in enumerate(lines):
        if match := _MARK.fullmatch(line):
            status, end = int(match[1]), number
    dmesg = "\n".join(lines[end + 1 :])
    problems = kernel_problems(dmesg if status is not None else console)
    if late is not None:
        reason = f"it did not end within {late:.0f} s"
    elif status is None:
        reason = "it ended without a word: " + next(
            (line for line in reversed(console.splitlines()) if line.strip()), ""
        )
    elif status != 0:
        reason = f"the script ended with status {status}"
    else:
        reason = f"the kernel complained: {problems[0]}" if problems else ""
    return Boot(status, "\n".join(lines[:end]), dmesg, console, seconds, reason)

"""Nodes on one network: machines with the disk of node.py, n1 to nN, each with an overlay of its own.

The first one runs a script. The others run until it has ended, and execute what it sends them
(skeleton/usr/local/sbin/on). Changes of the disks persist over boots.
"""

import contextlib
import os
import re
import selectors
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .accel import choose_accel, emulated_cpu
from .guest import ICOUNT_OPTIONS, GuestError, parse_size, qemu_version
from .kernels import kernels
from .kmsg import kernel_problems
from .node import Image
from .roots import NODES, run_logged

# The skeleton has addresses for this many.
MAX_NODES = 4
# The script of the others: waits until the harness says that the first one has ended.
_STAY = "read -r _ </dev/virtio-ports/hpmmap.end\n"
# Time for the other nodes to power off, once the first one's script has ended.
_GRACE = 180
_MARK = re.compile(r"HPMMAP-NODE-EXIT:(\d+)$")
_MARK_BYTES = b"\nHPMMAP-NODE-EXIT:"
_SECTOR = 512


@dataclass
class Boot:
    """The outcome of a node's boot."""

    status: int | None
    """Exit status of the script; None if it never ended."""
    output: str
    dmesg: str
    console: str
    reason: str
    """The failure in one line."""

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass
class Run:
    """The outcome of a cluster's boot."""

    boots: list[Boot]
    """The outcomes of n1, n2, ..."""
    seconds: float

    @property
    def output(self) -> str:
        return self.boots[0].output

    @property
    def reason(self) -> str:
        """The failure in one line."""
        reasons = [f"n{number}: {boot.reason}" for number, boot in enumerate(self.boots, 1) if boot.reason]
        return reasons[0] if reasons else ""

    @property
    def ok(self) -> bool:
        return not self.reason


def network(number: int, sockets: list[int]) -> list[str]:
    """QEMU's options for the network of node number, whose sockets lead to other nodes.

    The first node's hub has a socket to each other node, and each of those has one to the first.
    Pairs of sockets have no names, so clusters cannot collide.
    """
    options = ["-device", f"virtio-net-pci,netdev=nic,mac=52:54:00:00:00:{number:02x}"]
    options += ["-netdev", "hubport,id=nic,hubid=0"]
    for fd in sockets:
        options += ["-netdev", f"socket,id=link{fd},fd={fd}"]
        options += ["-netdev", f"hubport,id=port{fd},hubid=0,netdev=link{fd}"]
    return options


@dataclass
class _Machine:
    """A node while it runs."""

    number: int
    output: Path
    process: subprocess.Popen
    end: socket.socket
    console: bytearray = field(default_factory=bytearray)

    def has_ended(self) -> bool:
        """Has its script ended?"""
        with contextlib.suppress(FileNotFoundError):
            return _MARK_BYTES in b"\n" + self.output.read_bytes()
        return False


class Cluster:
    """Nodes with new disks of an image.

    image:   the image of the disks
    name:    name of their directory in build/nodes, which is made anew
    nodes:   number of nodes
    memory:  memory of each
    cpus:    number of CPUs of each
    reboots: nodes after the first may be rebooted; a panic then does not end them
    icount:  count instructions instead of time, on one CPU
    """

    def __init__(
        self,
        image: Image,
        name: str,
        nodes: int = 1,
        memory: str = "4G",
        cpus: int = 2,
        reboots: bool = False,
        icount: bool = False,
    ):
        if not 1 <= nodes <= MAX_NODES:
            raise GuestError(f"{nodes} nodes: there can be 1 to {MAX_NODES}")
        if icount and cpus > 1:
            raise GuestError(f"a node that counts instructions has one CPU, not {cpus}")
        self.image = image
        self.memory_bytes = parse_size(memory)
        self.cpus = cpus
        self.reboots = reboots
        self.icount = icount
        self.dir = NODES / name
        self.numbers = range(1, nodes + 1)
        shutil.rmtree(self.dir, ignore_errors=True)
        for number in self.numbers:
            directory = self._dir(number)
            directory.mkdir(parents=True)
            create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", image.disk, directory / "disk"]
            run_logged(create, self.dir / "log")

    def _dir(self, number: int) -> Path:
        return self.dir / f"n{number}"

    def boot(
        self, name: str, script: str, append: str = "", timeout: float = 900, on_line: Callable | None = None
    ) -> Run:
        """Boot all, run a bash script as root on the first one once it is up, and power all off.

        name is the name of the output files in each node's directory. on_line is called with each
        line that the script prints.
        """
        started = time.monotonic()
        machines = self._start(name, script, append)
        try:
            late = _follow(machines, started + timeout, on_line)
        finally:
            for machine in machines:
                machine.process.kill()
                machine.process.wait()
                machine.process.stdout.close()
                machine.end.close()
        for machine in machines:
            machine.output.with_suffix(".console").write_bytes(machine.console)
        return Run(
            [
                boot_of(
                    machine.output,
                    machine.console.decode(errors="replace"),
                    timeout if machine.number in late else None,
                    self._reboots(machine.number),
                )
                for machine in machines
            ],
            time.monotonic() - started,
        )

    def _reboots(self, number: int) -> bool:
        return self.reboots and number > 1

    def _start(self, name: str, script: str, append: str) -> list[_Machine]:
        links = {number: socket.socketpair() for number in self.numbers if number > 1}
        machines = []
        try:
            for number in self.numbers:
                sockets = [links[number][1]] if number > 1 else [pair[0] for pair in links.values()]
                files = self._dir(number) / name
                text = (script if number == 1 else _STAY).encode()
                files.with_suffix(".script").write_bytes(text + b"\n" * (-len(text) % _SECTOR))
                files.with_suffix(".output").unlink(missing_ok=True)
                machines.append(self._machine(number, files, append, sockets))
        finally:
            for pair in links.values():
                for end in pair:
                    end.close()
        return machines

    def _machine(self, number: int, files: Path, append: str, sockets: list[socket.socket]) -> _Machine:
        ours, theirs = socket.socketpair()
        fds = [end.fileno() for end in (*sockets, theirs)]
        process = subprocess.Popen(
            [*self._command(number, files, append), *network(number, fds[:-1]),
             "-chardev", f"socket,id=end,fd={fds[-1]}", "-device", "virtserialport,chardev=end,name=hpmmap.end"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=fds,
        )  # fmt: skip
        theirs.close()
        return _Machine(number, files.with_suffix(".output"), process, ours)

    def _command(self, number: int, files: Path, append: str) -> list[str | Path]:
        accel = "tcg" if self.icount else choose_accel(kernels()[-1])
        options = (
            "root=/dev/vda rw console=ttyS0 loglevel=5 oops=panic net.ifnames=0"
            f" panic={0 if self._reboots(number) else -1}"
            f" systemd.hostname=n{number} cluster.nodes={len(self.numbers)} {append}"
            f" {' '.join(ICOUNT_OPTIONS) if self.icount else ''}"
        )
        command = [
            "qemu-system-x86_64", "-nodefaults", "-display", "none", "-serial", "stdio",
            "-action", "reboot=reset" if self._reboots(number) else "reboot=shutdown",
            "-m", f"{self.memory_bytes >> 20}M", "-smp", str(self.cpus),
            "-kernel", self.image.dir / "vmlinuz", "-initrd", self.image.dir / "initrd.img", "-append", options,
            "-drive", f"file={self._dir(number) / 'disk'},format=qcow2,if=virtio,cache=unsafe",
            "-drive", f"file={files}.script,format=raw,if=virtio,readonly=on",
            "-device", "virtio-serial", "-chardev", f"file,id=out,path={files}.output",
            "-device", "virtserialport,chardev=out,name=hpmmap.out",
        ]  # fmt: skip
        if accel == "kvm":
            return [*command, "-enable-kvm", "-cpu", "host"]
        command += ["-cpu", emulated_cpu(qemu_version())]
        if self.icount:
            return [*command, "-icount", "shift=0,sleep=off"]
        single = "single" if (os.cpu_count() or 1) <= 2 else "multi"
        return [*command, "-accel", f"tcg,thread={single}"]


def _follow(machines: list[_Machine], deadline: float, on_line: Callable | None) -> set[int]:
    """Wait until all have ended, a bounded time after the first end; return the late ones' numbers."""
    first, others = machines[0], machines[1:]
    shown = _Lines(first.output, on_line)
    is_over = False
    with selectors.DefaultSelector() as selector:
        for machine in machines:
            selector.register(machine.process.stdout, selectors.EVENT_READ, machine)
        while running := {key.data.number for key in selector.get_map().values()}:
            if (now := time.monotonic()) > deadline:
                return running
            for key, _ in selector.select(1.0):
                data = os.read(key.fileobj.fileno(), 65536)
                key.data.console.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
            shown.show()
            if not is_over and (first.has_ended() or len(running) < len(machines)):
                is_over = True
                deadline = min(deadline, now + _GRACE)
                for machine in others:
                    with contextlib.suppress(OSError):
                        machine.end.sendall(b"end\n")
    return set()


class _Lines:
    """Shows the lines written to a file, up to the end of the script."""

    def __init__(self, path: Path, on_line: Callable | None):
        self.path = path
        self.on_line = on_line
        self.at = 0

    def show(self) -> None:
        if not self.on_line or not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.at)
            text = file.read()
        for line in text[: text.rfind(b"\n") + 1].splitlines(keepends=True):
            said = line.decode(errors="replace").rstrip("\r\n")
            if _MARK.fullmatch(said):
                self.on_line = None
                return
            self.at += len(line)
            self.on_line(said)


def boot_of(output: Path, console: str, late: float | None, rebooted: bool = False) -> Boot:
    """The outcome of a node from its output; late: seconds within which it did not end.

    Earlier boots of a node that was rebooted are only on the console.
    """
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
    if rebooted:
        problems = kernel_problems(console) + problems
    if status is None and problems:
        reason = f"the kernel complained: {problems[0]}"
    elif late is not None:
        reason = f"it did not end within {late:.0f} s"
    elif status is None:
        reason = "it ended without a word: " + next(
            (line for line in reversed(console.splitlines()) if line.strip()), ""
        )
    elif status != 0:
        reason = f"the script ended with status {status}"
    else:
        reason = f"the kernel complained: {problems[0]}" if problems else ""
    return Boot(status, "\n".join(lines[:end]), dmesg, console, reason)

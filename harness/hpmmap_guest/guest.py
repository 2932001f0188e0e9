"""One guest: a kernel, its machine, and a script that runs in it as root."""

import atexit
import contextlib
import functools
import json
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .accel import choose_accel, emulated_cpu
from .kernels import debug_memory, has_9p, kernel_image, resolve_kernel
from .kmsg import kernel_problems
from .paths import BUILD, GUEST_SCRIPT, INIT_TOOLS, ROOT

# Called with "stdout" or "console", and a line without its line end.
OnLine = Callable[[str, str], None]
# Called about once a second. A returned text ends the guest; it is the reason.
Watch = Callable[[], str | None]

_GIB = 1 << 30
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Memory for the kernel and ordinary processes, besides the movable memory.
_KERNEL_SHARE = int(1.25 * _GIB)
# A boot under emulation may die before any code of the project runs. Later
# failures are never repeated.
_BOOT_ATTEMPTS = 2
# Directories that a script may change; the changes stay in the guest. All others are
# read-only, except the repository.
_OVERLAYS = ("/etc", "/home", "/opt", "/root", "/srv", "/var", "/tmp")
# Exports besides the root that the guest may cache, so that programs start several
# times faster: /usr, and the build directory, which tests need writable. guest.sh
# mounts them.
_CACHED = {"cached-usr": (Path("/usr"), "on"), "cached-build": (BUILD, "off")}
_QEMU = "qemu-system-x86_64"
# Older versions may run stale code when a kernel patches its own text while another
# CPU runs it ("Oops: int3"). Emulation in one thread cannot.
_QEMU_KEEPS_PATCHES = (8, 1)
# The oldest version that parallel guests have been run with.
_QEMU_PARALLEL = (10, 0)
# Emulated CPUs are slow and the host may be busy, so timeouts are long.
_KERNEL_OPTIONS = (
    "loglevel=5",
    "oops=panic",
    "panic=-1",
    "watchdog_thresh=60",
    "rcupdate.rcu_cpu_stall_timeout=120",
    "log_buf_len=8M",
    # /proc/self/mem reaches what the program itself may not access, as it does where Debian's 6.12 runs.
    "proc_mem.force_override=always",
    # The self-tests of the ciphers take seconds, and time out under icount.
    "cryptomgr.notests",
    # Drivers of unused devices take seconds under emulation.
    "modprobe.blacklist=ahci,psmouse,i2c_i801,iTCO_wdt,lpc_ich,kvm_amd,kvm_intel,i6300esb,powernow_k8,pcspkr,serio_raw",
)
# The clock of a guest that counts instructions leaps ahead while it waits for
# the host, so its watchdogs would report hangs that are none.
ICOUNT_OPTIONS = (
    "nowatchdog",
    "rcupdate.rcu_cpu_stall_suppress=1",
    "sysctl.kernel.hung_task_timeout_secs=0",
)


class GuestError(Exception):
    """The guest cannot be started: something is missing on this machine."""


@dataclass
class Result:
    """The outcome of a script in a guest."""

    exit_status: int | None
    """Exit status of the script; None if the guest never reported one."""
    stdout: str
    """Output and error output of the script."""
    dmesg: str
    """The kernel log; empty if the guest never reported it."""
    dmesg_problems: list[str]
    """Lines of kernel log or console that report a problem of the kernel."""
    console: str
    """Output of the serial console."""
    seconds: float
    """Time from start to end of the guest."""
    boot_seconds: float | None
    """Time until the script started; None if it never did."""
    reason: str = ""
    """The failure in one line."""
    command: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    """The guest's tasks as its kernel printed them, if it was ended for being late."""

    @property
    def ok(self) -> bool:
        return not self.reason


def parse_size(text: str) -> int:
    """Bytes of a size such as "4G"; without a unit it is in MiB, as QEMU takes it."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise ValueError(f"size '{text}': it must be a number and K, M or G, such as 4G")
    return int(match[1]) * _UNITS[match[2]]


class Guest:
    """A machine to run scripts on. Every run() boots it anew.

    kver:        kernel version, or its series such as "6.12"
    memory:      size of the machine's memory
    cpus:        number of CPUs; by default 2, with icount 1
    icount:      count instructions instead of time: one nanosecond an
                 instruction, so that clocks in the guest count instructions
    append:      further kernel options
    numa:        sizes of the memory of each node; they replace memory
    movable:     size of the memory that can always be taken offline; by
                 default all memory that the kernel does not need
    load_module: load the module before the script
    module:      a module below build/ instead of build/VERSION/hpmmap.ko
    accel:       "kvm", "tcg", or "auto" for the one that works
    one_thread:  emulate all CPUs in one thread of the host: slower only if
                 the host has idle cores
    parallel:    run the CPUs at the same time, even if that is slower
    qemu:        further options of QEMU
    """

    def __init__(
        self,
        kver: str,
        memory: str = "4G",
        cpus: int | None = None,
        icount: bool = False,
        append: str = "",
        numa: Sequence[str] | None = None,
        movable: str | None = None,
        load_module: bool = True,
        module: Path | None = None,
        accel: str = "auto",
        one_thread: bool = (os.cpu_count() or 1) <= 2,
        parallel: bool = False,
        qemu: Sequence[str] = (),
    ):
        self.kver = resolve_kernel(kver)
        self.numa = list(numa or [])
        self.memory_bytes = sum(map(parse_size, self.numa)) if self.numa else parse_size(memory)
        self.cpus = cpus or (1 if icount else 2)
        self.icount = icount
        self.append = append
        self.movable_bytes = max(0, self.memory_bytes - _KERNEL_SHARE) if movable is None else parse_size(movable)
        self.load_module = load_module
        self.module = module or BUILD / self.kver / "hpmmap.ko"
        self.extra_bytes = debug_memory(self.kver, self.memory_bytes)
        if self.numa and self.cpus < len(self.numa):
            raise ValueError(f"{len(self.numa)} nodes need {len(self.numa)} CPUs, there are {self.cpus}")
        if parallel and self.cpus < 2:
            raise ValueError("one CPU does nothing at once: a parallel guest needs two")
        if icount and accel == "kvm":
            raise ValueError("KVM cannot count instructions: use icount with tcg")
        self.accel = "tcg" if icount else accel
        self.one_thread = one_thread
        self.parallel = parallel
        self.qemu = list(qemu)

    def run(
        self,
        script: str,
        timeout: float = 300,
        boot_timeout: float = 180,
        on_line: OnLine | None = None,
        watch: Watch | None = None,
    ) -> Result:
        """Run a bash script as root in the guest; the timeout counts from its start.

        With watch, the guest's tasks are printed when the time is over, or when watch
        returns a text that begins with HANGS.

        Success needs the guest's report that the script ended with status 0, and a
        kernel log without problems. A silent guest has failed.
        """
        self._check()
        accel = choose_accel(self.kver) if self.accel == "auto" else self.accel
        nonce = secrets.token_hex(8)
        work = BUILD / "guest" / nonce
        work.mkdir(parents=True)
        try:
            self._write_settings(work, nonce, script)
            command = self._command(work, accel)
            if watch:
                command = _with_monitor(command, work)
            for attempt in range(_BOOT_ATTEMPTS):
                session = _Session(command, work, nonce, on_line, watch)
                result = session.run(timeout, boot_timeout)
                if session.has("booted") or session.ended_for or attempt == _BOOT_ATTEMPTS - 1 or accel != "tcg":
                    break
            return result
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def shell(self) -> int:
        """An interactive shell in the guest, for people."""
        self._check()
        accel = choose_accel(self.kver) if self.accel == "auto" else self.accel
        work = BUILD / "guest" / secrets.token_hex(8)
        work.mkdir(parents=True)
        try:
            self._write_settings(work, work.name, "exec bash -i </dev/console >/dev/console 2>&1")
            vng = [_tool("virtme-run"), *self._machine(accel), "--pwd"]
            print(f"In the guest run: bash {GUEST_SCRIPT} {work}", file=sys.stderr)
            return subprocess.run(vng, cwd=ROOT, check=False).returncode
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _check(self) -> None:
        if self.load_module and not self.module.exists():
            raise GuestError(f"no module {self.module}: run make module KVER={self.kver}")

    def _write_settings(self, work: Path, nonce: str, script: str) -> None:
        settings = {
            "NONCE": nonce,
            "ROOT": str(ROOT),
            "KVER": self.kver,
            "MODULE": str(self.module) if self.load_module else "",
            "CACHED": "1" if has_9p(self.kver) else "0",
        }
        (work / "settings").write_text("".join(f"{k}={shlex.quote(v)}\n" for k, v in settings.items()))
        (work / "script").write_text(script + "\n")

    def _machine(self, accel: str) -> list[str]:
        options = [
            "--kimg", str(kernel_image(self.kver)),
            "--mods", "auto",
            # Also if the kernel has all drivers for the root built in.
            "--force-initramfs",
            "--disable-microvm",
            "--name", "hpmmap",
            "--rwdir", str(ROOT),
            "--cpus", str(self.cpus),
            "--memory", f"{self.memory_bytes + self.extra_bytes >> 20}M",
        ]  # fmt: skip
        for directory in _OVERLAYS:
            if Path(directory).is_dir():
                options += ["--overlay-rwdir", directory]
        for node, size in enumerate(self.numa):
            first = node * self.cpus // len(self.numa)
            last = (node + 1) * self.cpus // len(self.numa) - 1
            node_bytes = parse_size(size) + self.extra_bytes // len(self.numa)
            options += ["--numa", f"{node_bytes >> 20}M,cpus={first}-{last}"]
        if accel == "tcg":
            options.append("--disable-kvm")
            if not self.icount:
                # CPUs that run at once have the string instructions of real ones.
                cpu = "max" if self.parallel else emulated_cpu(qemu_version())
                options += ["--qemu-opt=-cpu", f"--qemu-opt={cpu}"]
                # Otherwise QEMU's main loop polls each event of a device: a fifth of all time.
                for device in ("virtio-9p-pci", "virtio-serial-pci"):
                    options += ["--qemu-opt=-global", f"--qemu-opt={device}.ioeventfd=off"]
            if self.parallel:
                options += ["--qemu-bin", _parallel_qemu()]
                options += ["--qemu-opt=-accel", "--qemu-opt=tcg,thread=multi"]
            elif not self.icount and (self.one_thread or qemu_version() < _QEMU_KEEPS_PATCHES):
                options += ["--qemu-opt=-accel", "--qemu-opt=tcg,thread=single"]
        if has_9p(self.kver):
            options.append("--force-9p")
            options.append("--qemu-opt=-nodefaults")
            for tag, (directory, readonly) in _CACHED.items():
                export = f"local,id={tag},path={directory},security_model=none,multidevs=remap,readonly={readonly}"
                device = f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"
                options += [f"--qemu-opt={option}" for option in ("-fsdev", export, "-device", device)]
        if self.icount:
            options += ["--qemu-opt=-icount", "--qemu-opt=shift=0,sleep=off"]
        options += [f"--qemu-opt={option}" for option in self.qemu]

        # The kernel puts unknown options into the environment of init.
        kernel_options = [*_KERNEL_OPTIONS, f"PATH={INIT_TOOLS}:/usr/sbin:/usr/bin:/sbin:/bin"]
        if self.icount:
            kernel_options += ICOUNT_OPTIONS
        if self.movable_bytes:
            kernel_options.append(f"movablecore={self.movable_bytes >> 20}M")
        kernel_options += self.append.split()
        for option in kernel_options:
            options += ["--kopt", option]
        return options

    def _command(self, work: Path, accel: str) -> list[str]:
        return [
            _tool("virtme-run"),
            *self._machine(accel),
            "--show-boot-console",
            "--disable-monitor",
            "--script-sh", f"exec bash {shlex.quote(str(GUEST_SCRIPT))} {shlex.quote(str(work))}",
        ]  # fmt: skip


# With a reason that begins like this the guest's state is shown.
HANGS = "it hangs: "
_MONITOR = "qmp"
# Time for the kernel to print all of its tasks.
_STATE_SECONDS = 20
# Maximum length of the path of a socket.
_SOCKET_PATH = 107


def _with_monitor(command: list[str], work: Path) -> list[str]:
    """The same options with a socket for sending keys, and a kernel that answers them."""
    path = work / _MONITOR
    if len(str(path)) > _SOCKET_PATH:
        return command
    options = [f"--qemu-opt={option}" for option in ("-qmp", f"unix:{path},server=on,wait=off")]
    return [command[0], *options, "--kopt", "sysrq_always_enabled", *command[1:]]


def _send_keys(path: Path, letters: str) -> None:
    """Send Alt-SysRq and each letter to the guest's keyboard; OSError if QEMU is gone."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.settimeout(5)
        monitor.connect(str(path))
        answers = monitor.makefile("rb")
        answers.readline()
        requests = [{"execute": "qmp_capabilities"}]
        for letter in letters:
            keys = [{"type": "qcode", "data": key} for key in ("alt", "sysrq", letter)]
            requests.append({"execute": "send-key", "arguments": {"keys": keys}})
        for request in requests:
            monitor.sendall(json.dumps(request).encode() + b"\n")
            answers.readline()
            time.sleep(0.5)


@functools.cache
def qemu_version() -> tuple[int, int]:
    done = subprocess.run([_QEMU, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"version (\d+)\.(\d+)", done.stdout)
    if not match:
        raise GuestError(f"{_QEMU} does not run: run scripts/setup guest")
    return int(match[1]), int(match[2])


def _parallel_qemu() -> str:
    """The QEMU whose emulated CPUs may run at once: the installed one, or scripts/archive-qemu's."""
    if qemu_version() >= _QEMU_PARALLEL:
        return _QEMU
    fetched = BUILD / "qemu/bin" / _QEMU
    if not fetched.exists():
        raise GuestError("parallel guests need QEMU 10 or newer: run scripts/setup parallel")
    return str(fetched)


def _tool(name: str) -> str:
    """A program of the virtme-ng package, from the environment this Python runs in."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise GuestError(f"{name} is missing: run scripts/setup guest and use build/venv/bin/python")
    return found


class _Session:
    """A running guest process and its output so far."""

    def __init__(self, command: list[str], work: Path, nonce: str, on_line: OnLine | None, watch: Watch | None = None):
        self.command = command
        self.work = work
        self.on_line = on_line
        self.watch = watch
        self.ended_for = ""
        self.state: list[str] = []
        self.dmesg_begin = f"HPMMAP-GUEST-DMESG-BEGIN:{nonce}"
        self.dmesg_end = f"HPMMAP-GUEST-DMESG-END:{nonce}"
        self.output_token = f"HPMMAP-GUEST-OUTPUT:{nonce}"
        # virtme-ng's init runs the script on the console if it finds no ports in time.
        self.on_console = False
        self.exit_token = re.compile(rf"HPMMAP-GUEST-EXIT:(\d+):{nonce}")
        self.partial = {"stdout": b"", "console": b""}
        self.stdout: list[str] = []
        self.console: list[str] = []
        self.dmesg: list[str] = []
        self.in_dmesg = False
        self.exit_status: int | None = None
        self.boot_seconds: float | None = None

    def run(self, timeout: float, boot_timeout: float) -> Result:
        self.started = time.monotonic()
        # The guest's temporary files are deleted afterwards.
        # Without 9p, virtme-run looks for virtiofsd; see scripts/archive-kernel.
        path = f"{os.environ.get('PATH', os.defpath)}:{BUILD}/kernels/libs/bin"
        env = {**os.environ, "TMPDIR": str(self.work), "PATH": path}
        process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _running.add(process)
        try:
            timed_out = self._follow(process, timeout, boot_timeout)
        finally:
            _kill_group(process)
            _running.discard(process)
        for stream in self.partial:
            self._feed(stream, b"\n" if self.partial[stream] else b"")
        return self._result(timed_out, timeout, boot_timeout)

    def _follow(self, process: subprocess.Popen, timeout: float, boot_timeout: float) -> bool:
        """Read until the guest has reported, ended (False) or run out of time (True)."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "stdout")
            selector.register(process.stderr, selectors.EVENT_READ, "console")
            while selector.get_map() and self.exit_status is None:
                self._look_whether_up()
                if self.boot_seconds is None:
                    deadline = self.started + boot_timeout
                else:
                    deadline = self.started + self.boot_seconds + timeout
                left = deadline - time.monotonic()
                self.ended_for = (self.watch() if self.watch else None) or ""
                if left <= 0 or self.ended_for:
                    if self.watch and (not self.ended_for or self.ended_for.startswith(HANGS)):
                        self._ask_for_state(selector)
                    return not self.ended_for
                self._read(selector, min(left, 1.0))
        self._look_whether_up()
        return False

    def _read(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for key, _ in selector.select(seconds):
            data = os.read(key.fileobj.fileno(), 65536)
            if data:
                self._feed(key.data, data)
            else:
                selector.unregister(key.fileobj)

    def _ask_for_state(self, selector: selectors.BaseSelector) -> None:
        """Let the kernel print its tasks on the console: all messages, the blocked tasks, all tasks."""
        before = len(self.console)
        with contextlib.suppress(OSError):
            _send_keys(self.work / _MONITOR, "8wt")
            deadline = time.monotonic() + _STATE_SECONDS
            while selector.get_map() and time.monotonic() < deadline:
                seen = len(self.console)
                self._read(selector, 3.0)
                if len(self.console) == seen and seen > before:
                    break
        self.state = self.console[before:]

    def has(self, file: str) -> bool:
        """Has the guest come so far? It makes files for that, since its output can get lost."""
        return (self.work / file).exists()

    def _look_whether_up(self) -> None:
        if self.boot_seconds is None and self.has("started"):
            self.boot_seconds = time.monotonic() - self.started

    def _feed(self, stream: str, data: bytes) -> None:
        *lines, self.partial[stream] = (self.partial[stream] + data).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace").rstrip("\r")
            if stream == "console":
                self.console.append(line)
                self.on_console = self.on_console or line == self.output_token
            source = "stdout" if self.on_console else stream
            shown = source == "console" or self._take(line)
            if shown and self.on_line:
                self.on_line(source, line)

    def _take(self, line: str) -> bool:
        """Take a line of the guest's output; true if it is the script's."""
        if line == self.dmesg_begin:
            self.in_dmesg = True
        elif line == self.dmesg_end:
            self.in_dmesg = False
        elif match := self.exit_token.fullmatch(line):
            self.exit_status = int(match[1])
        elif self.in_dmesg:
            self.dmesg.append(line)
        elif line != self.output_token:
            self.stdout.append(line)
            return True
        return False

    def _result(self, timed_out: bool, timeout: float, boot_timeout: float) -> Result:
        console = "\n".join(self.console)
        dmesg = "\n".join(self.dmesg)
        problems = kernel_problems(dmesg)
        if self.exit_status is None:
            problems += kernel_problems(console)

        if self.ended_for:
            reason = self.ended_for
        elif timed_out and self.boot_seconds is None:
            what = "was not ready" if self.has("booted") else "did not boot"
            reason = f"the guest {what} within {boot_timeout:.0f} s"
        elif timed_out:
            reason = f"the script did not end within {timeout:.0f} s"
        elif self.exit_status is None:
            last = next((line for line in reversed(self.console) if line.strip()), "no output")
            reason = f"the guest ended without reporting an exit status: {problems[0] if problems else last}"
        elif self.boot_seconds is None:
            reason = "the guest was not ready: " + " ".join(self.stdout[-3:]).strip()
        elif self.exit_status != 0:
            reason = f"the script ended with status {self.exit_status}"
        elif problems:
            reason = f"the kernel complained: {problems[0]}"
        else:
            reason = ""
        return Result(
            exit_status=self.exit_status,
            stdout="\n".join(self.stdout).strip("\n") + "\n",
            dmesg=dmesg,
            dmesg_problems=problems,
            console=console,
            seconds=time.monotonic() - self.started,
            boot_seconds=self.boot_seconds,
            reason=reason,
            command=self.command,
            state=self.state,
        )


_running: set[subprocess.Popen] = set()


@atexit.register
def _kill_running() -> None:
    """End guests that other threads still follow: they must not outlive this process."""
    for process in list(_running):
        _signal_group(process)


def _signal_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _kill_group(process: subprocess.Popen) -> None:
    """End QEMU and its helpers, even where they hang in the kernel."""
    _signal_group(process)
    process.stdout.close()
    process.stderr.close()
    # If it is stuck in a broken /dev/kvm, the kernel reaps it when it can.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)

"""Command line: run a command, or a shell, in a guest."""

import argparse
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

from . import SUITES, Cluster, Guest, GuestError, image, kernels


def _parser() -> argparse.ArgumentParser:
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--kernel", metavar="VERSION", help="kernel version or series (default: the newest)")
    machine.add_argument("--memory", default="4G", metavar="SIZE", help="memory of the guest (default: 4G)")
    machine.add_argument("--cpus", type=int, metavar="N", help="number of CPUs (default: 2, with --icount 1)")
    machine.add_argument("--movable", metavar="SIZE", help="memory that can be taken offline (default: all but 1.25G)")
    machine.add_argument("--numa", action="append", metavar="SIZE", help="add a NUMA node of this size")
    machine.add_argument("--append", default="", metavar="OPTIONS", help="further kernel options")
    machine.add_argument("--icount", action="store_true", help="the clock counts instructions as nanoseconds")
    machine.add_argument("--parallel", action="store_true", help="CPUs that run at once: see docs/testing.md")
    machine.add_argument("--module", type=Path, metavar="FILE", help="the module (default: build/VERSION/hpmmap.ko)")
    machine.add_argument("--no-module", action="store_true", help="do not load the module")
    machine.add_argument("--accel", default="auto", choices=["auto", "kvm", "tcg"], help="accelerator (default: auto)")

    parser = argparse.ArgumentParser(prog="hpmmap_guest", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", parents=[machine], help="run a command; its exit status is passed on")
    run.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="give up after (default: 600)")
    run.add_argument("--console", action="store_true", help="show the kernel's console")
    run.add_argument("--dmesg", action="store_true", help="print the kernel log at the end")
    run.add_argument("command", nargs="+", help="one argument is a bash script, several are a command")
    verbs.add_parser("shell", parents=[machine], help="an interactive shell")
    cluster = verbs.add_parser("cluster", help="a script on nodes that have the Debian packages installed")
    cluster.add_argument("--suite", default=SUITES[0], choices=SUITES, help=f"of Debian (default: {SUITES[0]})")
    cluster.add_argument("--nodes", type=int, default=1, metavar="N", help="n1 to nN (default: 1)")
    cluster.add_argument("--memory", default="4G", metavar="SIZE", help="memory of each (default: 4G)")
    cluster.add_argument("--cpus", type=int, default=2, metavar="N", help="number of CPUs of each (default: 2)")
    cluster.add_argument("--append", default="", metavar="OPTIONS", help="further kernel options")
    cluster.add_argument("--timeout", type=float, default=1200, metavar="SECONDS", help="give up after (default: 1200)")
    cluster.add_argument("command", nargs="+", help='for n1; "on n2 SCRIPT" there runs one on another')
    return parser


def _script(command: list[str]) -> str:
    return command[0] if len(command) == 1 else shlex.join(command)


def _cluster(args: argparse.Namespace) -> int:
    disk = image(args.suite)
    # Must not collide with another guest on this machine.
    cluster = Cluster(disk, f"{args.suite}-{os.getpid()}", nodes=args.nodes, memory=args.memory, cpus=args.cpus)
    try:
        result = cluster.boot(
            "script",
            _script(args.command),
            append=args.append,
            timeout=args.timeout,
            on_line=lambda line: print(line, flush=True),
        )
    finally:
        shutil.rmtree(cluster.dir)
    for number, boot in enumerate(result.boots, 1):
        if boot.status is None:
            print("\n".join(boot.console.splitlines()[-40:]), file=sys.stderr)
        if boot.reason:
            print(f"hpmmap_guest: n{number}: {boot.reason}", file=sys.stderr)
    print(f"hpmmap_guest: total {result.seconds:.0f} s", file=sys.stderr)
    return 0 if result.ok else result.boots[0].status or 1


def main() -> int:
    args = _parser().parse_args()
    # Runs the exit handlers, which end the guest.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if args.verb == "cluster":
            return _cluster(args)
        guest = Guest(
            args.kernel or kernels()[-1],
            memory=args.memory,
            cpus=args.cpus,
            icount=args.icount,
            parallel=args.parallel,
            append=args.append,
            numa=args.numa,
            movable=args.movable,
            load_module=not args.no_module,
            module=args.module and args.module.resolve(),
            accel=args.accel,
        )
        if args.verb == "shell":
            return guest.shell()

        def show(stream: str, line: str) -> None:
            if stream == "stdout":
                print(line, flush=True)
            elif args.console:
                print(f"[console] {line}", file=sys.stderr, flush=True)

        # A guest that counts instructions boots slowly, the more so on a busy machine.
        boot_timeout = 600 if args.icount else 180
        result = guest.run(_script(args.command), timeout=args.timeout, boot_timeout=boot_timeout, on_line=show)
    except (GuestError, ValueError) as error:
        print(f"hpmmap_guest: {error}", file=sys.stderr)
        return 2

    if args.dmesg:
        print(result.dmesg, file=sys.stderr)
    boot = f"{result.boot_seconds:.0f} s" if result.boot_seconds is not None else "never"
    print(f"hpmmap_guest: booted: {boot}, total {result.seconds:.0f} s", file=sys.stderr)
    if result.exit_status is None and not args.console:
        print("\n".join(result.console.splitlines()[-40:]), file=sys.stderr)
    if not result.ok:
        print(f"hpmmap_guest: {result.reason}", file=sys.stderr)
        for line in result.dmesg_problems:
            print(f"hpmmap_guest: kernel: {line}", file=sys.stderr)
        return result.exit_status or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

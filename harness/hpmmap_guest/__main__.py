"""Command line: run a command, or a shell, in a guest."""

import argparse
import shlex
import signal
import sys
from pathlib import Path

from . import Guest, GuestError, kernels


def _parser() -> argparse.ArgumentParser:
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--kernel", metavar="VERSION", help="kernel version or series (default: the newest)")
    machine.add_argument("--memory", default="4G", metavar="SIZE", help="memory of the guest (default: 4G)")
    machine.add_argument("--cpus", type=int, default=2, metavar="N", help="number of CPUs (default: 2)")
    machine.add_argument("--movable", metavar="SIZE", help="memory that can be taken offline (default: all but 1.25G)")
    machine.add_argument("--numa", action="append", metavar="SIZE", help="add a NUMA node of this size")
    machine.add_argument("--append", default="", metavar="OPTIONS", help="further kernel options")
    machine.add_argument("--icount", action="store_true", help="one CPU that counts instructions as nanoseconds")
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
    return parser


def main() -> int:
    args = _parser().parse_args()
    # Ends through the handlers that end the guest.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
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

        script = args.command[0] if len(args.command) == 1 else shlex.join(args.command)
        result = guest.run(script, timeout=args.timeout, on_line=show)
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

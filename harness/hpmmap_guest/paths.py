"""Paths."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
GUEST_SCRIPT = Path(__file__).resolve().with_name("guest.sh")
# virtme-ng's init finds these before the programs of the machine.
INIT_TOOLS = Path(__file__).resolve().with_name("init")

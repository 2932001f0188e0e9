"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
GUEST_SCRIPT = Path(__file__).resolve().with_name("guest.sh")
# What virtme-ng's init finds before the programs of the machine.
INIT_TOOLS = Path(__file__).resolve().with_name("init")

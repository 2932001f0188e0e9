"""What is installed beside the programs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = sorted(PACKAGING.glob("*.service"))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_unit_may_do_little(unit):
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"exposure level for \S+: (\d+\.\d)", ran.stdout)
    if not level:
        pytest.skip(f"systemd-analyze cannot look at it: {ran.stderr.strip()}")
    assert float(level[1]) <= 2.0, ran.stdout

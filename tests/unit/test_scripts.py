"""What the scripts find out about a machine."""

import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def shell(commands):
    """Run @commands after common.sh, with the options that the scripts set."""
    script = f"set -euo pipefail; . {SCRIPTS}/common.sh; {commands}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)


def test_no_kernel_of_a_series_is_no_failure():
    # Otherwise the set-up of a machine without kernels would end without a word.
    ran = shell('version=$(kernels_installed 0.0 | head -n 1); echo "<$version>"')
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "<>\n", "")


def test_an_unknown_package_is_not_installed():
    assert shell("installed no-such-package-0 || echo no").stdout == "no\n"

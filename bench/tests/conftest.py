# SPDX-License-Identifier: GPL-2.0
"""Makes the packages of bench/ importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

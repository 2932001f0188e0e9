# SPDX-License-Identifier: GPL-2.0
"""The sections of the report: for each figure and table of a seed, what is measured here, and the rule of its verdict.

What the seeds say is in seeds.toml, the commands that measure are in parts.toml.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from . import seed_000, seed_001, seed_002, seed_003
from .model import Section

HERE = Path(__file__).resolve().parent
SEEDS = {
    "000": "HPMMAP: lightweight memory management (B. Kocoloski, J. Lange; with its slides, 004)",
    "001": "Kernel-level page reuse (S. Valat, M. Perache, W. Jalby, MSPC 2013)",
    "002": "Kitten, SMARTMAP, Palacios: a lightweight operating system (Sandia, 2010)",
    "003": "Big Memory: the compute node Linux of ZeptoOS on Blue Gene/P",
}
SECTIONS = (*seed_000.SECTIONS, *seed_001.SECTIONS, *seed_002.SECTIONS, *seed_003.SECTIONS)


def load_sections(file: Path = HERE / "seeds.toml") -> list[Section]:
    """Of each entry of seeds.toml, in its order: what it says with what is measured here."""
    measured = {section.name: section for section in SECTIONS}
    sections = []
    for name, seed in tomllib.loads(file.read_text()).items():
        one = measured.pop(name, Section(name))
        sections.append(Section(one.name, one.parts, one.claims, one.charts, seed))
    if measured:
        raise ValueError(f"seeds.toml lacks {', '.join(measured)}")
    return sections

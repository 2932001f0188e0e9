# SPDX-License-Identifier: GPL-2.0
"""What a section of the report is made of. Paths and formulas are those of values.py."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """What a seed says, and how it is decided here: by a formula, or not in emulated guests."""

    says: str
    holds: str = ""
    otherwise: str = ""
    """Why it does not hold, where it does not."""
    metal: str = ""
    """Why it takes a host; without a formula."""
    ours: bool = False
    """The seed does not say it of this figure: it is shown, and the verdict on the figure is without it."""


@dataclass(frozen=True)
class Lines:
    """Series over a number. A series: path of a list, conditions of its rows, formula of x and y of a row."""

    title: str
    x: str
    y: str
    series: dict[str, tuple[str, str, str, str]]
    log: bool = False


@dataclass(frozen=True)
class Bars:
    title: str
    y: str
    bars: dict[str, str]
    """Formulas by label."""


@dataclass(frozen=True)
class Points:
    """Costs over time of one recording, by kind; or of one kind by rank."""

    title: str
    run: str
    """Path of the recording."""
    kinds: tuple[str, ...] = ()
    """Only these; coloured by rank then."""


@dataclass(frozen=True)
class Rows:
    """A table."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    """Formulas by label."""


@dataclass(frozen=True)
class Section:
    """A figure or table of a seed."""

    name: str
    parts: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    charts: tuple[Lines | Bars | Points | Rows, ...] = ()
    seed: dict = field(default_factory=dict)
    """Its entry in seeds.toml."""

    @property
    def kind(self) -> str:
        return self.seed.get("kind", "measured")

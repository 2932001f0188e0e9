# SPDX-License-Identifier: GPL-2.0
"""Whether what is measured agrees with what a seed says."""

from __future__ import annotations

from dataclasses import dataclass

from .model import Claim, Section
from .values import Data, Missing, formula, sides

AGREES = "agrees"
PART = "agrees in part"
DIFFERS = "does not"
METAL = "needs metal"
UNMEASURED = "not measured"
DRAWING = "drawing"


@dataclass(frozen=True)
class Judged:
    """A claim, its verdict, and why."""

    claim: Claim
    verdict: str
    why: str = ""


def judged(claim: Claim, data: Data) -> Judged:
    if claim.metal:
        return Judged(claim, METAL, claim.metal)
    try:
        holds = formula(data, claim.holds)
        figures = sides(data, claim.holds)
    except Missing as missing:
        part = str(missing).partition(":")[0]
        why = f"there is no {missing}" if part in data else f"the part {part} has not been run"
        return Judged(claim, UNMEASURED, why)
    if holds:
        return Judged(claim, AGREES, figures)
    because = f"not {figures}" + (f": {claim.otherwise}" if claim.otherwise else "")
    return Judged(claim, DIFFERS, because)


def of_section(section: Section, claims: list[Judged]) -> tuple[str, str]:
    """The verdict on a figure by the claims that are its seed's, and what it leaves open."""
    if section.kind == "drawing":
        return DRAWING, "there is nothing to measure"
    if section.kind == "metal":
        return METAL, section.seed["why"]
    claims = [one for one in claims if not one.claim.ours]
    found = [one.verdict for one in claims]
    parts = []
    if UNMEASURED in found and AGREES in found:
        parts.append(f"{found.count(AGREES)} of {len(found)} claims hold")
    if METAL in found:
        parts.append(f"{found.count(METAL)} of {len(found)} claims need metal")
    if UNMEASURED in found:
        parts.append(f"{found.count(UNMEASURED)} of {len(found)} claims are not measured")
    if DIFFERS in found:
        first = next(one for one in claims if one.verdict == DIFFERS)
        return DIFFERS, "; ".join([f"because {first.why}", *parts])
    # What has not been measured may yet fail.
    if UNMEASURED in found or not found:
        result = UNMEASURED
    elif METAL in found:
        result = PART if AGREES in found else METAL
    else:
        result = AGREES
    return result, "; ".join(parts)

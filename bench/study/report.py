# SPDX-License-Identifier: GPL-2.0
"""The report: study.json, and report.html with everything in one file."""

from __future__ import annotations

import collections
import html
import json
import re
from pathlib import Path

from . import pictures, verdict
from .model import Section
from .runner import Store
from .sections import SEEDS

SCHEMA = 1
STYLE = (Path(__file__).resolve().parent / "report.css").read_text()


def _data(store: Store, parts: list[str]) -> dict:
    found = {part: store.record(part) for part in parts}
    return {part: record["data"] for part, record in found.items() if record}


def section_record(section: Section, store: Store) -> dict:
    """A section on one kernel, as the JSON has it."""
    data = _data(store, list(section.parts))
    claims = [verdict.judged(claim, data) for claim in section.claims]
    result, why = verdict.of_section(section, claims)
    charts = [{"title": chart.title, "figures": pictures.figures_of(chart, data)} for chart in section.charts]
    return {
        "kernel": store.kernel,
        "verdict": result,
        "why": why,
        "claims": [
            {"says": one.claim.says, "ours": one.claim.ours, "verdict": one.verdict, "why": one.why} for one in claims
        ],
        "parts": {part: part in data for part in section.parts},
        "charts": charts,
    }


def collect(sections: list[Section], stores: list[Store], parts: list[str]) -> dict:
    """All that the report says."""
    measured = {}
    for store in stores:
        records = {part: store.record(part) for part in parts}
        keys = ("commit", "command", "began", "seconds")
        measured[store.kernel] = {
            part: {key: record[key] for key in keys} for part, record in records.items() if record
        }
    return {
        "schema": SCHEMA,
        "parts": measured,
        "sections": [
            {
                "name": section.name,
                "seed": section.name[:3],
                "title": section.seed["title"],
                "kind": section.kind,
                "says": section.seed["says"],
                "x": section.seed.get("x"),
                "y": section.seed.get("y"),
                "unit": section.seed.get("unit"),
                "numbers": {
                    key: section.seed[key] for key in ("lines", "bars", "columns", "rows") if key in section.seed
                },
                "on": [section_record(section, store) for store in stores],
            }
            for section in sections
        ],
    }


def _tag(result: str) -> str:
    return f'<span class="tag {result.replace(" ", "-")}">{html.escape(result)}</span>'


def _text(words: str) -> str:
    """With commands in backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(words))


def label(name: str) -> str:
    """000-fig2 is figure 2."""
    what = name[4:]
    return f"Figure {what[3:]}" if what.startswith("fig") else f"Table {what[5:]}"


def _overview(record: dict, kernels: list[str]) -> str:
    rows = []
    for section in record["sections"]:
        tags = "".join(f"<td>{_tag(one['verdict'])}</td>" for one in section["on"])
        where = f'<a href="#{section["name"]}">{section["seed"]}, {label(section["name"]).lower()}</a>'
        rows.append(f"<tr><td>{where}</td><td>{html.escape(section['title'])}</td>{tags}</tr>")
    counts = []
    for n, kernel in enumerate(kernels):
        tally = collections.Counter(section["on"][n]["verdict"] for section in record["sections"])
        counts.append(f"Linux {kernel}: " + ", ".join(f"{count} {what}" for what, count in tally.most_common()))
    head = "".join(f"<th>Linux {html.escape(kernel)}</th>" for kernel in kernels)
    return (
        f"<p>{html.escape('. '.join(counts))}.</p>"
        f'<table class="all"><tr><th></th><th></th>{head}</tr>{"".join(rows)}</table>'
    )


def _measured(section: Section, one: dict) -> str:
    made = []
    for chart, record in zip(section.charts, one["charts"], strict=True):
        if record["figures"]:
            made.append(pictures.of_chart(chart, record["figures"]))
        else:
            made.append(f'<p class="small">Not measured: {html.escape(chart.title)}.</p>')
    return "".join(made)


def _section(section: Section, record: dict) -> str:
    seed = section.seed
    says = "".join(f"<li>{html.escape(text)}</li>" for text in seed["says"])
    curves = '<p class="small">The seed has curves without numbers for it.</p>' if seed.get("curves") else ""
    claims, here = [], []
    whose = {True: "Not the seed's: ", False: ""}
    for one in record["on"]:
        rows = "".join(
            f"<tr><td>{whose[claim['ours']]}{html.escape(claim['says'])}</td>"
            f"<td>{_tag(claim['verdict'])}</td>"
            f"<td>{_text(claim['why'])}</td></tr>"
            for claim in one["claims"]
        )
        absent = [part for part, there in one["parts"].items() if not there]
        without = f'<p class="small">Not run on this kernel: {", ".join(absent)}.</p>' if absent else ""
        kernel = html.escape(one["kernel"])
        claims.append(f"<p><b>Linux {kernel}:</b> {_tag(one['verdict'])} {_text(one['why'])}</p>{without}")
        claims.append(f'<table class="claims">{rows}</table>' if rows else "")
        charts = _measured(section, one)
        here.append(f'<p><b>Linux {kernel}</b></p><div class="charts">{charts}</div>' if charts else "")
    drawn = "".join(pictures.of_seed(seed)) + curves
    if section.kind == "measured":
        pair = f'<div class="pair"><div>{drawn}</div><div>{"".join(here)}</div></div>'
        body = "".join(claims) + pair
    else:
        # The same on each kernel.
        body = f"<p>{_tag(record['on'][0]['verdict'])} {_text(record['on'][0]['why'])}</p>{drawn}"
    axes = f'<p class="small">Axes: {html.escape(seed["x"])}; {html.escape(seed["y"])}.</p>' if "x" in seed else ""
    title = f"{label(section.name)}: {html.escape(seed['title'])}"
    return f'<h3 id="{section.name}">{title}</h3><ul>{says}</ul>{axes}{body}'


def _parts(record: dict) -> str:
    rows = []
    for kernel, parts in record["parts"].items():
        for name, one in parts.items():
            cells = (kernel, name, one["commit"], one["began"], str(one["seconds"]), one["command"])
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("Linux", "part", "commit", "begun", "seconds", "command"))
    return f'<h2>What was run</h2><table class="claims"><tr>{head}</tr>{"".join(rows)}</table>'


def page(sections: list[Section], record: dict, kernels: list[str]) -> str:
    body = []
    seed = ""
    for section, one in zip(sections, record["sections"], strict=True):
        if one["seed"] != seed:
            seed = one["seed"]
            body.append(f"<h2>Seed {seed}: {html.escape(SEEDS[seed])}</h2>")
        body.append(_section(section, one))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The seeds, measured here</title>'
        f"<style>{STYLE}</style></head><body><h1>The seeds, measured here</h1>"
        "<p>Left: what a seed says of a figure or table. Right: what the same question gives here, in emulated "
        "guests that count instructions where nothing else is said. An instruction is not a cycle: compare shapes "
        "and ratios.</p>"
        f"{_overview(record, kernels)}{''.join(body)}{_parts(record)}</body></html>\n"
    )


def write(dir: Path, sections: list[Section], stores: list[Store], parts: list[str]) -> dict:
    record = collect(sections, stores, parts)
    dir.mkdir(parents=True, exist_ok=True)
    (dir / "study.json").write_text(json.dumps(record, indent=1) + "\n")
    (dir / "report.html").write_text(page(sections, record, [store.kernel for store in stores]))
    return record

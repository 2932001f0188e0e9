# SPDX-License-Identifier: GPL-2.0
"""The charts of a section, as SVG and tables: the seed's beside what is measured here."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from .model import Bars, Lines, Points, Rows
from .values import PATH, Data, Missing, conditions, formula, look_up, matches, shown

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "study",
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)
# Colours that colour-blind people can tell apart (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#888888", "#f0e442")
KINDS = {
    "4k": COLOURS[5], "2m": COLOURS[2], "hugetlb": COLOURS[2], "cow": COLOURS[3],
    "merge": COLOURS[0], "4k+reclaim": COLOURS[1],
}  # fmt: skip
SIZE = (4.6, 3.1)


def _titled(title: str) -> str:
    """In lines that the picture has room for."""
    return textwrap.fill(title, 52)


def _bytes(value: float, _place: object = None) -> str:
    """A size on an axis."""
    for unit, scale in (("M", 1 << 20), ("K", 1 << 10)):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"


def _legend(axes) -> None:
    """Below the axes, where no point lies."""
    axes.figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)


def _svg(draw: Callable, size: tuple[float, float] = SIZE) -> str:
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.add_subplot())
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _lines(title: str, x: str, y: str, series: dict[str, Sequence[Sequence[float]]], log: bool) -> str:
    def draw(axes) -> None:
        for (name, points), colour in zip(series.items(), COLOURS * 3, strict=False):
            axes.plot(
                *zip(*sorted(map(tuple, points)), strict=True), marker="o", markersize=3, label=name, color=colour
            )
        if log:
            axes.set_xscale("symlog", base=2, linthresh=8)
            sizes = [point[0] for points in series.values() for point in points]
            axes.set_xticks([one for one in (0, *(8 << 3 * n for n in range(8))) if min(sizes) <= one <= max(sizes)])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(_bytes)
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(title=_titled(title), xlabel=x, ylabel=y)
        _legend(axes)

    return _svg(draw)


def _bars(title: str, y: str, bars: dict[str, float]) -> str:
    def draw(axes) -> None:
        names = list(bars)
        drawn = axes.barh(names, list(bars.values()), color=COLOURS[0])
        axes.bar_label(drawn, labels=[shown(value) for value in bars.values()], padding=2, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(lambda value, _place: shown(value))
        axes.set(title=_titled(title), xlabel=y)

    return _svg(draw, (SIZE[0], max(1.2, 0.75 + 0.21 * len(bars))))


def _points(title: str, points: list[list], by_rank: bool) -> str:
    def draw(axes) -> None:
        groups: dict[str, list] = {}
        for time, cost, kind, rank in points:
            groups.setdefault(f"rank {rank}" if by_rank else kind, []).append((time / 1e9, max(cost, 1)))
        for (name, group), colour in zip(sorted(groups.items()), COLOURS * 3, strict=False):
            shade = colour if by_rank else KINDS.get(name, COLOURS[6])
            axes.scatter(*zip(*group, strict=True), s=5, label=name, color=shade)
        axes.set_yscale("log")
        axes.set(title=_titled(title), xlabel="time of the run, 10^9 instructions", ylabel="instructions of a fault")
        _legend(axes)

    return _svg(draw)


def _table(title: str, columns: Sequence[str], rows: dict[str, Sequence[float | None]]) -> str:
    def cell(value: float | None) -> str:
        return f"<td>{'' if value is None else html.escape(shown(value))}</td>"

    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *columns))
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(map(cell, values))}</tr>" for name, values in rows.items()
    )
    return f"<table><caption>{html.escape(title)}</caption><tr>{head}</tr>{body}</table>"


def of_seed(seed: dict) -> list[str]:
    """The numbers that the seed has for a figure, as pictures and tables."""
    x, y = seed.get("x", ""), f"{seed.get('y', '')} ({seed['unit']})" if "unit" in seed else ""
    made = []
    if "lines" in seed:
        made.append(_lines("the seed", x, y, seed["lines"], log=False))
    if "bars" in seed:
        made.append(_bars("the seed", y, seed["bars"]))
    if "rows" in seed:
        made.append(_table(f"the seed: {y}", seed["columns"], seed["rows"]))
    return made


def _value(data: Data, text: str) -> float | None:
    try:
        return formula(data, text)
    except Missing:
        return None


def of_row(text: str, row: dict) -> float:
    """A formula whose paths are members of a row."""
    return formula({"row": row}, PATH.sub(r"{row:\1}", text))


def series_of(chart: Lines, data: Data) -> dict[str, list[list[float]]]:
    made = {}
    for name, (path, where, x, y) in chart.series.items():
        try:
            rows = look_up(data, path)
        except Missing:
            continue
        rows = [row for row in rows if matches(row, conditions(where))]
        points = [[of_row(x, row), of_row(y, row)] for row in rows]
        if points:
            made[name] = points
    return made


def _kept(data: Data, chart: Points) -> list[list]:
    points = look_up(data, chart.run + "/points")
    return [point for point in points if not chart.kinds or point[2] in chart.kinds]


def figures_of(chart: Lines | Bars | Points | Rows, data: Data) -> dict | list:
    """The numbers of a chart, for the JSON; empty where nothing has been measured."""
    match chart:
        case Lines():
            return series_of(chart, data)
        case Bars():
            values = {name: _value(data, text) for name, text in chart.bars.items()}
            return {name: value for name, value in values.items() if value is not None}
        case Rows():
            rows = {name: [_value(data, text) for text in texts] for name, texts in chart.rows.items()}
            return {name: values for name, values in rows.items() if any(value is not None for value in values)}
        case Points():
            try:
                return _kept(data, chart)
            except Missing:
                return []


def of_chart(chart: Lines | Bars | Points | Rows, figures: dict | list) -> str:
    match chart:
        case Lines():
            return _lines(chart.title, chart.x, chart.y, figures, chart.log)
        case Bars():
            return _bars(chart.title, chart.y, figures)
        case Rows():
            return _table(chart.title, chart.columns, figures)
        case Points():
            return _points(chart.title, figures, bool(chart.kinds))

"""The slowdown: how many times slower than the baseline, over length or, at one length, by case."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from matplotlib.lines import Line2D

from lab.records import EVIDENCE_ORDER, Evidence, Result
from lab.report import panels
from lab.report.comparisons import Comparison
from lab.report.panels import Look
from lab.report.published import CREDIT, PublishedCurve, curves
from lab.report.series import Panel, Point, Series, Sheet, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def slowdown(
    found: Sequence[Comparison],
    gaps: Sequence[Result],
    out: Path,
    *,
    baseline: str,
    overlay: str | None = None,
) -> list[str]:
    """Draw slowdown.png and slowdown.svg into `out`.

    Args:
        found: the comparisons to draw.
        gaps: cells that gave no time; each breaks its line and is marked at the lower edge.
        out: an existing directory.
        baseline: the name of the baseline, for the axis.
        overlay: "published" draws the published v5e curve in the panels of its cases.

    Returns:
        the names of the files written.
    """
    drawn = sheet(points_of(found), gaps, baseline)
    published = curves(baseline) if overlay == "published" else ()
    beyond = any(
        panels.is_beyond(p.points, panels.caps(p.points)) for p in drawn.panels if p.points
    )
    gone = any(one.lost for p in drawn.panels for one in p.series)
    marks = ((gone, panels.NO_RESULT), (beyond, panels.BEYOND))
    extra = [handle for wanted, handle in marks if wanted]
    title = f"Slowdown against {baseline}: time / time of {baseline}"
    shown = [one for one in published if any(_fits(one, p) for p in drawn.panels)]
    extra += [_legend_entry(one) for one in shown]
    notes = _notes(drawn, found)
    if shown and any(c.evidence == "estimated" for c in found):
        notes.append(
            "Published times include the host's dispatch; estimates are of the device alone."
        )
    lengths = sorted({*panels.lengths_of(drawn), *(n for one in shown for n in one.slowdowns)})
    if len(lengths) == 1:
        drawn, rows = _by_case(drawn)

        def cases(axes: Axes, one: Panel, styles: Mapping[str, Look]) -> None:
            _cases(axes, one, styles, rows[one.evidence], baseline)

        height = 1.6 + max(map(len, rows.values())) * max(0.4, 0.16 * len(drawn.names))
        return panels.draw(
            drawn, out / "slowdown", title, cases, extra=extra, notes=notes,
            columns=1, width=8.0, height=height,
        )  # fmt: skip

    def over_length(axes: Axes, one: Panel, styles: Mapping[str, Look]) -> None:
        over = [curve for curve in shown if _fits(curve, one)]
        # One scale for all panels of a level: what looks higher is slower.
        level = [
            p for other in drawn.panels if other.evidence == one.evidence for p in other.points
        ]
        cap = panels.caps(level) if level else (0.5, 2.0)
        published = [value for curve in over for value in curve.slowdowns.values()]
        ends = panels.limits([1.0, *published, *panels.within(level, cap)])
        _curves(axes, one, styles, lengths, over, cap, ends)
        # Beside the axes, where no point can lie under it.
        axes.annotate(
            f"as fast\nas {panels.plain(baseline)}", (1.01, 1.0),
            xycoords=("axes fraction", "data"), fontsize=7.5, va="center", color="0.3",
            annotation_clip=False,
        )  # fmt: skip

    return panels.draw(drawn, out / "slowdown", title, over_length, extra=extra, notes=notes)


def points_of(found: Sequence[Comparison]) -> list[Point]:
    """A point for every comparison."""
    return [
        Point(
            result=c.kernel,
            evidence=c.evidence,
            value=c.slowdown,
            lo=c.interval.lo if c.interval else None,
            hi=c.interval.hi if c.interval else None,
            unproved=c.unproved,
        )
        for c in found
    ]


def claims(found: Sequence[Comparison]) -> list[str]:
    """What the comparisons of each level may claim, strongest level first."""
    said = []
    for level in reversed(EVIDENCE_ORDER):
        points = tuple(p for p in points_of(found) if p.evidence == level)
        if points:
            said.append(panels.claim(Panel(level, "", "", (Series("", {0: points}),))))
    return said


def overlaid(found: Sequence[Comparison], baseline: str) -> list[PublishedCurve]:
    """The published curves that have a panel of their case."""
    drawn = sheet(points_of(found), (), baseline)
    return [one for one in curves(baseline) if any(_fits(one, p) for p in drawn.panels)]


def _notes(drawn: Sheet, found: Sequence[Comparison]) -> list[str]:
    notes = []
    if drawn.left_out:
        notes.append(f"Not drawn, but in comparisons.csv: {drawn.left_out}.")
    ends = [c for c in found if c.interval]
    if any(c.method != "sources" for c in ends):
        notes.append("Bands and whiskers: the interval of the ratio, at least 95 percent.")
    if any(c.method == "sources" for c in ends):
        notes.append(
            "Band of an estimate: from one source of cycles to the other; where it holds 1, "
            "the two contradict each other."
        )
    return notes


def _fits(published: PublishedCurve, panel: Panel) -> bool:
    """Whether a panel is of the published case: its scope, forward, its dtype and shape."""
    return any(
        (c.scope, c.direction, c.dtype, c.shape, c.q_len)
        == (published.scope, "forward", "bf16", "published", c.seq)
        for c in (p.result.cell for p in panel.points)
    )


def _legend_entry(one: PublishedCurve) -> Line2D:
    dash: Literal["-", "--"] = "-" if one.scope == "attention" else "--"
    name = f"{one.kernel}, {one.scope}; {CREDIT}"
    return Line2D([], [], color="0.6", marker=".", linestyle=dash, linewidth=2, label=name)


def _curves(
    axes: Axes,
    panel: Panel,
    styles: Mapping[str, Look],
    lengths: Sequence[int],
    over: Sequence[PublishedCurve],
    cap: tuple[float, float],
    ends: tuple[float, float],
) -> None:
    moved = panels.shifts([one.name for one in panel.series], lengths)
    for curve in over:
        dash = "-" if curve.scope == "attention" else "--"
        at = sorted(curve.slowdowns)
        values = [curve.slowdowns[n] for n in at]
        axes.plot(at, values, linestyle=dash, marker=".", color="0.6", linewidth=2)
    for one in panel.series:
        panels.curve(axes, one, styles[one.name], moved[one.name], cap)
    axes.set_yscale("log")
    axes.set_ylim(*ends)
    panels.ratio_axis(axes.yaxis, *ends)
    panels.length_axis(axes, lengths)
    axes.axhline(1.0, color="0.3", linewidth=1)


def _by_case(drawn: Sheet) -> tuple[Sheet, dict[Evidence, list[str]]]:
    """At one length a panel holds the cases of one level as rows, each panel of before one row.

    Returns:
        the sheet, whose series have rows in place of lengths, and the names of the rows by level.
    """
    merged, names = [], {}
    for level in dict.fromkeys(panel.evidence for panel in drawn.panels):
        rows = [panel for panel in drawn.panels if panel.evidence == level]
        series: dict[str, dict[int, Sequence[Point]]] = {}
        for number, row in enumerate(rows):
            for one in row.series:
                everything = [p for points in one.points.values() for p in points]
                series.setdefault(one.name, {})[number] = everything
        names[level] = [row.title for row in rows]
        lines = tuple(Series(name, points) for name, points in series.items())
        merged.append(Panel(level, "", rows[0].scope, lines))
    return replace(drawn, panels=tuple(merged)), names


def _cases(
    axes: Axes, panel: Panel, styles: Mapping[str, Look], rows: Sequence[str], baseline: str
) -> None:
    cap = panels.caps(panel.points)
    for number, series in enumerate(panel.series):
        offset = 0.7 * ((number + 0.5) / len(panel.series) - 0.5)
        for row, points in series.points.items():
            for p in points:
                _mark(axes, p, row + offset, styles[series.name], cap)
    labels = ["\n".join(textwrap.wrap(panels.plain(row), 40)) for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="0.9", linewidth=0.8)
    low, high = panels.limits([1.0, *panels.within(panel.points, cap)])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    panels.ratio_axis(axes.xaxis, low, high)
    axes.axvline(1.0, color="0.3", linewidth=1)
    length = panel.points[0].result.cell.seq
    axes.set_xlabel(f"slowdown at {length} keys; 1: as fast as {panels.plain(baseline)}")
    axes.grid(visible=True, axis="x", color="0.92")
    axes.set_axisbelow(True)


def _mark(axes: Axes, p: Point, row: float, look: Look, cap: tuple[float, float]) -> None:
    axes.plot(p.value, row, look.marker, color=look.colour, markersize=6)
    if p.lo is None or p.hi is None:
        return
    lo, hi = max(p.lo, cap[0]), min(p.hi, cap[1])
    axes.hlines(row, lo, hi, color=look.colour, linewidth=1.5)
    for cut, at, head in ((p.lo < lo, lo, "<"), (p.hi > hi, hi, ">")):
        if cut:
            axes.plot(at, row, head, color=look.colour, mfc="white")

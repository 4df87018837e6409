"""The latency curves: milliseconds over length, with the dispatch floor under them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D

from lab.records import Result
from lab.report import panels
from lab.report.comparisons import proof, time_ms
from lab.report.panels import Look
from lab.report.series import Panel, Point, sheet
from lab.timing.statistics import Interval, median_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FLOOR = Line2D([], [], color="0.45", linewidth=1.2, linestyle=(0, (4, 2)), marker="_",
                label="dispatch floor: an empty computation, timed the same way")  # fmt: skip


def latency(results: Sequence[Result], out: Path) -> list[str]:
    """Draw latency.png and latency.svg: every timed or estimated cell, baseline included.

    Args:
        results: records of any task; those without a time are marked where they would stand.
        out: an existing directory.

    Returns:
        the names of the files written; none without a time.
    """
    points = points_of(results)
    if not points:
        return []
    gaps = [r for r in results if r.task in ("benchmark", "compile") and r.status != "done"]
    drawn = sheet(points, gaps)
    lengths = panels.lengths_of(drawn)
    floored = [p for panel in drawn.panels for p in panel.points if p.floor is not None]
    extra = [panels.NO_RESULT] if any(s.lost for p in drawn.panels for s in p.series) else []
    extra += [_FLOOR] if floored else []
    if any(panels.is_beyond(p.points, panels.caps(p.points)) for p in drawn.panels if p.points):
        extra.append(panels.BEYOND)
    notes = []
    if drawn.left_out:
        notes.append(f"Not drawn, but in cells.csv: {drawn.left_out}.")
    if any(p.result.benchmark for p in points):
        notes.append("Median; bands and whiskers: its interval, at least 95 percent.")
    if any(p.result.benchmark and p.floor is None for p in points):
        notes.append("Some records hold no dispatch floor: short times may be the host's.")
    if any(p.result.compile for p in points):
        notes.append(
            "Estimates are of the device alone; band: from one source of cycles to the other."
        )

    def panel(axes: Axes, one: Panel, styles: Mapping[str, Look]) -> None:
        _panel(axes, one, styles, lengths)

    return panels.draw(drawn, out / "latency", "Time of a call", panel, extra=extra, notes=notes)


def points_of(results: Sequence[Result]) -> list[Point]:
    """A point for every cell that has a time."""
    points = []
    for result in results:
        ms = time_ms(result) if result.status == "done" else None
        if not ms or result.evidence is None or proof(result) == "refused":
            continue
        ends = _ends(result)
        floor = result.benchmark.dispatch_floor_ms if result.benchmark else None
        points.append(
            Point(
                result, result.evidence, ms,
                lo=ends.lo if ends else None, hi=ends.hi if ends else None,
                floor=floor or None, unproved=bool(proof(result)),
            )
        )  # fmt: skip
    return points


def _ends(result: Result) -> Interval | None:
    if result.benchmark is not None:
        return median_interval(result.benchmark.samples_ms)
    section = result.compile
    assert section is not None
    times = [section.estimated_ms, section.schedule_ms]
    held = [ms for ms in times if ms and ms >= section.floor_ms]
    return Interval(min(held), max(held)) if len(held) > 1 else None


def _panel(axes: Axes, panel: Panel, styles: Mapping[str, Look], lengths: Sequence[int]) -> None:
    cap = panels.caps(panel.points)
    moved = panels.shifts([one.name for one in panel.series], lengths)
    floors: dict[int, list[float]] = defaultdict(list)
    for p in panel.points:
        if p.floor is not None:
            floors[p.result.cell.seq].append(p.floor)
    if floors:
        at = sorted(floors)
        values = [statistics.median(floors[n]) for n in at]
        axes.plot(at, values, color="0.45", linewidth=1.2, linestyle=(0, (4, 2)), marker="_")
        axes.fill_between(at, values, min(values) * 1e-6, color="0.5", alpha=0.08, lw=0)
    for one in panel.series:
        panels.curve(axes, one, styles[one.name], moved[one.name], cap)
    known = [value for values in floors.values() for value in values]
    low, high = panels.limits([*known, *panels.within(panel.points, cap)])
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    panels.ratio_axis(axes.yaxis, low, high)
    panels.length_axis(axes, lengths)
    axes.set_ylabel("milliseconds")

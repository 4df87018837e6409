"""The roofline: TFLOP/s over arithmetic intensity, under what the device can do at most.

S. Williams, A. Waterman and D. Patterson, Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D

from lab.records import Result
from lab.report import panels
from lab.report.achieved import Achieved, Peaks, achieved
from lab.report.host import HostPeaks
from lab.report.latency_figure import points_of
from lab.report.panels import Look
from lab.report.series import Panel, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def roofline(results: Sequence[Result], out: Path, host: Mapping[str, HostPeaks]) -> list[str]:
    """Draw roofline.png and roofline.svg: a panel as for the latency, a roof where peaks are known.

    Args:
        results: records of any task; those with a time are drawn. Interpreted times are not.
        out: an existing directory.
        host: measured peaks of processors, by their model.

    Returns:
        the names of the files written; none where no time has a roof to stand under.
    """
    points = [p for p in points_of(results) if p.evidence != "interpreted"]
    rates = {id(p.result): achieved(p.result, host) for p in points}
    if not any(rate and rate.peaks for rate in rates.values()):
        return []
    # Intensity is the horizontal axis, so that the panels need not part the lengths.
    drawn = sheet([replace(p, lo=None, hi=None) for p in points])
    known = {rate.peaks for rate in rates.values() if rate and rate.peaks}
    notes = [f"Not drawn, but in cells.csv: {drawn.left_out}."] if drawn.left_out else []
    notes.append(
        "The work is the least a cell must do: arguments read once, results written once, only the "
        "visible pairs. Small numbers: length."
    )
    notes += sorted(
        f"Roof {peaks.tflops:.3g} TFLOP/s, {peaks.gb_s:.3g} GB/s: {peaks.source}" for peaks in known
    )
    roof = Line2D([], [], color="0.3", linewidth=1.5, label="roof by datasheet")
    own = Line2D(
        [], [], color="0.3", linewidth=1.5, linestyle="--", label="roof measured on the CPU"
    )
    extra = [roof] if any(not peaks.measured for peaks in known) else []
    extra += [own] if any(peaks.measured for peaks in known) else []

    def panel(axes: Axes, one: Panel, styles: Mapping[str, Look]) -> None:
        _panel(axes, one, styles, {key: rate for key, rate in rates.items() if rate})

    return panels.draw(drawn, out / "roofline", "Roofline", panel, extra=extra, notes=notes)


def _panel(
    axes: Axes, panel: Panel, styles: Mapping[str, Look], rates: Mapping[int, Achieved]
) -> None:
    shown = [rates[id(p.result)] for p in panel.points]
    peaks = next((rate.peaks for rate in shown if rate.peaks), None)
    intensities = [rate.intensity for rate in shown]
    x_low, x_high = min(intensities) / 1.6, max(intensities) * 1.6
    heights = [rate.tflops for rate in shown]
    if peaks:
        x_low = min(x_low, peaks.tflops * 1e3 / peaks.gb_s / 4)
        x_high = max(x_high, peaks.tflops * 1e3 / peaks.gb_s * 4)
        heights += _roof(axes, peaks, x_low, x_high)
    for one in panel.series:
        look = styles[one.name]
        at = sorted(one.points)
        first = [rates[id(one.points[n][0].result)] for n in at]
        x, y = [rate.intensity for rate in first], [rate.tflops for rate in first]
        axes.plot(
            x, y, look.marker, linestyle=look.dash, color=look.colour, linewidth=1, markersize=5
        )
        for n, x_at, y_at in ((at[0], x[0], y[0]), (at[-1], x[-1], y[-1])):
            axes.annotate(
                str(n), (x_at, y_at), (3, 4), textcoords="offset points", fontsize=6.5,
                color=look.colour,
            )  # fmt: skip
    low, high = panels.limits(heights)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(x_low, x_high)
    axes.set_ylim(low, high)
    panels.ratio_axis(axes.xaxis, x_low, x_high)
    panels.ratio_axis(axes.yaxis, low, high)
    axes.set_xlabel("FLOP a byte of memory traffic")
    axes.set_ylabel("TFLOP/s")
    axes.grid(visible=True, color="0.92")
    axes.set_axisbelow(True)


def _roof(axes: Axes, peaks: Peaks, x_low: float, x_high: float) -> list[float]:
    x = np.geomspace(x_low, x_high, 200)
    y = np.minimum(peaks.tflops, peaks.gb_s * 1e-3 * x)
    axes.plot(x, y, color="0.3", linewidth=1.5, linestyle="--" if peaks.measured else "-")
    return [float(y[0]), peaks.tflops]

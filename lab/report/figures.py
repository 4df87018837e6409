"""The slowdown curve: how many times slower than the baseline, against sequence length."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from lab.records import EVIDENCE_ORDER, Evidence, Result
from lab.report.comparisons import CLAIMS, Comparison, label
from lab.report.published import CREDIT, published
from lab.report.series import Line, lines
from lab.report.tables import device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, distinguishable with colour blindness.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MOST_TICKS = 12
_FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.25, 2.5)
_STYLE: dict[Any, object] = {
    "svg.hashsalt": "attention-lab",  # else ids differ from one run to the next
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def slowdown(
    found: Sequence[Comparison],
    gaps: Sequence[Result],
    out: Path,
    *,
    baseline: str,
    overlay: str | None,
) -> list[str]:
    """Draw slowdown.png and slowdown.svg into `out`: a panel for each level of evidence.

    Args:
        found: the comparisons to draw.
        gaps: cells that gave no time; each breaks its line and is marked at the lower edge.
        out: an existing directory.
        baseline: the name of the baseline, for the axis.
        overlay: "published" draws the published v5e curve beside ours.

    Returns:
        the names of the files written.
    """
    levels = [
        level for level in reversed(EVIDENCE_ORDER) if any(c.evidence == level for c in found)
    ]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 5.2 * len(levels)), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(nrows=len(levels), squeeze=False)[:, 0]
        for axes, level in zip(panels, levels, strict=True):
            shown = [c for c in found if c.evidence == level]
            _panel(axes, shown, _gaps_of(level, found, gaps, baseline), baseline, overlay)
        if overlay == "published":
            figure.supxlabel(CREDIT, x=0.99, ha="right", fontsize=8, color="0.4")
        figure.savefig(out / "slowdown.png", dpi=150, metadata={"Software": None})
        figure.savefig(out / "slowdown.svg", metadata={"Date": None})
    return ["slowdown.png", "slowdown.svg"]


def claims(found: Sequence[Comparison]) -> list[str]:
    """What the comparisons of each level may claim, strongest level first."""
    levels = reversed(EVIDENCE_ORDER)
    by_level = [[c for c in found if c.evidence == level] for level in levels]
    return [_claim(shown) for shown in by_level if shown]


def _gaps_of(
    level: Evidence, found: Sequence[Comparison], gaps: Sequence[Result], baseline: str
) -> list[Result]:
    """The gaps of one panel: beside what the same kernel gave elsewhere, or in the weakest."""
    chosen = []
    for gap in gaps:
        of_task = [c for c in found if c.kernel.task == gap.task]
        of_kernel = [c for c in of_task if label(c.kernel) == label(gap)]
        weakest = sorted({c.evidence for c in of_task}, key=EVIDENCE_ORDER.index)[:1]
        if label(gap) == baseline:
            levels = {c.evidence for c in of_task}
        else:
            levels = {c.evidence for c in of_kernel} or set(weakest)
        if level in levels:
            chosen.append(gap)
    return chosen


def _claim(shown: Sequence[Comparison]) -> str:
    level = shown[0].evidence
    if level != "measured":
        return CLAIMS[level]
    machines = sorted({device(c.kernel) for c in shown})
    on_cpu = any(c.kernel.environment.platform == "cpu" for c in shown)
    return f"measured on {', '.join(machines)}" + (": not a TPU" if on_cpu else "")


def _panel(
    axes: Axes,
    found: Sequence[Comparison],
    gaps: Sequence[Result],
    baseline: str,
    overlay: str | None,
) -> None:
    drawn = lines(found, gaps, baseline)
    for number, line in enumerate(drawn):
        _draw(axes, line, _COLOURS[number % len(_COLOURS)])
    ratios = [1.0, *(c.slowdown for c in found)]
    if overlay == "published":
        _draw_published(axes)
        ratios += [case.slowdown for case in published()]
    room = max(max(ratios) / min(ratios), 1.5) ** 0.15
    # Whiskers are shown up to half as far again: a few noisy samples must not flatten the curve.
    ends = [end for c in found if c.interval for end in (c.interval.lo, c.interval.hi)]
    lowest = max(min([*ratios, *ends]), min(ratios) / 1.5)
    highest = min(max([*ratios, *ends]), max(ratios) * 1.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_ylim(lowest / room, highest * room**2)
    if max(ratios) / min(ratios) < 2:  # powers of two alone would leave the axis bare
        axes.set_yticks([y for y in _FINE_TICKS if lowest / room < y < highest * room**2])
    _dress(axes, found, baseline)
    lengths = sorted({seq for line in drawn for seq in (*line.points, *line.lost)})
    if not overlay and len(lengths) <= _MOST_TICKS:
        axes.set_xticks(lengths, [str(n) for n in lengths])


def _draw(axes: Axes, line: Line, colour: str) -> None:
    lengths = sorted({*line.points, *line.lost})
    slowdowns = {n: [c.slowdown for c in line.points.get(n, [])] for n in lengths}
    centres = [statistics.median(slowdowns[n]) if slowdowns[n] else math.nan for n in lengths]
    dash = "-" if line.scope == "attention" else "--"
    if line.points:
        axes.plot(lengths, centres, dash, marker="o", color=colour, label=line.name)
    repeated = [(n, y) for n in lengths if len(slowdowns[n]) > 1 for y in slowdowns[n]]
    axes.plot([n for n, _ in repeated], [y for _, y in repeated], ".", color=colour, alpha=0.4)
    once = [(n, line.points[n][0].interval) for n in lengths if len(slowdowns[n]) == 1]
    whiskers = [(n, interval.lo, interval.hi) for n, interval in once if interval]
    if whiskers:
        axes.vlines(*zip(*whiskers, strict=True), color=colour, alpha=0.5)
    for seq in line.lost:  # a line through the panel: the mark at its foot is no ratio below 1
        axes.axvline(seq, color=colour, linewidth=0.8, linestyle=":", alpha=0.7)
    if line.lost:
        axes.plot(
            line.lost,
            [0.02] * len(line.lost),
            "x",
            color=colour,
            markersize=9,
            markeredgewidth=2,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            label=f"{line.name}: no result",
        )


def _draw_published(axes: Axes) -> None:
    for scope, dash in (("attention", "-"), ("softmax", "--")):
        cases = sorted((c for c in published() if c.scope == scope), key=lambda c: c.seq)
        axes.plot(
            [c.seq for c in cases],
            [c.slowdown for c in cases],
            dash,
            marker=".",
            color="0.6",
            linewidth=1.2,
            label=f"{CREDIT.split(',')[0]}, {scope}",
        )


def _dress(axes: Axes, found: Sequence[Comparison], baseline: str) -> None:
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.annotate(
        f"as fast as {baseline}", (0.99, 1.0), xycoords=("axes fraction", "data"), fontsize=8,
        ha="right", va="bottom", color="0.3",
    )  # fmt: skip
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.margins(x=0.06)
    axes.set_xlabel("sequence length (keys)")
    axes.set_ylabel(f"slowdown: time / time of {baseline}")
    axes.grid(visible=True, which="major", color="0.9")
    machines = sorted({device(c.kernel) for c in found})
    axes.set_title(f"Slowdown against {baseline} on {', '.join(machines)}", loc="left")
    axes.text(
        0.01,
        0.985,
        _claim(found),
        transform=axes.transAxes,
        va="top",
        fontsize=11,
        fontweight="bold",
        color="0.2" if found[0].evidence == "measured" else "#8a1c00",
        bbox={"facecolor": "white", "edgecolor": "0.7", "boxstyle": "round,pad=0.3"},
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=9)

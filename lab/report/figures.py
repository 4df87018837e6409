"""The slowdown curve: how many times slower than the baseline, against sequence length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from lab.records import EVIDENCE_ORDER, Evidence, Result
from lab.report.comparisons import Comparison, label
from lab.report.published import CREDIT, published
from lab.report.tables import device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLAIMS: Mapping[Evidence, str] = {
    "interpreted": "interpreted: not a performance claim",
    "compiled": "compiled: no time was measured or estimated",
    "estimated": "estimated by the compiler: not a measurement",
    "measured": "measured",
}
# Okabe and Ito's palette, distinguishable with colour blindness.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLE: dict[Any, object] = {
    "svg.hashsalt": "attention-lab",  # else ids differ from one run to the next
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True)
class _Series:
    """One line of the figure."""

    kernel: str
    scope: str
    extra: str  # what else tells it apart: direction, dtype, shape, device, where they vary

    def __str__(self) -> str:
        return f"{self.kernel}, {self.scope}" + (f" ({self.extra})" if self.extra else "")


def slowdown(
    found: Sequence[Comparison],
    gaps: Sequence[Result],
    out: Path,
    *,
    baseline: str,
    overlay: str | None,
) -> list[str]:
    """Draw slowdown.png and slowdown.svg into `out`.

    Args:
        found: the comparisons to draw.
        gaps: cells that gave no time; each breaks its line and is marked at the lower edge.
        out: an existing directory.
        baseline: the name of the baseline, for the axis.
        overlay: "published" draws the published v5e curve beside ours.

    Returns:
        the names of the files written.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw(axes, found, gaps, baseline)
        if overlay == "published":
            _draw_published(axes)
        _dress(axes, found, gaps, baseline)
        figure.savefig(out / "slowdown.png", dpi=150, metadata={"Software": None})
        figure.savefig(out / "slowdown.svg", metadata={"Date": None})
    return ["slowdown.png", "slowdown.svg"]


def weakest(found: Sequence[Comparison]) -> Evidence:
    """The weakest level among comparisons: what the whole figure may claim."""
    return min((c.evidence for c in found), key=EVIDENCE_ORDER.index)


def _draw(axes: Axes, found: Sequence[Comparison], gaps: Sequence[Result], baseline: str) -> None:
    varying = _varying([c.kernel for c in found])
    lines: dict[_Series, dict[int, Comparison]] = defaultdict(dict)
    for comparison in found:
        lines[_series(comparison.kernel, varying)][comparison.kernel.cell.seq] = comparison
    for number, (series, points) in enumerate(sorted(lines.items(), key=lambda x: str(x[0]))):
        missing = {
            gap.cell.seq
            for gap in gaps
            if gap.cell.scope == series.scope and label(gap) in (series.kernel, baseline)
        }
        lengths = sorted({*points, *missing})
        ratios = [points[n].slowdown if n in points else float("nan") for n in lengths]
        colour = _COLOURS[number % len(_COLOURS)]
        dash = "-" if series.scope == "attention" else "--"
        axes.plot(lengths, ratios, dash, marker="o", color=colour, label=str(series))
        whiskers = [(n, c) for n, c in sorted(points.items()) if c.interval]
        for n, comparison in whiskers:
            assert comparison.interval is not None
            axes.vlines(n, comparison.interval.lo, comparison.interval.hi, color=colour, alpha=0.5)
        lost = sorted(missing - set(points))
        if lost:
            axes.plot(
                lost,
                [0.02] * len(lost),
                "x",
                color=colour,
                markersize=9,
                markeredgewidth=2,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                label=f"{series}: no result",
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


def _dress(axes: Axes, found: Sequence[Comparison], gaps: Sequence[Result], baseline: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.annotate(
        f" as fast as {baseline}", (1, 1.0), xycoords=("axes fraction", "data"), fontsize=8,
        ha="right", va="bottom", color="0.3",
    )  # fmt: skip
    lengths = sorted({c.kernel.cell.seq for c in found} | {gap.cell.seq for gap in gaps})
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.margins(x=0.06, y=0.12)
    axes.set_xlabel("sequence length (keys)")
    axes.set_ylabel(f"slowdown: time / time of {baseline}")
    axes.grid(visible=True, which="major", color="0.9")
    level = weakest(found)
    machines = sorted({device(c.kernel) for c in found})
    axes.set_title(f"Slowdown against {baseline} on {', '.join(machines)}", loc="left")
    axes.text(
        0.01,
        0.985,
        CLAIMS[level],
        transform=axes.transAxes,
        va="top",
        fontsize=11,
        fontweight="bold",
        color="#8a1c00" if level != "measured" else "0.2",
        bbox={"facecolor": "white", "edgecolor": "0.7", "boxstyle": "round,pad=0.3"},
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=9)


def _varying(results: Sequence[Result]) -> tuple[str, ...]:
    """The coordinates, beyond kernel and scope, in which the drawn cells differ."""
    names = ("direction", "dtype", "shape")
    varying = [n for n in names if len({getattr(r.cell, n) for r in results}) > 1]
    if len({device(r) for r in results}) > 1:
        varying.append("device")
    return tuple(varying)


def _series(result: Result, varying: Sequence[str]) -> _Series:
    extra = [device(result) if n == "device" else getattr(result.cell, n) for n in varying]
    return _Series(label(result), result.cell.scope, ", ".join(extra))

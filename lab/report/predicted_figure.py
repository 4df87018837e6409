"""Predicted slowdown curves beside the published v5e curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lab.report.published import CREDIT
from lab.report.validation import Point, ratios

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE: dict[Any, object] = {
    "svg.hashsalt": "attention-lab",  # else ids differ from one run to the next
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FAINT: dict[str, Any] = {"linewidth": 1, "alpha": 0.55, "marker": "."}
_COLOURS = {"softmax": "#D55E00", "attention": "#0072B2"}  # Okabe and Ito


def draw(points: Sequence[Point], dispatch_ms: float, out: Path) -> list[str]:
    """Draw predicted.png and predicted.svg into `out`: times on the left, slowdowns on the right.

    Args:
        points: estimates beside published times.
        dispatch_ms: added to every estimate, and said so on the figure.
        out: an existing directory.

    Returns:
        the names of the files written.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 5), layout="constrained")
        FigureCanvasAgg(figure)
        comparable = bool(ratios(points, dispatch_ms))
        panels = figure.subplots(1, 2 if comparable else 1, squeeze=False)[0]
        _times(panels[0], points, dispatch_ms)
        if comparable:
            _slowdowns(panels[1], points, dispatch_ms)
        lengths = sorted({p.seq for p in points})
        for axes in panels:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(lengths, [str(n) for n in lengths])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 7.0)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_xlabel("sequence length (keys)")
            axes.grid(visible=True, which="major", color="0.9")
            axes.legend(frameon=False, fontsize=8, loc="upper left")
        figure.suptitle(
            f"Estimated by the compiler, not measured: device estimate + {dispatch_ms:.3g} ms host "
            f"dispatch, v5e\nThin lines: {CREDIT}",
            fontsize=10,
            x=0.01,
            ha="left",
        )
        figure.savefig(out / "predicted.png", dpi=150, metadata={"Software": None})
        figure.savefig(out / "predicted.svg", metadata={"Date": None})
    return ["predicted.png", "predicted.svg"]


def _times(axes: Axes, points: Sequence[Point], dispatch_ms: float) -> None:
    for kernel, scope in sorted({(p.kernel, p.scope) for p in points}):
        line = [p for p in points if (p.kernel, p.scope) == (kernel, scope)]
        dash = "--" if kernel == "xla" else "-"
        lengths = [p.seq for p in line]
        axes.plot(lengths, [p.published_ms for p in line], dash, color=_COLOURS[scope], **_FAINT)
        predicted = [p.predicted_ms(dispatch_ms) for p in line]
        label = f"{kernel}, {scope}"
        axes.plot(lengths, predicted, dash, color=_COLOURS[scope], marker="o", label=label)
    axes.set_ylabel("time (ms)")
    axes.set_title("Predicted and published times", loc="left", fontsize=10)


def _slowdowns(axes: Axes, points: Sequence[Point], dispatch_ms: float) -> None:
    found = ratios(points, dispatch_ms)
    for kernel, scope in sorted({(r.kernel, r.scope) for r in found}):
        line = [r for r in found if (r.kernel, r.scope) == (kernel, scope)]
        lengths = [r.seq for r in line]
        axes.plot(lengths, [r.published for r in line], color=_COLOURS[scope], **_FAINT)
        predicted = [r.predicted for r in line]
        label = f"{kernel}, {scope}"
        axes.plot(lengths, predicted, color=_COLOURS[scope], marker="o", label=label)
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.set_ylabel("slowdown: time / time of xla")
    axes.set_title("Predicted and published slowdowns", loc="left", fontsize=10)

"""Small panels on one sheet: styles, axes, legend and notes that every figure shares."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from lab.report.comparisons import CLAIMS
from lab.report.series import MOST_SERIES, Panel, Series, Sheet
from lab.report.tables import device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: dict[Any, object] = {
    "svg.hashsalt": "attention-lab",  # else ids differ from one run to the next
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Okabe and Ito's palette, distinguishable with colour blindness, and a grey.
_COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31",
)  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (8, 2)),
    (0, (2, 3)), (0, (6, 1, 1, 1, 1, 1)),
)  # fmt: skip
assert len(_COLOURS) == len(_MARKERS) == len(_DASHES) == MOST_SERIES
_PER_ROW = 3
_WIDTH, _HEIGHT = 4.4, 3.5  # inches of a panel
_SHIFT, _SPREAD = 0.022, 0.09  # of the axis: between two series, and from first to last


@dataclass(frozen=True)
class Look:
    """How one series is drawn, in every panel."""

    colour: str
    marker: str
    dash: Any


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A colour, marker and dash for each name; no two share any of them."""
    return {
        name: Look(_COLOURS[i], _MARKERS[i], _DASHES[i])
        for i, name in enumerate(list(names)[:MOST_SERIES])
    }


def claim(panel: Panel) -> str:
    """What the times of a panel may claim."""
    proof = "; values not proved" if any(p.unproved for p in panel.points) else ""
    if panel.evidence != "measured":
        return CLAIMS[panel.evidence] + proof
    machines = sorted({device(p.result) for p in panel.points})
    on_cpu = any(p.result.environment.platform == "cpu" for p in panel.points)
    return f"measured on {', '.join(machines)}" + (": not a TPU" if on_cpu else "")


def draw(
    sheet: Sheet,
    path: Path,
    title: str,
    panel: Callable[[Axes, Panel, Mapping[str, Look]], None],
    *,
    extra: Sequence[Line2D] = (),
    notes: Sequence[str] = (),
    columns: int = _PER_ROW,
    width: float = _WIDTH,
    height: float = _HEIGHT,
) -> list[str]:
    """Draw every panel of a sheet and save it as PNG and SVG.

    Args:
        sheet: at least one panel.
        path: without suffix, in an existing directory.
        title: stands above all the panels.
        panel: draws one of them.
        extra: legend entries beside the series.
        notes: lines above the legend.
        columns: the most panels side by side.
        width: of a panel, in inches.
        height: of a panel, in inches.

    Returns:
        the names of the files written.
    """
    columns = min(columns, len(sheet.panels))
    rows = math.ceil(len(sheet.panels) / columns)
    styles = looks(sheet.names)
    handles = [
        Line2D(
            [], [], color=look.colour, marker=look.marker, linestyle=look.dash,
            label=plain(textwrap.shorten(name, 90, placeholder="...")),
        )
        for name, look in styles.items()
    ]  # fmt: skip
    handles += extra
    width = max(width * columns, 6.4)
    longest = max(len(str(handle.get_label())) for handle in handles)
    ncols = max(1, min(4, int(width * 13 / (longest + 7))))
    said = [line for note in notes for line in textwrap.wrap(note, int(width * 15))]
    below = 0.2 * (math.ceil(len(handles) / ncols) + len(said)) + 0.5
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height * rows + below + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(nrows=rows, ncols=columns, squeeze=False).ravel()
        for axes, one in zip(grid, sheet.panels, strict=False):
            panel(axes, one, styles)
            _title(axes, one, int(width / columns * 12))
        for axes in grid[len(sheet.panels) :]:
            axes.set_axis_off()
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11)
        legend = figure.legend(
            handles=handles,
            loc="outside lower left",
            ncols=ncols,
            frameon=False,
            fontsize=8.5,
            handlelength=4,
            title="\n".join(map(plain, said)) or None,
            title_fontsize=8,
            alignment="left",
        )
        legend.get_title().set_color("0.35")
        figure.draw_without_rendering()  # lays out; each file would do so again
        figure.set_layout_engine("none")
        figure.savefig(path.with_suffix(".png"), dpi=130, metadata={"Software": None})
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return [path.with_suffix(".png").name, path.with_suffix(".svg").name]


def _title(axes: Axes, panel: Panel, width: int) -> None:
    """What sets the panel apart, and under it what its times may claim."""
    head = "\n".join(textwrap.wrap(panel.title, width))
    said = "\n".join(textwrap.wrap(claim(panel), width))
    colour = "0.35" if panel.evidence == "measured" and "not proved" not in said else "#8a1c00"
    axes.set_title(plain(said), loc="left", fontsize=8.5, color=colour, fontweight="bold")
    if head:
        axes.annotate(
            plain(head), (0, 1), (0, 8 + 11.5 * (said.count("\n") + 1)),
            xycoords="axes fraction", textcoords="offset points", fontsize=9.5,
        )  # fmt: skip


def curve(axes: Axes, series: Series, look: Look, shift: float, cap: tuple[float, float]) -> None:
    """One series over length: its line, its interval as a band, a whisker at each point.

    An interval that goes beyond `cap` ends there, in an arrow head.
    """
    centres = series.centres()
    lengths = [n * shift for n in centres]
    axes.plot(
        lengths, list(centres.values()), linestyle=look.dash, marker=look.marker,
        color=look.colour, markersize=5, linewidth=1.5,
    )  # fmt: skip
    ends = {n: _ends(points) for n, points in series.points.items()}
    for run in _runs([n for n in centres if ends[n]], list(centres)):
        lo, hi = zip(*(ends[n] or (0, 0) for n in run), strict=True)
        axes.fill_between([n * shift for n in run], lo, hi, color=look.colour, alpha=0.13, lw=0)
    for n, end in ends.items():
        if end:
            lo_end, hi_end = max(end[0], cap[0]), min(end[1], cap[1])
            axes.vlines(n * shift, lo_end, hi_end, color=look.colour, linewidth=1.2, alpha=0.8)
            beyond = ((end[0] < cap[0], lo_end, "v"), (end[1] > cap[1], hi_end, "^"))
            for is_beyond, at, head in beyond:
                if is_beyond:
                    axes.plot(n * shift, at, head, color=look.colour, mfc="white", clip_on=False)
        if len(series.points[n]) > 1:
            values = [p.value for p in series.points[n]]
            axes.plot([n * shift] * len(values), values, ".", color=look.colour, alpha=0.5)
    for n in series.lost:
        axes.plot(
            n * shift, 0.025, "x", color=look.colour, markersize=8, markeredgewidth=2,
            transform=axes.get_xaxis_transform(), clip_on=False,
        )  # fmt: skip


NO_RESULT = Line2D([], [], color="0.3", marker="x", markersize=8, markeredgewidth=2,
                   linestyle="none", label="no result")  # fmt: skip


BEYOND = Line2D([], [], color="0.3", marker="^", mfc="white", linestyle="none",
                label="interval goes on beyond the panel")  # fmt: skip


def caps(points: Sequence[Any]) -> tuple[float, float]:
    """Where intervals are cut: a few noisy samples must not flatten what the curve shows."""
    values = [p.value for p in points]
    # The band of an estimate is no noise: it is never cut.
    bands = [end for p in points if p.result.compile for end in (p.lo, p.hi) if end is not None]
    return min([*(v / 2 for v in values), *bands]), max([*(v * 2 for v in values), *bands])


def is_beyond(points: Sequence[Any], cap: tuple[float, float]) -> bool:
    """Whether an interval is cut."""
    ends = [end for p in points for end in (p.lo, p.hi) if end is not None]
    return any(end < cap[0] or end > cap[1] for end in ends)


def within(points: Sequence[Any], cap: tuple[float, float]) -> list[float]:
    """Values and ends of intervals, cut: what an axis must hold."""
    ends = [end for p in points for end in (p.lo, p.hi) if end is not None]
    return [*(p.value for p in points), *(min(max(end, cap[0]), cap[1]) for end in ends)]


def _ends(points: Sequence[Any]) -> tuple[float, float] | None:
    """The interval of a single point; repetitions show themselves."""
    if len(points) != 1 or points[0].lo is None or points[0].hi is None:
        return None
    return points[0].lo, points[0].hi


def _runs(wanted: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Neighbouring lengths that all have an interval: a band does not bridge a gap."""
    runs: list[list[int]] = []
    for n in lengths:
        if (
            n in wanted
            and runs
            and runs[-1]
            and lengths.index(runs[-1][-1]) + 1 == lengths.index(n)
        ):
            runs[-1].append(n)
        elif n in wanted:
            runs.append([n])
    return [run for run in runs if len(run) > 1]


def shifts(names: Sequence[str], lengths: Sequence[int]) -> dict[str, float]:
    """A factor for the lengths of each series, so that equal points lie side by side."""
    span = max(max(lengths) / min(lengths), 4.0)
    middle = (len(names) - 1) / 2
    step = min(_SHIFT, _SPREAD / len(names)) if names else 0
    return {name: span ** (step * (i - middle)) for i, name in enumerate(names)}


def lengths_of(sheet: Sheet) -> list[int]:
    """Every length of a sheet."""
    found = {n for panel in sheet.panels for s in panel.series for n in (*s.points, *s.lost)}
    return sorted(found)


def length_axis(axes: Axes, lengths: Sequence[int]) -> None:
    """Sequence length to base 2, labelled at lengths that were run and do not crowd."""
    axes.set_xscale("log", base=2)
    span = max(math.log2(lengths[-1] / lengths[0]), 1.0)
    axes.set_xlim(lengths[0] / 2 ** (0.09 * span), lengths[-1] * 2 ** (0.09 * span))
    kept: list[int] = []
    for n in reversed(lengths):
        if not kept or math.log2(kept[-1] / n) > span / 9:
            kept.append(n)
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("sequence length (keys)")
    axes.grid(visible=True, color="0.92")
    axes.set_axisbelow(True)


def ratio_axis(axis: Any, low: float, high: float) -> None:  # noqa: ANN401 - x or y axis
    """Ticks of a logarithmic axis from low to high that people can read."""
    if high / low < 4:
        ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    else:
        base = 2 if high / low < 130 else 10
        first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
        step = max(1, (last - first) // 6)
        ticks = [float(base) ** n for n in range(first, last + 1, step)]
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high and t > 0]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.4g}"))


def limits(values: Iterable[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis that holds all the values, with room."""
    found = [value for value in values if value > 0]
    low, high = min(found), max(found)
    room = max(high / low, 1.5) ** 0.08
    return low / room, high * room


def plain(text: str) -> str:
    """Text that is drawn as it stands: no mathematics, no letters that the font lacks."""
    kept = text.encode("latin-1", "replace").decode("latin-1")
    return kept.replace("$", r"\$")

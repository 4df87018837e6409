"""Which unit of the chip a compiled program keeps busy: kernel by unit, from executed schedules."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lab.records import CompileSection, Result
from lab.report.latency_figure import points_of
from lab.report.panels import STYLE, claim, plain
from lab.report.series import Panel, Point, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNITS = ("MXU", "VALU", "EUP", "XLU", "VLOAD", "VSTORE", "SALU", "HBM")
"""Matrix products; vector arithmetic; exp; transposes and reductions; vector memory; scalars."""

STALLS = ("waits for\ncopies", "waits for\nresults")

_NOTE = (
    "Share of the cycles of the executed schedule, over the loops of the program at the length "
    "named; a unit near 100% binds. XLA's ops count by the cost model in a time, which is longer "
    "than their schedule. Last two: cycles in which nothing is issued, since a copy, or an earlier "
    "instruction's result, is not there yet."
)


def utilisation(results: Sequence[Result], out: Path) -> list[str]:
    """Draw utilisation.png and utilisation.svg: a heat map for each panel of the latency's figure.

    Args:
        results: records of any task; estimated ones of task=compile, whose loops are known, count.
        out: an existing directory.

    Returns:
        the names of the files written; none without such records.
    """
    known = [p for p in points_of(results) if p.result.compile and p.result.compile.loops]
    if not known:
        return []
    shown = sheet(known).panels
    rows = [_rows(panel) for panel in shown]
    heights = [0.34 * len(names) + 1.15 for names, _ in rows]
    with mpl.rc_context(STYLE):
        said = textwrap.wrap(_NOTE, 110)
        figure = Figure(figsize=(8.6, sum(heights) + 0.2 * len(said) + 0.5), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, panel, (names, shares) in zip(grid, shown, rows, strict=True):
            _heat(axes, panel, names, shares)
        figure.suptitle("Utilisation by unit", x=0.01, ha="left", fontsize=11)
        figure.supxlabel("\n".join(said), x=0.01, ha="left", fontsize=8, color="0.35")
        figure.savefig(out / "utilisation.png", dpi=130, metadata={"Software": None})
        figure.savefig(out / "utilisation.svg", metadata={"Date": None})
    return ["utilisation.png", "utilisation.svg"]


def shares(section: CompileSection) -> list[float]:
    """Of the cycles of a program's loops: the share of each unit, and of each kind of stall."""
    total = sum(loop.cycles for loop in section.loops)
    busy = [sum(loop.cycles * loop.use.get(unit, 0.0) for loop in section.loops) for unit in UNITS]
    waits = sum(loop.cycles * loop.copy_waits for loop in section.loops)
    latency = sum(loop.cycles * loop.latency for loop in section.loops)
    return [cycles / total for cycles in (*busy, waits, latency)]


def _rows(panel: Panel) -> tuple[list[str], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """A name and the shares for each kernel, at the longest length that most of them have."""
    lengths = [n for one in panel.series for n in one.points]
    length = max(set(lengths), key=lambda n: (lengths.count(n), n))
    at = [(one.name, one.points[length][0]) for one in panel.series if length in one.points]
    return [_name(name, p) for name, p in at], np.array([_shares(p) for _, p in at])


def _name(name: str, p: Point) -> str:
    return f"{textwrap.shorten(name, 44, placeholder='...')}, {p.result.cell.seq}: {p.value:.3g} ms"


def _shares(p: Point) -> list[float]:
    assert p.result.compile is not None
    return shares(p.result.compile)


def _heat(
    axes: Axes,
    panel: Panel,
    names: Sequence[str],
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    stalls = np.zeros(values.shape, bool)
    stalls[:, len(UNITS) :] = True
    # Two colours: a busy unit and an idle chip are not the same news.
    for hidden, colours in ((stalls, "Blues"), (~stalls, "Oranges")):
        axes.imshow(np.ma.array(values, mask=hidden), colours, vmin=0, vmax=1.1, aspect="auto")
    for row, column in np.ndindex(*values.shape):
        share = values[row, column]
        axes.text(
            column, row, f"{share:.0%}", ha="center", va="center", fontsize=8,
            color="white" if share > 0.65 else "0.15",
        )  # fmt: skip
    axes.axvline(len(UNITS) - 0.5, color="white", linewidth=4)
    axes.set_xticks(range(values.shape[1]), [*UNITS, *STALLS], fontsize=8)
    axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = f"{panel.title}\n" if panel.title else ""
    axes.set_title(plain(title + claim(panel)), loc="left", fontsize=8.5, color="#8a1c00")

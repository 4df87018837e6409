"""The audit's two figures: a candidate x check heatmap, and the curves of the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

mpl.rcParams["svg.hashsalt"] = "attention-lab"  # the same bytes for the same data
STYLE = {"units": ("this lab: gates A and B", "C0", 2.5)}
LABELS = {
    "allclose_1e-2": ("allclose 1e-2", "C1", 1.2),
    "flash_2x": ("FlashAttention 2x", "C2", 1.2),
    "cosine_0.99": ("cosine 0.99", "C3", 1.2),
}


def heatmap(table: pd.DataFrame, path: Path) -> None:
    """Which checks failed for which candidate; darker is more findings."""
    rows, columns = table.shape
    figure = Figure(figsize=(3.5 + 0.28 * columns, 1.8 + 0.16 * rows), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.log1p(table.to_numpy(float)), aspect="auto", cmap="Blues")
    most = int(table.to_numpy().max())
    ticks = [n for n in (0, 1, 3, 10, 30, 100, 300, 1000, 3000) if n <= max(most, 1)]
    bar = figure.colorbar(image, ax=axes, label="findings", shrink=0.5, ticks=np.log1p(ticks))
    bar.ax.set_yticklabels([str(n) for n in ticks])
    axes.set_xticks(range(columns), table.columns, rotation=90, fontsize=7)
    axes.set_yticks(range(rows), table.index, fontsize=6)
    axes.set_title("Checks that failed, by candidate", fontsize=9)
    _save(figure, path)


def curves(table: pd.DataFrame, path: Path) -> None:
    """Trials rejected as each rule's threshold is tightened (left) or loosened (right)."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, kind, title in zip(
        figure.subplots(1, 2),
        ("known-bad", "control"),
        ("known-bad trials rejected (should be 1)", "control trials rejected (should be 0)"),
        strict=True,
    ):
        for rule, (label, colour, width) in {**STYLE, **LABELS}.items():
            line = table[(table.rule == rule) & (table.kind == kind)]
            axes.plot(line.multiple, line.rejected, color=colour, lw=width, label=label)
        axes.axvline(1, color="0.6", lw=0.8, ls=":")
        axes.set_xscale("log")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("threshold, as a multiple of the rule's own")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.25)
    figure.axes[0].legend(fontsize=8, loc="lower left")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=130)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})

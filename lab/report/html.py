"""report.html: one self-contained page of a sweep, which a browser opens from the disk.

Tables sort by a click on a heading; curves stand inline as SVG; every row links to its raw record
by a relative path. Nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from lab.report import figures, tables
from lab.report.comparisons import CLAIMS, Comparison
from lab.report.host import HostPeaks
from lab.report.jinja import PAGES
from lab.report.load import Loaded
from lab.report.page import systems

_FIGURES = ("slowdown", "latency", "roofline", "utilisation", "predicted")
_COMPARISONS = (
    "scope", "direction", "dtype", "seq", "q_len", "batch", "q_heads", "kv_heads", "head_dim",
    "kernel", "kernel_options", "baseline", "baseline_ms", "kernel_ms", "slowdown", "slowdown_lo",
    "slowdown_hi", "verdict", "method", "evidence", "values", "device_kind", "flags",
)  # fmt: skip
_CELLS = (
    "task", "kernel", "candidate", "scope", "direction", "dtype", "seq", "q_len", "batch",
    "q_heads", "kv_heads", "head_dim", "status", "evidence", "median_ms", "p5_ms", "p95_ms",
    "dispatch_floor_ms", "device_ms", "estimated_ms", "floor_ms", "times_floor", "achieved_tflops",
    "achieved_gb_s", "samples", "verdict", "score", "checks_failed", "values", "device_kind",
    "flags", "reason",
)  # fmt: skip


def render(
    loaded: Loaded,
    found: Sequence[Comparison],
    out: Path,
    files: Sequence[str],
    *,
    baseline: str,
    peaks: Mapping[str, HostPeaks],
) -> str:
    """The page; the same records give the same text.

    Args:
        loaded: the records.
        found: what was compared.
        out: where the page will stand, beside the figures.
        files: what was written there.
        baseline: the kernel that others are compared with.
        peaks: measured peaks of processors, by their model.
    """
    links = {id(entry.result): entry.link(out) for entry in loaded.entries}
    svgs = {
        name: _inline((out / f"{name}.svg").read_text(encoding="utf-8"), name)
        for name in _FIGURES
        if f"{name}.svg" in files
    }
    rows = tables.cells(loaded.entries, peaks)
    return PAGES.get_template("report.html").render(
        baseline=baseline,
        cells=len(loaded.entries),
        claims=figures.claims(found),
        levels=CLAIMS,
        systems=systems([entry.result for entry in loaded.entries]),
        figures=svgs,
        comparisons=_table(tables.comparisons(found), _COMPARISONS),
        comparison_records=[(links[id(c.baseline)], links[id(c.kernel)]) for c in found],
        rows=_table(rows, _CELLS),
        row_records=list(links.values()),
        skipped=loaded.skipped,
    )


def _table(frame: pd.DataFrame, columns: Sequence[str]) -> dict[str, Any]:
    """The columns that say something, and the rows as plain values."""
    kept = [name for name in columns if name in frame and frame[name].notna().any()]
    kept = [name for name in kept if (frame[name].astype(str) != "").any()]
    plain = frame[kept].astype(object).where(frame[kept].notna(), None)
    return {"columns": kept, "rows": plain.to_numpy().tolist()}


def _inline(svg: str, name: str) -> Markup:
    """An SVG without its prologue, its identifiers made the figure's own."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    return Markup(body)  # noqa: S704 - drawn by this package, its texts escaped by matplotlib

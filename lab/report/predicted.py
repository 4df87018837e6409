"""Compiled cells: what each source expects, and how that stands beside the published v5e times.

Device times are the compiler's. Where they stand beside a published time the host's dispatch is
added in a column of its own, as one constant (DISPATCH_MS, fitted in evidence/tpu-v5e-compiled).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lab import records
from lab.records import CompileSection, Result
from lab.report.comparisons import VALUES, Comparison, compare, label, proof, time_ms
from lab.report.jinja import PAGES
from lab.report.published import CREDIT, published
from lab.report.tables import arrays
from lab.report.validation import Point

DISPATCH_MS = 0.1694
"""Host dispatch of the published v5e runs: see evidence/tpu-v5e-compiled/README.md."""
LEAST_POINTS = 2  # for a curve
PUBLISHED_KERNELS = {"xla": "xla_ms", "pallas-8row": "pallas_ms"}
_SOURCES = ("cost_model_ms", "static_profile_ms", "schedule_ms", "estimated_ms")


def compiled(results: Sequence[Result]) -> list[Result]:
    """The cells that were compiled for a TPU, in a fixed order."""
    found = [r for r in results if r.task == "compile" and r.compile is not None]
    return sorted(found, key=lambda r: (r.cell.scope, r.cell.seq, label(r), r.cell_id))


def write(results: Sequence[Result], out: Path, baseline: str = "xla") -> list[str]:
    """Write predicted.csv and, where published times can be compared, predicted.png and .svg.

    Args:
        results: of any task; only compiled cells are looked at.
        out: an existing directory.
        baseline: the kernel that others are compared with.

    Returns:
        the names of the files written; none without a compiled cell.
    """
    cells = compiled(results)
    for stale in ("predicted.csv", "predicted.png", "predicted.svg"):
        (out / stale).unlink(missing_ok=True)
    if not cells:
        return []
    ratios = slowdowns(cells, baseline)
    rows = [_row(result, ratios.get(result.cell_id)) for result in cells]
    text = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
    records.write_atomically(out / "predicted.csv", text)
    files = ["predicted.csv"]
    if len(against_published(cells)) >= LEAST_POINTS:
        from lab.report import predicted_figure

        files += predicted_figure.draw(against_published(cells), DISPATCH_MS, out)
    return files


def section(results: Sequence[Result], baseline: str = "xla") -> str:
    """The part of the page on compiled cells, as Markdown; empty without any."""
    cells = compiled(results)
    if not cells:
        return ""
    ratios = slowdowns(cells, baseline)
    points = against_published(cells)
    return PAGES.get_template("predicted.md").render(
        baseline=baseline,
        rows=[
            {
                **_row(result, ratios.get(result.cell_id)),
                "arrays": arrays(result),
                "band": band(ratios.get(result.cell_id)),
            }
            for result in cells
        ],
        unproved=sum(proof(result) == "not proved" for result in cells),
        points=points,
        figure=len(points) >= LEAST_POINTS,
        dispatch_ms=DISPATCH_MS,
        credit=CREDIT,
    )


def slowdowns(cells: Sequence[Result], baseline: str) -> dict[str, Comparison]:
    """Each kernel's comparison with the baseline's cell of the same case, by cell id."""
    return {found.kernel.cell_id: found for found in compare(cells, baseline)}


def against_published(cells: Sequence[Result]) -> list[Point]:
    """Estimates for cells of the published cases: v5e, forward, bf16, the published shape."""
    times = {
        (kernel, case.scope, case.seq): float(getattr(case, column))
        for case in published()
        for kernel, column in PUBLISHED_KERNELS.items()
    }
    points = []
    for result in cells:
        cell, estimated = result.cell, time_ms(result)
        same = (cell.target, cell.direction, cell.dtype, cell.shape) == (
            "v5e", "forward", "bf16", "published",
        )  # fmt: skip
        time = times.get((label(result), cell.scope, cell.seq))
        if same and cell.q_len == cell.seq and time is not None and estimated is not None:
            points.append(Point(label(result), cell.scope, cell.seq, time, estimated))
    return sorted(points, key=lambda p: (p.kernel != "xla", p.kernel, p.scope != "softmax", p.seq))


def band(found: Comparison | None) -> str:
    """The band of a comparison of estimates, or nothing."""
    if found is None or found.interval is None:
        return ""
    return f"{found.interval.lo:.2f} to {found.interval.hi:.2f}"


def _section(result: Result) -> CompileSection:
    assert result.compile is not None
    return result.compile


def _row(result: Result, found: Comparison | None) -> dict[str, object]:
    c, cell = _section(result), result.cell
    return {
        "kernel": label(result),
        "scope": cell.scope,
        "seq": cell.seq,
        "q_len": cell.q_len,
        "dtype": cell.dtype,
        "shape": cell.shape,
        "direction": cell.direction,
        "target": c.target,
        "evidence": result.evidence,
        "label": c.label,
        **{source: getattr(c, source) for source in _SOURCES},
        "no_estimate": c.no_estimate,
        "floor_ms": c.floor_ms,
        "floor_bound_by": c.floor_bound_by,
        "floor_share": c.floor_share,
        "times_floor": c.estimated_ms / c.floor_ms if c.estimated_ms else None,
        "achieved_tflops": c.achieved_tflops,
        "achieved_gb_s": c.work.hbm_bytes / c.estimated_ms * 1e-6 if c.estimated_ms else None,
        "slowdown": found.slowdown if found else None,
        "slowdown_lo": found.interval.lo if found and found.interval else None,
        "slowdown_hi": found.interval.hi if found and found.interval else None,
        "verdict": found.verdict if found else None,
        "values": VALUES[proof(result)],
        "libtpu": c.libtpu,
        "cell_id": result.cell_id,
    }

"""Compiled cells: what each source expects, and how that stands beside the published v5e times.

Device times are the compiler's. Where they stand beside a published time the host's dispatch is
added in a column of its own, as one constant (DISPATCH_MS, fitted in evidence/tpu-v5e-compiled).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from lab import records
from lab.records import CompileSection, Result
from lab.report.comparisons import label
from lab.report.published import CREDIT, published
from lab.report.validation import Point

DISPATCH_MS = 0.1694
"""Host dispatch of the published v5e runs: see evidence/tpu-v5e-compiled/README.md."""
LEAST_POINTS = 2  # for a curve
PUBLISHED_KERNELS = {"xla": "xla_ms", "pallas-8row": "pallas_ms"}
_SOURCES = ("cost_model_ms", "static_profile_ms", "schedule_ms", "estimated_ms")


@dataclass(frozen=True)
class Slowdown:
    """A kernel against the baseline by estimates of device time.

    `by_rule` takes each side as the rule does (XLA by cost model, Pallas by schedule);
    `by_schedule` executes both schedules, and is None where one has none.
    """

    kernel: Result
    by_rule: float
    by_schedule: float | None

    @property
    def claimed(self) -> float:
        """The ratio less favourable to the kernel."""
        return max(self.by_rule, self.by_schedule or self.by_rule)


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
    environment = Environment(
        loader=PackageLoader("lab.report"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, not HTML
    )
    environment.filters["ms"] = lambda value: "" if value is None else f"{value:.4g}"
    environment.filters["ratio"] = lambda value: "" if value is None else f"{value:.2f}"
    ratios = slowdowns(cells, baseline)
    points = against_published(cells)
    return environment.get_template("predicted.md").render(
        baseline=baseline,
        rows=[_row(result, ratios.get(result.cell_id)) for result in cells],
        points=points,
        figure=len(points) >= LEAST_POINTS,
        dispatch_ms=DISPATCH_MS,
        credit=CREDIT,
    )


def slowdowns(cells: Sequence[Result], baseline: str) -> dict[str, Slowdown]:
    """Each kernel's ratios to the baseline's cell of the same case, by cell id."""
    base = {_case(r): r for r in cells if label(r) == baseline and _proved_ms(r)}
    found = {}
    for result in cells:
        other = base.get(_case(result))
        mine = _section(result)
        if other is None or label(result) == baseline or not _proved_ms(result):
            continue
        theirs = _section(other)
        assert theirs.estimated_ms
        assert mine.estimated_ms
        by_schedule = None
        if _above_floor(mine.schedule_ms, mine) and _above_floor(theirs.schedule_ms, theirs):
            assert mine.schedule_ms
            assert theirs.schedule_ms
            by_schedule = mine.schedule_ms / theirs.schedule_ms
        ratio = mine.estimated_ms / theirs.estimated_ms
        found[result.cell_id] = Slowdown(result, ratio, by_schedule)
    return found


def against_published(cells: Sequence[Result]) -> list[Point]:
    """Estimates for cells of the published cases: v5e, forward, bf16, the published shape."""
    times = {
        (kernel, case.scope, case.seq): float(getattr(case, column))
        for case in published()
        for kernel, column in PUBLISHED_KERNELS.items()
    }
    points = []
    for result in cells:
        cell, estimated = result.cell, _proved_ms(result)
        same = (cell.target, cell.direction, cell.dtype, cell.shape) == (
            "v5e", "forward", "bf16", "published",
        )  # fmt: skip
        time = times.get((label(result), cell.scope, cell.seq))
        if same and cell.q_len == cell.seq and time is not None and estimated is not None:
            points.append(Point(label(result), cell.scope, cell.seq, time, estimated))
    return sorted(points, key=lambda p: (p.kernel != "xla", p.kernel, p.scope != "softmax", p.seq))


def _above_floor(total_ms: float | None, section: CompileSection) -> bool:
    return total_ms is not None and total_ms >= section.floor_ms


def _case(result: Result) -> tuple[object, ...]:
    cell = result.cell
    return (cell.scope, cell.seq, cell.q_len, cell.dtype, cell.shape, cell.direction, cell.target)


def _section(result: Result) -> CompileSection:
    assert result.compile is not None
    return result.compile


def _proved_ms(result: Result) -> float | None:
    """The estimate of a program whose values were proved."""
    section = _section(result)
    return section.estimated_ms if section.values_proved else None


def _row(result: Result, ratio: Slowdown | None) -> dict[str, object]:
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
        "values_proved": c.values_proved,
        "floor_ms": c.floor_ms,
        "floor_bound_by": c.floor_bound_by,
        "floor_share": c.floor_share,
        "slowdown_by_rule": ratio.by_rule if ratio else None,
        "slowdown_by_schedule": ratio.by_schedule if ratio else None,
        "slowdown_claimed": ratio.claimed if ratio else None,
        "libtpu": c.libtpu,
        "cell_id": result.cell_id,
    }

"""cells.csv and comparisons.csv, as data frames."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lab.cells import expectations
from lab.records import Result
from lab.report.comparisons import Comparison, kernel_options, label
from lab.report.load import Entry


def cells(entries: Sequence[Entry]) -> pd.DataFrame:
    """A row a cell, failed ones too."""
    return pd.DataFrame([_cell(entry) for entry in entries], columns=list(_CELL_COLUMNS))


_ARRAYS = ("batch", "q_heads", "kv_heads", "head_dim", "causal", "padding")
_CELL_COLUMNS = (
    "cell_id",
    "task",
    "status",
    "reason",
    "surprises",
    "evidence",
    "kernel",
    "kernel_options",
    "candidate",
    "scope",
    "seq",
    "q_len",
    "dtype",
    "shape",
    "batch",
    "q_heads",
    "kv_heads",
    "head_dim",
    "causal",
    "padding",
    "direction",
    "target",
    "seed",
    "regime",
    "interpret",
    "median_ms",
    "estimated_ms",
    "floor_ms",
    "checks_passed",
    "checks_failed",
    "score",
    "max_score",
    "verdict",
    "expected",
    "fault_class",
    "device_kind",
    "directory",
)


def _cell(entry: Entry) -> dict[str, object]:
    result = entry.result
    row: dict[str, object] = {
        "cell_id": result.cell_id,
        "status": result.status,
        "reason": result.reason,
        "surprises": "; ".join(expectations.surprises(result)),
        "evidence": result.evidence,
        "kernel_options": kernel_options(result),
        "seed": result.seed,
        "regime": result.regime,
        "interpret": result.interpret,
        "device_kind": result.environment.device_kind,
        "directory": entry.directory,
        **result.cell.model_dump(),
        # An override such as shape.head_dim=64 leaves the shape's name as it was.
        **{name: result.config["shape"].get(name) for name in _ARRAYS},
    }
    return {**row, **_section(result)}


def _section(result: Result) -> dict[str, object]:
    if result.benchmark:
        return {"median_ms": result.benchmark.median_ms}
    if result.compile:
        return {name: getattr(result.compile, name) for name in ("estimated_ms", "floor_ms")}
    if result.correctness:
        passed = [check.passed for check in result.correctness.checks]
        return {"checks_passed": sum(passed), "checks_failed": len(passed) - sum(passed)}
    if result.rubric:
        names = ("score", "max_score", "verdict", "expected", "fault_class")
        return {name: getattr(result.rubric, name) for name in names}
    return {}


def comparisons(found: Sequence[Comparison]) -> pd.DataFrame:
    """A row a comparison; the columns are a contract with whoever reads the file."""
    return pd.DataFrame(
        [_comparison(comparison) for comparison in found], columns=list(_COMPARISON_COLUMNS)
    )


_COMPARISON_COLUMNS = (
    "scope",
    "seq",
    "q_len",
    "dtype",
    "shape",
    "direction",
    "baseline",
    "kernel",
    "kernel_options",
    "baseline_ms",
    "kernel_ms",
    "slowdown",
    "slowdown_lo",
    "slowdown_hi",
    "evidence",
    "device_kind",
    "baseline_cell",
    "kernel_cell",
)


def _comparison(comparison: Comparison) -> dict[str, object]:
    kernel, interval = comparison.kernel, comparison.interval
    cell = kernel.cell
    return {
        "scope": cell.scope,
        "seq": cell.seq,
        "q_len": cell.q_len,
        "dtype": cell.dtype,
        "shape": cell.shape,
        "direction": cell.direction,
        "baseline": label(comparison.baseline),
        "kernel": label(kernel),
        "kernel_options": kernel_options(kernel),
        "baseline_ms": comparison.baseline_ms,
        "kernel_ms": comparison.kernel_ms,
        "slowdown": comparison.slowdown,
        "slowdown_lo": interval.lo if interval else None,
        "slowdown_hi": interval.hi if interval else None,
        "evidence": comparison.evidence,
        "device_kind": device(kernel),
        "baseline_cell": comparison.baseline.cell_id,
        "kernel_cell": kernel.cell_id,
    }


def arrays(result: Result) -> str:
    """The arrays of a cell in short, lengths aside: batch 1, heads 8/2, width 128, causal."""
    shape = result.config["shape"]
    sizes = "batch {batch}, heads {q_heads}/{kv_heads}, width {head_dim}".format_map(shape)
    masks = ["causal"] if shape["causal"] else []
    masks += [f"{shape['padding']} padding"] if shape["padding"] != "none" else []
    return ", ".join([sizes, *masks])


def device(result: Result) -> str:
    """The device that ran a cell, or the chip it was compiled for, with the label of its times."""
    if result.compile is not None and result.compile.label:
        return f"{result.compile.target} ({result.compile.label})"
    return result.cell.target or result.environment.device_kind or "unknown"

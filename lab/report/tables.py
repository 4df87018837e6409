"""cells.csv and comparisons.csv, as data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lab.cells import expectations
from lab.records import Result
from lab.records.benchmark import BenchmarkSection
from lab.report.achieved import achieved
from lab.report.comparisons import VALUES, Comparison, kernel_options, label, proof
from lab.report.host import HostPeaks
from lab.report.load import Entry
from lab.timing.statistics import summarise


def cells(entries: Sequence[Entry], host: Mapping[str, HostPeaks] | None = None) -> pd.DataFrame:
    """A row a cell, failed ones too; `host` holds the measured peaks of processors."""
    rows = [{**_cell(entry), **_rates(entry.result, host or {})} for entry in entries]
    return pd.DataFrame(rows, columns=list(_CELL_COLUMNS))


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
    "median_lo_ms",
    "median_hi_ms",
    "min_ms",
    "iqr_share",
    "samples",
    "outliers",
    "stop_reason",
    "used",
    "dispatch_floor_ms",
    "device_ms",
    "inner_calls",
    "profiler_ms",
    "baseline",
    "ratio",
    "ratio_lo",
    "ratio_hi",
    "benchmark_verdict",
    "noise_floor",
    "flags",
    "peak_bytes",
    "estimated_ms",
    "floor_ms",
    "p5_ms",
    "p95_ms",
    "achieved_tflops",
    "achieved_gb_s",
    "times_floor",
    "peaks",
    "values",
    "checks_passed",
    "checks_failed",
    "score",
    "max_score",
    "verdict",
    "expected",
    "fault_class",
    "device_kind",
    "machine",
    "jax",
    "commit",
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
        "machine": machine(result),
        "jax": result.environment.jax,
        "commit": result.environment.commit,
        "directory": entry.directory,
        **result.cell.model_dump(),
        # An override such as shape.head_dim=64 leaves the shape's name as it was.
        **{name: result.config["shape"].get(name) for name in _ARRAYS},
    }
    return {**row, **_section(result)}


def _rates(result: Result, host: Mapping[str, HostPeaks]) -> dict[str, object]:
    """What a time means for its device; an interpreted one, which is no speed, means nothing."""
    found = achieved(result, host) if result.evidence != "interpreted" else None
    if found is None:
        return {}
    row: dict[str, object] = {
        "p5_ms": found.p5_ms,
        "p95_ms": found.p95_ms,
        "achieved_tflops": found.tflops,
        "achieved_gb_s": found.gb_s,
        "times_floor": found.times_floor,
        "peaks": None if not found.peaks else "measured" if found.peaks.measured else "datasheet",
        "values": None if result.compile is None else VALUES[proof(result)],
    }
    return row if found.floor_ms is None else {**row, "floor_ms": found.floor_ms}


def _section(result: Result) -> dict[str, object]:
    if result.benchmark:
        return _timed(result.benchmark)
    if result.compile:
        return {name: getattr(result.compile, name) for name in ("estimated_ms", "floor_ms")}
    if result.correctness:
        passed = [check.passed for check in result.correctness.checks]
        return {"checks_passed": sum(passed), "checks_failed": len(passed) - sum(passed)}
    if result.rubric:
        names = ("score", "max_score", "verdict", "expected", "fault_class")
        return {name: getattr(result.rubric, name) for name in names}
    return {}


def _timed(timed: BenchmarkSection) -> dict[str, object]:
    """The times of a cell, which of them is `used`, and the flags that must stand beside them."""
    summary = summarise(timed.samples_ms)
    compared = timed.paired or timed.control
    row: dict[str, object] = {
        "median_ms": timed.median_ms,
        "median_lo_ms": summary.lo_ms,
        "median_hi_ms": summary.hi_ms,
        "min_ms": summary.min_ms,
        "iqr_share": (summary.q3_ms - summary.q1_ms) / timed.median_ms,
        "samples": len(timed.samples_ms),
        "outliers": summary.outliers,
        "stop_reason": timed.sampling.reason if timed.sampling else None,
        "used": timed.used,
        "dispatch_floor_ms": timed.dispatch_floor_ms,
        "device_ms": timed.device.median_ms if timed.device else None,
        "inner_calls": timed.device.inner_calls if timed.device else None,
        "profiler_ms": timed.profiler.call_ms if timed.profiler else None,
        "benchmark_verdict": timed.verdict,
        "flags": " ".join(timed.flags),
        "peak_bytes": timed.peak_bytes,
    }
    if compared is not None:
        row |= {
            "baseline": timed.paired.baseline["name"] if timed.paired else "itself",
            "noise_floor": compared.noise_floor or compared.own_noise,
            **{name: getattr(compared, name) for name in ("ratio", "ratio_lo", "ratio_hi")},
        }
    return row


def machine(result: Result) -> str:
    """The machine that a cell ran on: its device, its processor and how many of them."""
    seen = result.environment
    return f"{seen.device_kind or 'no device'}, {seen.cpu_model}, {seen.cpu_count} CPUs"


def flags(found: Comparison) -> str:
    """The flags of either side of a comparison, by spaces."""
    sides = (found.baseline.benchmark, found.kernel.benchmark)
    named = [flag for side in sides if side for flag in side.flags]
    return " ".join(dict.fromkeys(named))


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
    *_ARRAYS,
    "method",
    "verdict",
    "used",
    "flags",
    "machine",
    "values",
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
        "baseline": comparison.baseline_name,
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
        **{name: kernel.config["shape"].get(name) for name in _ARRAYS},
        "method": comparison.method,
        "verdict": comparison.verdict,
        "used": kernel.benchmark.used if kernel.benchmark else None,
        "flags": flags(comparison),
        "machine": machine(kernel),
        "values": None
        if kernel.compile is None
        else "not proved"
        if comparison.unproved
        else "proved",
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

"""Checks of every figure: recomputed from raw records, by other code than the builder's.

NumPy and SciPy stand in for the builder's own order statistics, so that one mistake cannot hide in
both. Figures agree when they differ by no more than rounding (relative 1e-9).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import stats

from lab.records.benchmark import MAX_SAMPLES
from lab.release.format import canonical, rows
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened, Raw
from lab.report import comparisons

# The rubric's item that passes exactly where the numbers are within the declared tier.
PRECISION_ITEM = "precision"
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
# Configuration in which the two sides of a comparison may differ.
_MAY_DIFFER = {
    "kernel",
    "candidate",
    "deadline_s",
    "resume",
    "release",
    "campaign",
    "report",
    "compare",
    "tune",
}
_MACHINE = ("platform", "device_kind", "cpu_model", "jax", "jaxlib", "libtpu")


def samples(opened: Opened) -> Iterator[Problem]:
    """Each timed record has the samples it was configured to take, and its median is theirs."""
    for raw in opened.of_task("benchmark"):
        timed = raw.result.benchmark
        if timed is None:
            continue
        asked = raw.plain["config"]["benchmark"]
        for what, have in (("samples", timed.samples_ms), ("warmups", timed.warmups_ms)):
            least, most = asked[what], _most(asked, what)
            if not least <= len(have) <= most:
                allowed = f"{least}" if least == most else f"{least} to {most}"
                yield Problem(raw.place, f"{len(have)} {what}, configured were {allowed}")
            if any(ms <= 0 for ms in have):
                yield Problem(raw.place, f"{what} of 0 ms or less")
        if not _close(timed.median_ms, float(np.median(timed.samples_ms))):
            yield Problem(raw.place, f"median_ms {timed.median_ms} is not that of its samples")


def _most(asked: dict[str, Any], what: str) -> int:
    """The largest number allowed: records of the first version have neither rule nor budget."""
    if what == "warmups":
        return MAX_SAMPLES if asked.get("warmup_ms") else int(asked["warmups"])
    return max(int(asked["samples"]), int(asked.get("max_samples", 0)))


def summaries(opened: Opened) -> Iterator[Problem]:
    """Each row of benchmarks sums up the raw samples of its record."""
    for place, row in opened.rows("benchmarks", rows.Benchmark):
        raw = opened.raws.get((row.profile, row.record))
        if raw is not None:
            wanted = _summary(raw)
            for column in _SUMMARY_COLUMNS:
                yield from _differs(place, row, column, wanted.get(column))


_SUMMARY_COLUMNS = (
    "transfer_ms", "lower_ms", "compile_ms", "first_call_ms", "warmups", "samples", "median_ms",
    "median_lo_ms", "median_hi_ms", "q1_ms", "q3_ms", "min_ms", "max_ms", "devices_used",
    "outliers", "gate_passed", "gate_error", "gate_bound", "cache_state",
)  # fmt: skip


def _summary(raw: Raw) -> dict[str, Any]:
    section: dict[str, Any] | None = raw.plain.get("benchmark")
    if section is None:
        return {"cache_state": raw.plain["cache_state"]}
    taken = np.asarray(section["samples_ms"], dtype=np.float64)
    q1, q3 = np.percentile(taken, [25, 75])
    lo, hi = _median_interval(section["samples_ms"], 0.95) or (None, None)
    phases = ("transfer_ms", "lower_ms", "compile_ms", "first_call_ms", "devices_used")
    return {
        **{name: section.get(name) for name in phases},
        "warmups": len(section["warmups_ms"]),
        "samples": taken.size,
        "median_ms": float(np.median(taken)),
        "median_lo_ms": lo,
        "median_hi_ms": hi,
        "q1_ms": float(q1),
        "q3_ms": float(q3),
        "min_ms": float(taken.min()),
        "max_ms": float(taken.max()),
        "outliers": _outliers(taken, float(q1), float(q3)),
        "gate_passed": section["gate"]["passed"],
        "gate_error": section["gate"]["error"],
        "gate_bound": section["gate"]["bound"],
        "cache_state": raw.plain["cache_state"],
    }


def _outliers(taken: Floats, q1: float, q3: float) -> int:
    # Beyond 1.5 interquartile ranges of the quartiles, by more than rounding (1e-9).
    reach = 2 * (q3 - q1) + 1e-9 * np.median(taken)
    return int(np.sum(np.abs(taken - (q1 + q3) / 2) > reach))


def _median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """(lo, hi) of the median by the binomial distribution of SciPy; None for few samples."""
    n, ordered = len(values), np.sort(values)
    k = _rank(n, confidence)
    return (float(ordered[k - 1]), float(ordered[n - k])) if k else None


@functools.cache
def _rank(n: int, confidence: float) -> int:
    """The largest k with P(X <= k - 1) <= (1 - confidence) / 2, X ~ binomial(n, 1/2)."""
    return int(np.sum(stats.binom.cdf(np.arange(n), n, 0.5) <= (1 - confidence) / 2))


def ratios(opened: Opened) -> Iterator[Problem]:
    """Each comparison is the quotient of its two cases, and each pair of cases has one."""
    pairs = _pairs(opened)
    seen = set()
    for place, row in opened.rows("comparisons", rows.Comparison):
        key = (row.profile, row.baseline_cell, row.kernel_cell)
        seen.add(key)
        if key not in pairs:
            yield Problem(place, "is no pair of cases that differ in the kernel alone")
            continue
        baseline, kernel = pairs[key]
        for column, value in _comparison(baseline, kernel).items():
            yield from _differs(place, row, column, value)
    for profile, baseline_record, kernel_record in sorted(pairs.keys() - seen):
        text = f"no comparison of {kernel_record} with {baseline_record}"
        yield Problem("comparisons.jsonl", f"{profile}: {text}")


def _pairs(opened: Opened) -> dict[tuple[str, str, str], tuple[Raw, Raw]]:
    """Every two timed records that differ in the implementation alone, baseline first."""
    groups: dict[str, list[Raw]] = {}
    for raw in opened.raws.values():
        if raw.result.status == "done" and _time_ms(raw) and not _refused(raw):
            config = {k: v for k, v in raw.plain["config"].items() if k not in _MAY_DIFFER}
            machine = [raw.plain["environment"][name] for name in _MACHINE]
            key = canonical.line([raw.profile, config, machine, raw.plain["code_sha256"]])
            groups.setdefault(key, []).append(raw)
    return {
        (kernel.profile, baseline.record, kernel.record): (baseline, kernel)
        for group in groups.values()
        for baseline in group
        for kernel in group
        if _label(baseline) == "xla" and _label(kernel) != "xla"
    }


def _refused(raw: Raw) -> bool:
    """Whether an estimate is one of a program whose values were to be proved, and were not."""
    section = raw.plain.get("compile") or {}
    asked = section.get("proof") is not None or section.get("values_proved") is not None
    return asked and section["values_proved"] is not True


def _label(raw: Raw) -> str:
    cell = raw.plain["cell"]
    return str(cell["kernel"] if cell["candidate"] == "reference" else cell["candidate"])


def _time_ms(raw: Raw) -> float | None:
    section: dict[str, Any] = raw.plain.get(raw.result.task) or {}
    return section.get("median_ms" if raw.result.task == "benchmark" else "estimated_ms")


def _band(baseline: Raw, kernel: Raw) -> tuple[float, float] | None:
    """The ratios of two estimates by their own rule and by both executed schedules, in order.

    A schedule below its case's floor is no time.
    """
    b, k = baseline.plain["compile"], kernel.plain["compile"]
    held = [s["schedule_ms"] and s["schedule_ms"] >= s["floor_ms"] for s in (b, k)]
    if not all(held):
        return None
    by_rule = k["estimated_ms"] / b["estimated_ms"]
    by_schedule = k["schedule_ms"] / b["schedule_ms"]
    return min(by_rule, by_schedule), max(by_rule, by_schedule)


def _comparison(baseline: Raw, kernel: Raw) -> dict[str, Any]:
    below, above = _time_ms(baseline), _time_ms(kernel)
    assert below
    assert above
    lo = hi = None
    if kernel.result.task == "benchmark":
        b = _median_interval(baseline.plain["benchmark"]["samples_ms"], 0.975)
        k = _median_interval(kernel.plain["benchmark"]["samples_ms"], 0.975)
        if b and k and b[0] > 0:
            lo, hi = k[0] / b[1], k[1] / b[0]
    elif band := _band(baseline, kernel):
        lo, hi = band
    cell = kernel.plain["cell"]
    return {
        **{n: cell[n] for n in ("scope", "seq", "q_len", "dtype", "shape", "direction")},
        "baseline": _label(baseline),
        "kernel": _label(kernel),
        "kernel_options": comparisons.kernel_options(kernel.result),
        "baseline_ms": below,
        "kernel_ms": above,
        "slowdown": above / below,
        "slowdown_lo": lo,
        "slowdown_hi": hi,
        "device_kind": cell["target"] or kernel.plain["environment"]["device_kind"] or "unknown",
    }


def correctness(opened: Opened) -> Iterator[Problem]:
    """Each check's verdict follows from its error and bound, in record and row alike."""
    checks = {}
    for raw in opened.of_task("correctness"):
        section = raw.result.correctness
        for check in section.checks if section else ():
            checks[raw.profile, raw.record, check.name] = check
            if check.passed != (check.error is not None and check.error <= check.bound):
                yield Problem(
                    raw.place, f"{check.name}: passed {check.passed}, error {check.error}"
                )
    for place, row in opened.rows("correctness", rows.Correctness):
        kept = checks.get((row.profile, row.record, row.check))
        if kept is None:
            yield Problem(place, f"its record has no check {row.check}")
            continue
        for column in ("passed", "error", "bound"):
            yield from _differs(place, row, column, getattr(kept, column))
    for raw in opened.of_task("benchmark"):
        gate = raw.result.benchmark.gate if raw.result.benchmark else None
        if gate and gate.passed != (gate.error is not None and gate.error <= gate.bound):
            yield Problem(raw.place, f"gate: passed {gate.passed}, error {gate.error}")
        if gate and not gate.passed:
            yield Problem(raw.place, "was timed although its output was wrong")


def scores(opened: Opened) -> Iterator[Problem]:
    """Each score is the sum of its items, and each verdict row is its record's."""
    for raw in opened.of_task("rubric"):
        graded = raw.result.rubric
        if graded is None:
            continue
        if not _close(graded.score, math.fsum(item.earned for item in graded.items)):
            yield Problem(raw.place, f"score {graded.score} is not the sum of its items")
        if not _close(graded.max_score, math.fsum(item.points for item in graded.items)):
            yield Problem(raw.place, f"max_score {graded.max_score} is not the sum of its items")
        for item in graded.items:
            if item.earned > item.points or (item.passed and item.earned < item.points):
                yield Problem(raw.place, f"{item.id}: {item.earned} of {item.points} points")
        if graded.verdict == "accepted" and any(
            item.id == PRECISION_ITEM and not item.passed for item in graded.items
        ):
            yield Problem(raw.place, "accepted although it missed its precision tier")
    yield from _verdict_rows(opened)


def _verdict_rows(opened: Opened) -> Iterator[Problem]:
    for place, row in opened.rows("rubric", rows.Rubric):
        raw = opened.raws.get((row.profile, row.record))
        if raw is None:
            continue
        section: dict[str, Any] = raw.plain.get("rubric") or {}
        candidate: dict[str, Any] = raw.plain["config"]["candidate"]
        items = section.get("items")
        for column in ("score", "max_score", "verdict", "tier", "fault_class"):
            yield from _differs(place, row, column, section.get(column))
        yield from _differs(place, row, "kind", candidate.get("kind"))
        yield from _differs(place, row, "expected", candidate.get("expected"))
        agrees = section["verdict"] == candidate.get("expected") if section else None
        yield from _differs(place, row, "as_expected", agrees)
        yield from _differs(place, row, "items", None if items is None else len(items))
        failed = None if items is None else ",".join(i["id"] for i in items if not i["passed"])
        yield from _differs(place, row, "failed_items", failed)


def estimates(opened: Opened) -> Iterator[Problem]:
    """Each estimate is the sum of its ops' cycles, each floor its work over the peaks."""
    for raw in opened.of_task("compile"):
        section: dict[str, Any] | None = raw.plain.get("compile")
        if section is not None:
            yield from (Problem(raw.place, text) for text in _wrong_estimate(raw, section))
    for place, row in opened.rows("estimates", rows.Estimate):
        made = opened.raws.get((row.profile, row.record))
        if made is None:
            continue
        for column, path in _ESTIMATE_COLUMNS.items():
            value: Any = made.plain.get("compile")
            for key in path:
                value = None if value is None else value[key]
            yield from _differs(place, row, column, value)
        yield from _differs(place, row, "target", made.plain["cell"]["target"])


_ESTIMATE_COLUMNS = {
    **{
        name: (name,) for name in ("validated", "cost_model_ms", "static_profile_ms", "schedule_ms")
    },
    **{name: (name,) for name in ("estimated_ms", "no_estimate", "floor_ms", "floor_bound_by")},
    "work_flops": ("work", "flops"),
    "hbm_bytes": ("work", "hbm_bytes"),
    "argument_bytes": ("memory", "argument_bytes"),
    "output_bytes": ("memory", "output_bytes"),
    "temporary_bytes": ("memory", "temporary_bytes"),
    "vmem_used_bytes": ("vmem", "used_bytes"),
    "vmem_limit_bytes": ("vmem", "limit_bytes"),
}


def _wrong_estimate(raw: Raw, section: dict[str, Any]) -> Iterator[str]:
    work, clock_ghz = section["work"], raw.plain["config"]["target"]["clock_ghz"]
    # FLOP / (TFLOP/s) is 1e-12 s, B / (GB/s) is 1e-9 s.
    compute_ms = work["flops"] / work["peak_tflops"] * 1e-9
    memory_ms = work["hbm_bytes"] / work["peak_hbm_gb_s"] * 1e-6
    if not _close(section["floor_ms"], max(compute_ms, memory_ms)):
        yield f"floor_ms {section['floor_ms']}, recomputed {max(compute_ms, memory_ms)}"
    if section["estimated_ms"] is not None:
        cycles = sum((op["estimated_cycles"] or 0) * op["count"] for op in section["ops"])
        expected_ms = cycles / clock_ghz * 1e-6
        if not _close(section["estimated_ms"], expected_ms):
            yield f"estimated_ms {section['estimated_ms']}, its ops sum up to {expected_ms}"
    for op in section["ops"]:
        if op["source"] and op["estimated_cycles"] != op[f"{op['source']}_cycles"]:
            yield f"{op['name']}: estimated_cycles is not its {op['source']}'s"


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _differs(place: str, row: rows.Row, column: str, wanted: object) -> Iterator[Problem]:
    have = getattr(row, column)
    numbers = isinstance(have, float) and isinstance(wanted, int | float)
    if not (_close(have, float(wanted)) if numbers else have == wanted):  # type: ignore[arg-type]
        yield Problem(place, f"{column} {have!r}, recomputed {wanted!r}")


CHECKS = {
    "samples": samples,
    "summaries": summaries,
    "ratios": ratios,
    "correctness": correctness,
    "scores": scores,
    "estimates": estimates,
}

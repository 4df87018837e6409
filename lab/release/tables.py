"""Records to rows: a pure function, the same rows for the same records in whatever order."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.records import Environment, Result, weaker
from lab.release import canonical, rows
from lab.timing.statistics import ratio_interval, summarise

BASELINE = "xla"
# What of an environment says which machine and libraries; commit and flags belong to a record.
SYSTEM_COLUMNS = (
    "platform", "device_kind", "device_count", "cpu_model", "cpu_count", "python", "jax", "jaxlib",
    "libtpu", "numpy", "hydra", "omegaconf",
)  # fmt: skip
_NO_OPTION = ("name", "module", "constraints")
# Configuration in which the two sides of a comparison may differ: what is compared, and how long
# it might have taken.
_MAY_DIFFER = ("kernel", "candidate", "deadline_s", "resume")


@dataclass(frozen=True)
class Entry:
    """One raw record of a release: its profile, its file's stem, its content and bytes."""

    profile: str
    record: str
    result: Result
    raw: bytes


def make(entries: Sequence[Entry]) -> dict[str, list[rows.Row]]:
    """Every table's rows, sorted; tables without rows are left out."""
    made: dict[str, list[rows.Row]] = {
        "comparisons": list(_comparisons(entries)),
        "benchmarks": [_benchmark(e) for e in entries if e.result.task == "benchmark"],
        "correctness": [row for e in entries for row in _correctness(e)],
        "rubric": [_rubric(e) for e in entries if e.result.task == "rubric"],
        "estimates": [_estimate(e) for e in entries if e.result.task == "compile"],
        "bootstrap": [_bootstrap(e) for e in entries if e.result.task == "doctor"],
        "systems": list(_systems(entries)),
        "provenance": [_provenance(e) for e in entries],
    }
    return {
        table: sorted(found, key=lambda row, table=table: rows.sort_key(table, row))  # type: ignore[misc]
        for table, found in made.items()
        if found
    }


def system_id(environment: Environment) -> str:
    """Twelve hex digits for one machine and its libraries."""
    facts = {name: getattr(environment, name) for name in SYSTEM_COLUMNS}
    return canonical.sha256(canonical.line(facts).encode())[:12]


def label(result: Result) -> str:
    """What was under test: the kernel, or the candidate in its place."""
    cell = result.cell
    return cell.kernel if cell.candidate == "reference" else cell.candidate


def kernel_options(result: Result) -> str:
    """The kernel's own options as `name=value`, separated by spaces."""
    options: dict[str, Any] = result.config["kernel"]
    kept = {name: value for name, value in options.items() if name not in _NO_OPTION}
    return " ".join(f"{name}={_plain(value)}" for name, value in sorted(kept.items()))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _from_record(entry: Entry) -> dict[str, Any]:
    return {
        "profile": entry.profile,
        "record": entry.record,
        "raw_sha256": canonical.sha256(entry.raw),
    }


def _case(entry: Entry) -> dict[str, Any]:
    result, cell, shape = entry.result, entry.result.cell, entry.result.config["shape"]
    return {
        **_from_record(entry),
        "cell_id": result.cell_id,
        "system": system_id(result.environment),
        "kernel": label(result),
        "kernel_options": kernel_options(result),
        "scope": cell.scope,
        "seq": cell.seq,
        "q_len": cell.q_len,
        "dtype": cell.dtype,
        "shape": cell.shape,
        **{name: shape[name] for name in ("batch", "q_heads", "kv_heads", "head_dim", "causal")},
        "padding": shape["padding"],
        "direction": cell.direction,
        "seed": result.seed,
        "regime": result.regime,
        "evidence": result.evidence,
        "interpret": result.interpret,
        "status": result.status,
        "reason": result.reason,
    }


def _benchmark(entry: Entry) -> rows.Benchmark:
    timed = entry.result.benchmark
    summary = summarise(timed.samples_ms) if timed else None
    return rows.Benchmark(
        **_case(entry),
        transfer_ms=timed.transfer_ms if timed else None,
        lower_ms=timed.lower_ms if timed else None,
        compile_ms=timed.compile_ms if timed else None,
        first_call_ms=timed.first_call_ms if timed else None,
        warmups=len(timed.warmups_ms) if timed else None,
        samples=len(timed.samples_ms) if timed else None,
        median_ms=summary.median_ms if summary else None,
        median_lo_ms=summary.interval.lo if summary and summary.interval else None,
        median_hi_ms=summary.interval.hi if summary and summary.interval else None,
        q1_ms=summary.q1_ms if summary else None,
        q3_ms=summary.q3_ms if summary else None,
        min_ms=summary.min_ms if summary else None,
        max_ms=summary.max_ms if summary else None,
        devices_used=timed.devices_used if timed else None,
        outliers=summary.outliers if summary else None,
        gate_passed=timed.gate.passed if timed else None,
        gate_error=timed.gate.error if timed else None,
        gate_bound=timed.gate.bound if timed else None,
        cache_state=entry.result.cache_state,
    )


def _correctness(entry: Entry) -> Iterable[rows.Correctness]:
    section = entry.result.correctness
    for check in section.checks if section else ():
        yield rows.Correctness(
            **_case(entry),
            check=check.name,
            passed=check.passed,
            error=check.error,
            bound=check.bound,
        )


def _rubric(entry: Entry) -> rows.Rubric:
    graded, candidate = entry.result.rubric, entry.result.config["candidate"]
    return rows.Rubric(
        **_case(entry),
        kind=candidate["kind"],
        score=graded.score if graded else None,
        max_score=graded.max_score if graded else None,
        verdict=graded.verdict if graded else None,
        expected=candidate["expected"],
        as_expected=graded.verdict == graded.expected if graded else None,
        tier=graded.tier if graded else None,
        fault_class=graded.fault_class if graded else None,
        items=len(graded.items) if graded else None,
        failed_items=",".join(i.id for i in graded.items if not i.passed) if graded else None,
    )


def _estimate(entry: Entry) -> rows.Estimate:
    section: dict[str, Any] = entry.result.compile or {}
    return rows.Estimate(
        **_case(entry),
        target=entry.result.cell.target or "",
        cost_model_ms=section.get("cost_model_ms"),
        static_profile_ms=section.get("static_profile_ms"),
        schedule_ms=section.get("schedule_ms"),
        estimated_ms=section.get("estimated_ms"),
        floor_ms=section.get("floor_ms"),
        no_estimate=section.get("no_estimate"),
    )


def _bootstrap(entry: Entry) -> rows.Bootstrap:
    summary = entry.result.doctor.summary if entry.result.doctor else {}
    return rows.Bootstrap(
        **_from_record(entry),
        started_at=entry.result.started_at,
        system=system_id(entry.result.environment),
        ready=bool(summary.get("ready", False)),
        pairing_fits=summary.get("pairing_fits"),
        canary_passed=summary.get("canary_passed"),
        advice=summary.get("advice") or entry.result.reason,
    )


def _systems(entries: Iterable[Entry]) -> Iterable[rows.System]:
    environments = {(e.profile, system_id(e.result.environment)): e for e in entries}
    counts = Counter((e.profile, system_id(e.result.environment)) for e in entries)
    for (profile, system), entry in environments.items():
        environment = entry.result.environment
        yield rows.System(
            profile=profile,
            system=system,
            **{name: getattr(environment, name) for name in SYSTEM_COLUMNS},
            records=counts[profile, system],
        )


def _provenance(entry: Entry) -> rows.Provenance:
    result = entry.result
    return rows.Provenance(
        **_from_record(entry),
        task=result.task,
        cell_id=result.cell_id,
        status=result.status,  # type: ignore[arg-type]  # a result is never `running`
        system=system_id(result.environment),
        overrides=shlex.join(result.overrides),
        config_sha256=canonical.sha256(canonical.line(result.config).encode()),
        code_sha256=result.code_sha256,
        commit=result.environment.commit,
        dirty=result.environment.dirty,
        started_at=result.started_at,
        finished_at=result.finished_at,
    )


def time_ms(result: Result) -> float | None:
    """What a comparison compares: the median of a timed case, the estimate of a compiled one."""
    if result.benchmark is not None:
        return result.benchmark.median_ms
    return (result.compile or {}).get("estimated_ms")


def _same_case(entry: Entry) -> str:
    """Everything in which two sides of a comparison must agree, as text."""
    config = {k: v for k, v in entry.result.config.items() if k not in _MAY_DIFFER}
    system = system_id(entry.result.environment)
    return canonical.line([entry.profile, config, system, entry.result.code_sha256])


def _comparisons(entries: Iterable[Entry]) -> Iterable[rows.Comparison]:
    timed = [e for e in entries if e.result.status == "done" and time_ms(e.result)]
    baselines = {_same_case(e): e for e in timed if label(e.result) == BASELINE}
    for entry in timed:
        baseline = baselines.get(_same_case(entry))
        if baseline is not None and label(entry.result) != BASELINE:
            yield _comparison(baseline, entry)


def _comparison(baseline: Entry, entry: Entry) -> rows.Comparison:
    ours, theirs, cell = entry.result, baseline.result, entry.result.cell
    kernel_ms, baseline_ms = time_ms(ours), time_ms(theirs)
    assert kernel_ms is not None
    assert baseline_ms is not None
    assert ours.evidence is not None
    assert theirs.evidence is not None
    interval = (
        ratio_interval(ours.benchmark.samples_ms, theirs.benchmark.samples_ms)
        if ours.benchmark and theirs.benchmark
        else None
    )
    return rows.Comparison(
        profile=entry.profile,
        scope=cell.scope,  # type: ignore[arg-type]  # the model checks it
        seq=cell.seq,
        q_len=cell.q_len,
        dtype=cell.dtype,
        shape=cell.shape,
        direction=cell.direction,  # type: ignore[arg-type]
        baseline=label(theirs),
        kernel=label(ours),
        kernel_options=kernel_options(ours),
        baseline_ms=baseline_ms,
        kernel_ms=kernel_ms,
        slowdown=kernel_ms / baseline_ms,
        slowdown_lo=interval.lo if interval else None,
        slowdown_hi=interval.hi if interval else None,
        evidence=weaker(ours.evidence, theirs.evidence),
        device_kind=cell.target or ours.environment.device_kind or "unknown",
        baseline_cell=baseline.record,
        kernel_cell=entry.record,
    )

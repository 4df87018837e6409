"""Records to rows: a pure function, the same rows for the same records in whatever order."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lab.records import Environment, Result
from lab.release.format import canonical, rows
from lab.report import comparisons
from lab.report.comparisons import kernel_options, label
from lab.timing.statistics import summarise

# What of an environment says which machine and libraries; commit and flags belong to a record.
SYSTEM_COLUMNS = (
    "platform", "device_kind", "device_count", "cpu_model", "cpu_count", "python", "jax", "jaxlib",
    "libtpu", "numpy", "hydra", "omegaconf",
)  # fmt: skip


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
        median_ms=timed.median_ms if timed else None,
        median_lo_ms=summary.lo_ms if summary else None,
        median_hi_ms=summary.hi_ms if summary else None,
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
    made = entry.result.compile
    return rows.Estimate(
        **_case(entry),
        target=entry.result.cell.target or "",
        validated=made.validated if made else None,
        cost_model_ms=made.cost_model_ms if made else None,
        static_profile_ms=made.static_profile_ms if made else None,
        schedule_ms=made.schedule_ms if made else None,
        estimated_ms=made.estimated_ms if made else None,
        no_estimate=made.no_estimate if made else None,
        floor_ms=made.floor_ms if made else None,
        floor_bound_by=made.floor_bound_by if made else None,
        work_flops=made.work.flops if made else None,
        hbm_bytes=made.work.hbm_bytes if made else None,
        argument_bytes=made.memory.argument_bytes if made else None,
        output_bytes=made.memory.output_bytes if made else None,
        temporary_bytes=made.memory.temporary_bytes if made else None,
        vmem_used_bytes=made.vmem.used_bytes if made else None,
        vmem_limit_bytes=made.vmem.limit_bytes if made else None,
    )


def _bootstrap(entry: Entry) -> rows.Bootstrap:
    look = entry.result.doctor
    return rows.Bootstrap(
        **_from_record(entry),
        started_at=entry.result.started_at,
        system=system_id(entry.result.environment),
        ready=look.ready if look else False,
        pairing_fits=look.pairing_fits if look else None,
        canary_passed=look.canary_passed if look else None,
        advice=look.advice if look else entry.result.reason,
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


def _comparisons(entries: Sequence[Entry]) -> Iterable[rows.Comparison]:
    for profile in sorted({entry.profile for entry in entries}):
        results = [entry.result for entry in entries if entry.profile == profile]
        yield from (
            _comparison(profile, pair) for pair in comparisons.compare(results, paired=False)
        )


def _comparison(profile: str, pair: comparisons.Comparison) -> rows.Comparison:
    cell = pair.kernel.cell
    return rows.Comparison(
        profile=profile,
        scope=cell.scope,  # type: ignore[arg-type]  # the model checks it
        seq=cell.seq,
        q_len=cell.q_len,
        dtype=cell.dtype,
        shape=cell.shape,
        direction=cell.direction,  # type: ignore[arg-type]
        baseline=label(pair.baseline),
        kernel=label(pair.kernel),
        kernel_options=kernel_options(pair.kernel),
        baseline_ms=pair.baseline_ms,
        kernel_ms=pair.kernel_ms,
        slowdown=pair.slowdown,
        slowdown_lo=pair.interval.lo if pair.interval else None,
        slowdown_hi=pair.interval.hi if pair.interval else None,
        evidence=pair.evidence,
        device_kind=cell.target or pair.kernel.environment.device_kind or "unknown",
        # A raw record of a case bears its cell's id.
        baseline_cell=pair.baseline.cell_id,
        kernel_cell=pair.kernel.cell_id,
    )

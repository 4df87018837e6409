"""report.md: what a sweep came to, for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lab.cells import expectations
from lab.records import CorrectnessCheck, Result
from lab.report import figures, predicted
from lab.report.achieved import achieved
from lab.report.comparisons import Comparison, kernel_options, label, proof
from lab.report.host import HostPeaks
from lab.report.jinja import PAGES
from lab.report.load import Entry, Loaded
from lab.report.machines import unlike
from lab.report.tables import arrays, device, flags, machine
from lab.timing.flags import MEANINGS


def render(
    loaded: Loaded,
    found: Sequence[Comparison],
    *,
    baseline: str,
    overlay: str | None,
    files: Sequence[str] = (),
    peaks: Mapping[str, HostPeaks] | None = None,
) -> str:
    """The page as Markdown; the same records give the same text.

    Args:
        loaded: the records.
        found: what was compared.
        baseline: the kernel that others are compared with.
        overlay: "published" where the published curve was asked for.
        files: what was written beside the page.
        peaks: measured peaks of processors, by their model.
    """
    results = [entry.result for entry in loaded.entries]
    return (
        PAGES.get_template("report.md")
        .render(
            counts=_counts(results),
            levels={c.evidence for c in found},
            claims=figures.claims(found),
            overlay=figures.overlaid(found, baseline) if overlay else [],
            files=files,
            systems=systems(results),
            refused=[r.cell_id for r in results if proof(r) == "refused"],
            unproved=any(c.unproved for c in found),
            baseline=baseline,
            comparisons=[_comparison(c, merged=bool(unlike(results))) for c in found],
            times=[_time(e, peaks or {}) for e in loaded.entries if e.result.benchmark],
            machines=unlike(results),
            flagged=flagged(results),
            estimated=any(c.evidence == "estimated" for c in found),
            intervals=any(c.interval and c.method != "sources" for c in found),
            compiled=predicted.section(results, baseline),
            correctness=[_correctness(r) for r in results if r.correctness],
            rubric=[_rubric(r) for r in results if r.rubric],
            surprises=_reasons(loaded.entries, "surprise"),
            unsupported=_reasons(loaded.entries, "unsupported"),
            skipped=loaded.skipped,
        )
        .strip()
        + "\n"
    )


def _counts(results: Sequence[Result]) -> str:
    statuses = Counter(result.status for result in results)
    text = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return f"{len(results)} cells: {text}." if results else "No readable cell."


def systems(results: Sequence[Result]) -> list[dict[str, str]]:
    """The machines and versions that the records come from, and how many cells of each."""
    counts = Counter(
        (machine(r) if r.compile is None else f"no device: compiled for {r.cell.target} on "
         f"{r.environment.cpu_model}", versions(r), _code(r))
        for r in results
    )  # fmt: skip
    return [
        {"machine": where, "versions": what, "code": code, "cells": str(count)}
        for (where, what, code), count in sorted(counts.items())
    ]


def versions(result: Result) -> str:
    """The libraries of a record."""
    seen = result.environment
    libtpu = f", libtpu {seen.libtpu}" if seen.libtpu else ""
    return f"Python {seen.python}, jax {seen.jax}, jaxlib {seen.jaxlib}{libtpu}"


def _code(result: Result) -> str:
    commit = (result.environment.commit or "no commit")[:12]
    return f"{commit}{', changed' if result.environment.dirty else ''}"


def _comparison(c: Comparison, *, merged: bool) -> dict[str, Any]:
    return {
        "scope": c.kernel.cell.scope,
        "direction": c.kernel.cell.direction,
        "dtype": c.kernel.cell.dtype,
        "seq": c.kernel.cell.seq,
        "q_len": c.kernel.cell.q_len,
        "kernel": f"{label(c.kernel)} {kernel_options(c.kernel)}".strip(),
        "baseline_ms": c.baseline_ms,
        "kernel_ms": c.kernel_ms,
        "slowdown": c.slowdown,
        "interval": f"{c.interval.lo:.2f} to {c.interval.hi:.2f}" if c.interval else "",
        "evidence": c.evidence,
        "verdict": c.verdict or "",
        "flags": " ".join(filter(None, [flags(c), "not-proved" if c.unproved else ""])),
        "samples": _samples(c),
        "arrays": arrays(c.kernel),
        "device_kind": machine(c.kernel) if merged else device(c.kernel),
    }


def _samples(c: Comparison) -> str:
    """Samples of the baseline and of the kernel; nothing of estimates."""
    sides = [side.benchmark for side in (c.baseline, c.kernel)]
    return " / ".join(str(len(side.samples_ms)) for side in sides if side)


def _time(entry: Entry, peaks: Mapping[str, HostPeaks]) -> dict[str, Any]:
    """What a time of one cell is made of, and what it means for the device."""
    timed = entry.result.benchmark
    assert timed is not None
    rates = achieved(entry.result, peaks)
    assert rates is not None
    speed = entry.result.evidence != "interpreted"
    return {
        "evidence": entry.result.evidence,
        "p5_ms": rates.p5_ms,
        "p95_ms": rates.p95_ms,
        "tflops": rates.tflops if speed else None,
        "gb_s": rates.gb_s if speed else None,
        "times_floor": rates.times_floor if speed else None,
        "peaks": "measured" if speed and rates.peaks and rates.peaks.measured else "",
        "directory": entry.directory,
        "used": timed.used,
        "median_ms": timed.median_ms,
        "floor_ms": timed.dispatch_floor_ms,
        "device_ms": timed.device.median_ms if timed.device else None,
        "profiler_ms": timed.profiler.call_ms if timed.profiler else None,
        "samples": len(timed.samples_ms),
        "stop": timed.sampling.reason if timed.sampling else "",
        "peak_mib": None if timed.peak_bytes is None else timed.peak_bytes / 2**20,
        "flags": " ".join(timed.flags),
    }


def flagged(results: Sequence[Result]) -> dict[str, str]:
    """The flags that any cell bears, and what they mean."""
    seen = {flag for r in results if r.benchmark for flag in r.benchmark.flags}
    return {flag: text for flag, text in MEANINGS.items() if flag in seen}


def _correctness(result: Result) -> dict[str, Any]:
    assert result.correctness is not None
    checks = result.correctness.checks

    def size(check: CorrectnessCheck) -> float:
        return math.inf if check.error is None else check.error / check.bound

    worst = max(checks, key=size)
    return {
        "cell_id": result.cell_id,
        "passed": sum(check.passed for check in checks),
        "failed": sum(not check.passed for check in checks),
        "worst": worst.name,
        "error": "not finite" if worst.error is None else f"{worst.error:.3g}",
    }


def _rubric(result: Result) -> dict[str, Any]:
    assert result.rubric is not None
    as_expected = not expectations.surprises(result)
    name = label(result)
    if name == "custom":  # the file says who it is
        name = f"{name} {kernel_options(result)}"
    return {"name": name, "as_expected": as_expected, **result.rubric.model_dump()}


def _reasons(entries: Sequence[Entry], kind: str) -> list[dict[str, str]]:
    found = []
    for entry in entries:
        if kind == "unsupported":
            reasons: tuple[str, ...] = ()
            if entry.result.status == "unsupported":
                reasons = (str(entry.result.reason),)
        else:
            reasons = expectations.surprises(entry.result)
        found += [{"directory": entry.directory, "reason": reason} for reason in reasons]
    return found

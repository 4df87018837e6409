"""The same cell before and after: which became slower, which faster, and which are missing.

A cell is the same where its names, options, arrays, seed and inputs are; code, libraries, machine
and budget may differ, and what differs is said. Two runs of one cell share no blocks: the ratio's
interval comes from the two medians, and holds the noise within the runs alone. What varies from
run to run is known only where the cells measured a baseline beside themselves (then the two
paired ratios are compared, in which the machine's speed cancels) or an A/A control (whose noise
floor then is the least margin).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab import records
from lab.errors import UserError
from lab.records import ComparedCell, Result, weaker
from lab.records.benchmark import BenchmarkSection, Verdict
from lab.report.comparisons import kernel_options, label, time_ms
from lab.report.tables import arrays, machine
from lab.timing import verdict
from lab.timing.statistics import Interval, ratio_interval

TASKS = ("benchmark", "compile")
Side = Literal["before", "after"]


@dataclass(frozen=True)
class Found:
    """A record and the path that it was read from, relative to the directory asked for."""

    result: Result
    path: str


def read(directory: Path, key: str) -> dict[str, Found]:
    """The newest timed or compiled record of each case below a directory.

    Runs, sweeps, campaigns, folders of evidence/ with records, and a release's raw records are
    read alike: every result.json, else every .json that is a record.

    Raises:
        UserError: no directory, or no such record in it; `key` names the setting.
    """
    if not directory.is_dir():
        raise UserError(f"{key}={directory}: no directory; give runs, a sweep, or raw records")
    paths = sorted(directory.rglob("result.json")) or sorted(directory.rglob("*.json"))
    newest: dict[str, Found] = {}
    for path in paths:
        try:
            result = records.read(path, Result)
        except records.InvalidRecord:
            continue
        if result.task not in TASKS:
            continue
        case = case_of(result)
        if case not in newest or newest[case].result.finished_at < result.finished_at:
            newest[case] = Found(result, path.relative_to(directory).as_posix())
    if not newest:
        raise UserError(f"{key}={directory}: no record of task benchmark or compile in it")
    return newest


def case_of(result: Result) -> str:
    """The case in words; two records of one case have the same."""
    cell = result.cell
    used = result.benchmark.used if result.benchmark else "latency"
    words = [
        result.task,
        f"{label(result)} {kernel_options(result)}".strip(),
        cell.scope,
        f"s{cell.seq}" if cell.seq == cell.q_len else f"s{cell.seq} t{cell.q_len}",
        cell.dtype,
        cell.direction,
        arrays(result),
        cell.target,
        f"seed {result.seed}" if result.seed else None,
        result.regime if result.regime != "normal" else None,
        "device time" if used == "device" else None,
    ]
    return ", ".join(word for word in words if word)


def compare(
    before: Mapping[str, Found],
    after: Mapping[str, Found],
    *,
    threshold: float,
    max_regression: float,
) -> list[ComparedCell]:
    """Every case of either side, in the order of its words."""
    return [
        _case(case, before.get(case), after.get(case), threshold, max_regression)
        for case in sorted({*before, *after})
    ]


def _case(
    case: str, old: Found | None, new: Found | None, threshold: float, max_regression: float
) -> ComparedCell:
    sides = (("before", old), ("after", new))
    gaps = [_gap(name, side) for name, side in sides if side is None or _ms(side) is None]
    differs = _differs(old.result, new.result) if old and new else []
    ratio = interval = margin = None
    said: Verdict | Literal["missing"] = "missing"
    notes = list(gaps)
    if old and new and not gaps:
        margin = verdict.margin(threshold, _floor(old.result, new.result))
        ratio, interval, how = _ratio(old.result, new.result, differs)
        said = verdict.verdict(interval, margin)
        notes += [how] if how else []
        notes += [f"{side}: {flags}" for side, f in sides if f and (flags := _flags(f.result))]
    unlike = "machine" in differs and (old is None or old.result.task == "benchmark")
    slower = said == "slower" and ratio is not None and ratio > 1 + max_regression
    if slower and unlike:
        notes.append("unlike machines: no regression of the code")
    # A cell that had a time and now fails is worse than slow.
    broken = bool(old and new and _ms(old) is not None and new.result.status != "done")
    levels = [f.result.evidence for f in (old, new) if f and f.result.evidence]
    return ComparedCell(
        case=case,
        verdict=said,
        regression=(slower and not unlike) or broken,
        evidence=weaker(levels[0], levels[-1]) if levels else None,
        before_ms=_ms(old),
        after_ms=_ms(new),
        ratio=ratio,
        ratio_lo=interval.lo if interval else None,
        ratio_hi=interval.hi if interval else None,
        margin=margin,
        before_peak_bytes=_peak_bytes(old),
        after_peak_bytes=_peak_bytes(new),
        differs=differs,
        note="; ".join(notes) or None,
        before=old.path if old else None,
        after=new.path if new else None,
    )


def _gap(name: str, side: Found | None) -> str:
    if side is None:
        return f"{name}: no such cell"
    why = side.result.reason or "no time"
    return f"{name}: {side.result.status}: {why}"


def _ms(side: Found | None) -> float | None:
    return time_ms(side.result) or None if side and side.result.status == "done" else None


def _ratio(
    old: Result, new: Result, differs: Sequence[str]
) -> tuple[float, Interval | None, str | None]:
    """The ratio after / before, its interval, and how it was found if not from the medians."""
    before, after = old.benchmark, new.benchmark
    if before is None or after is None:
        old_ms, new_ms = time_ms(old), time_ms(new)
        assert old_ms
        assert new_ms
        return new_ms / old_ms, Interval(new_ms / old_ms, new_ms / old_ms), None  # no noise
    libraries = {"machine", "jax", "jaxlib"}
    if (both := _relative(before, after)) and not libraries.intersection(differs):
        return both
    ratio = after.median_ms / before.median_ms
    return ratio, ratio_interval(after.samples_ms, before.samples_ms), None


def _relative(
    before: BenchmarkSection, after: BenchmarkSection
) -> tuple[float, Interval | None, str | None] | None:
    """The ratio of two paired ratios to one baseline; None where the two do not have one."""
    old, new = before.paired, after.paired
    if old is None or new is None or old.baseline != new.baseline:
        return None
    interval = None
    if old.ratio_lo and old.ratio_hi and new.ratio_lo and new.ratio_hi:
        interval = Interval(new.ratio_lo / old.ratio_hi, new.ratio_hi / old.ratio_lo)
    return new.ratio / old.ratio, interval, f"relative to {old.baseline['name']}"


def _floor(old: Result, new: Result) -> float | None:
    """The larger noise floor of the two cells' controls."""
    timed = [r.benchmark for r in (old, new) if r.benchmark and r.benchmark.control]
    floors = [t.control.own_noise for t in timed if t.control and t.control.own_noise is not None]
    return max(floors, default=None)


def _flags(result: Result) -> str:
    return " ".join(result.benchmark.flags) if result.benchmark else ""


def _differs(old: Result, new: Result) -> list[str]:
    """What else is not the same: code, libraries, machine, budget, level of evidence."""
    a, b = old.environment, new.environment
    pairs = {
        "code": (old.code_sha256, new.code_sha256),
        **{name: (getattr(a, name), getattr(b, name)) for name in ("jax", "jaxlib", "libtpu")},
        "machine": (machine(old), machine(new)),
        "flags": (a.flags, b.flags),
        "evidence": (old.evidence, new.evidence),
        "budget": (old.config.get("benchmark"), new.config.get("benchmark")),
    }
    return [name for name, (one, other) in pairs.items() if one != other]


def _peak_bytes(side: Found | None) -> int | None:
    if side is None:
        return None
    if side.result.compile:
        memory = side.result.compile.memory
        return memory.argument_bytes + memory.output_bytes + memory.temporary_bytes
    return side.result.benchmark.peak_bytes if side.result.benchmark else None

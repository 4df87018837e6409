"""A kernel against the baseline in the same case: which records may be compared, and the ratio."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.candidates.custom import name_of
from lab.records import CompileSection, Evidence, Result, weaker
from lab.records.benchmark import Verdict
from lab.timing.statistics import Interval, ratio_interval
from lab.timing.verdict import verdict

CLAIMS: Mapping[Evidence, str] = {
    "interpreted": "interpreted: not a performance claim",
    "compiled": "compiled: no time was measured or estimated",
    "estimated": "estimated by the compiler: not a measurement",
}
"""What a time of each level may claim; a measured one claims its device."""

VALUES = {"": "proved", "not proved": "not proved", "refused": "wrong or not proved"}
"""What a table says of `proof`."""

BASELINE = "xla"
# The two sides of a comparison differ in these alone.
_MAY_DIFFER = (
    "kernel", "candidate", "resume", "deadline_s", "release", "campaign", "report", "compare",
    "compile", "tune",
)  # fmt: skip
_NO_OPTION = ("name", "module", "constraints")


@dataclass(frozen=True)
class Comparison:
    """Two cells that differ in the implementation alone; slowdown = kernel_ms / baseline_ms.

    Where one cell measured both sides in paired blocks, it is both of the two; `ratio` and
    `verdict` are then what its blocks say.
    """

    baseline: Result
    kernel: Result
    baseline_ms: float
    kernel_ms: float
    interval: Interval | None
    evidence: Evidence
    baseline_name: str
    ratio: float | None = None
    verdict: Verdict | None = None

    @property
    def slowdown(self) -> float:
        """Above 1 the kernel is slower: the median of paired ratios, else the ratio of medians."""
        return self.kernel_ms / self.baseline_ms if self.ratio is None else self.ratio

    @property
    def method(self) -> str:
        """`paired`: in one process, block by block; `separate`: in a process each.

        `sources`: two estimates, whose interval is the band of their two sources.
        """
        if self.kernel.compile is not None:
            return "sources"
        return "separate" if self.ratio is None else "paired"

    @property
    def unproved(self) -> bool:
        """Whether a side is an estimate of a program whose values nobody proved."""
        return bool(proof(self.baseline) or proof(self.kernel))


def label(result: Result) -> str:
    """What was under test: the kernel, or the candidate in its place."""
    cell = result.cell
    return cell.kernel if cell.candidate == "reference" else cell.candidate


def kernel_options(result: Result) -> str:
    """The kernel's own options as `name=value`, separated by spaces; a custom candidate's file."""
    candidate = result.config["candidate"]
    if candidate["kind"] == "custom":
        return name_of(candidate["path"], candidate["function"])
    if result.cell.candidate != "reference":
        return ""
    options: dict[str, Any] = result.config["kernel"]
    kept = {name: value for name, value in options.items() if name not in _NO_OPTION}
    return " ".join(f"{name}={_plain(value)}" for name, value in sorted(kept.items()))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def reading_order(result: Result) -> tuple[str | int, ...]:
    """Sorts cells so that those of one curve follow one another by length."""
    cell = result.cell
    kernel = (label(result), kernel_options(result), cell.direction, cell.dtype, cell.shape)
    return (cell.scope, *kernel, cell.seq, cell.q_len, result.cell_id)


def time_ms(result: Result) -> float | None:
    """What a comparison compares: the median of a timed case, the estimate of a compiled one.

    An estimate whose record does not hold a proof of the program's values is none (`proof`).
    """
    if result.benchmark is not None:
        return result.benchmark.median_ms
    made = result.compile
    return made.estimated_ms if made and proof(result) != "refused" else None


def case_key(result: Result) -> str:
    """Everything in which two sides of a comparison must agree, machine and code included."""
    config = {k: v for k, v in result.config.items() if k not in _MAY_DIFFER}
    environment = result.environment
    machine = [
        environment.platform,
        environment.device_kind,
        environment.cpu_model,
        environment.jax,
        environment.jaxlib,
        environment.libtpu,
        result.code_sha256,
    ]
    return json.dumps([config, machine], sort_keys=True)


def compare(
    results: Iterable[Result], baseline: str = BASELINE, *, paired: bool = True
) -> Iterator[Comparison]:
    """Every timed or estimated cell against the baseline of its case, where there is one.

    Args:
        results: records.
        baseline: the kernel that others are compared with.
        paired: take what a cell measured in paired blocks, where it did, before separate cells.
    """
    timed = [(case_key(r), r) for r in results if r.status == "done" and time_ms(r)]
    baselines = {key: result for key, result in timed if label(result) == baseline}
    for key, result in timed:
        own = _paired(result, baseline) if paired else None
        if own is not None:
            yield own
        elif key in baselines and label(result) != baseline:
            yield _comparison(baselines[key], result)


def estimates(
    baseline: CompileSection, kernel: CompileSection
) -> tuple[float, float, Interval | None]:
    """Two estimates compared: the times by the rule, and the band of the two sources' ratios.

    By the rule XLA counts by its cost model and Pallas by the executed schedule, as in the cells
    themselves; the other source executes both schedules. Exchanging the sides inverts ratio and
    band, so that a pair has one answer whichever is the baseline. A schedule below its cell's floor
    is no time; without both schedules there is no band.

    Returns:
        baseline and kernel, milliseconds, and the band of kernel / baseline.
    """
    assert baseline.estimated_ms
    assert kernel.estimated_ms
    by_rule = kernel.estimated_ms / baseline.estimated_ms
    by_schedule = schedule_ratio(baseline, kernel)
    band = None
    if by_schedule is not None:
        band = Interval(min(by_rule, by_schedule), max(by_rule, by_schedule))
    return baseline.estimated_ms, kernel.estimated_ms, band


def schedule_ratio(baseline: CompileSection, kernel: CompileSection) -> float | None:
    """Kernel / baseline by executing both schedules, where both have one."""
    b, k = baseline.schedule_ms, kernel.schedule_ms
    if not b or not k or b < baseline.floor_ms or k < kernel.floor_ms:
        return None
    return k / b


def proof(result: Result) -> str:
    """Whether a compiled cell's values were proved: "", "not proved" or "refused".

    A record made before there were proofs does not say: its estimate is taken, and must be marked
    wherever it stands. One that was to be proved and was not, or was proved wrong, is refused.
    """
    section = result.compile
    if section is None or section.values_proved:
        return ""
    unknown = section.values_proved is None and section.proof is None
    return "not proved" if unknown else "refused"


def _paired(result: Result, baseline: str) -> Comparison | None:
    """What a cell says of itself and the baseline that it measured; None if it measured none."""
    timed = result.benchmark
    if timed is None or timed.paired is None or timed.paired.baseline["name"] != baseline:
        return None
    assert result.evidence is not None
    found = timed.paired
    interval = None
    if found.ratio_lo is not None and found.ratio_hi is not None:
        interval = Interval(found.ratio_lo, found.ratio_hi)
    return Comparison(
        baseline=result,
        kernel=result,
        baseline_ms=found.median_ms,
        kernel_ms=timed.median_ms,
        interval=interval,
        evidence=result.evidence,
        baseline_name=baseline,
        ratio=found.ratio,
        verdict=found.verdict,
    )


def _comparison(baseline: Result, kernel: Result) -> Comparison:
    kernel_ms, baseline_ms = time_ms(kernel), time_ms(baseline)
    assert kernel_ms is not None
    assert baseline_ms is not None
    assert kernel.evidence is not None
    assert baseline.evidence is not None
    interval, said = None, None
    if kernel.benchmark and baseline.benchmark:
        interval = ratio_interval(kernel.benchmark.samples_ms, baseline.benchmark.samples_ms)
    if kernel.compile and baseline.compile:
        baseline_ms, kernel_ms, interval = estimates(baseline.compile, kernel.compile)
        said = verdict(interval, 0.0) if interval else None
    return Comparison(
        baseline=baseline,
        kernel=kernel,
        baseline_ms=baseline_ms,
        kernel_ms=kernel_ms,
        interval=interval,
        evidence=weaker(kernel.evidence, baseline.evidence),
        baseline_name=label(baseline),
        verdict=said,
    )

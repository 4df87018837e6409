"""The `benchmark` section of a record: what a time is made of, with every raw sample.

All times are milliseconds. What is null by default was not kept by the first version of the lab, or
was not measured: a field beside it then says why.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from lab.records.model import Model

MAX_SAMPLES = 10_000  # more makes a record that nobody can read, and tells nothing more

StopReason = Literal["interval", "samples", "time", "fixed"]
Verdict = Literal["faster", "slower", "same", "ambiguous"]
Milliseconds = Annotated[float, Field(ge=0)]
Samples = Annotated[list[float], Field(max_length=MAX_SAMPLES)]


class Gate(Model):
    """The check of a cell's own inputs against the oracle that precedes timing."""

    passed: bool
    error: float | None
    bound: float
    measure: str


class Summary(Model):
    """Order statistics of `samples_ms`; lo and hi enclose the median with 95 percent."""

    lo_ms: float | None
    hi_ms: float | None
    q1_ms: float
    q3_ms: float
    min_ms: float
    max_ms: float
    outliers: int = Field(ge=0)


class Sampling(Model):
    """The stop rule, why it stopped, and the order of the arms in each block."""

    reason: StopReason
    elapsed_s: float
    seed: int
    order: list[str] = Field(max_length=MAX_SAMPLES)
    least: int
    most: int
    target: float
    limit_s: float


class Drift(Model):
    """A trend over the run: the change from first to last as a share of the median.

    `p_value` is that of Kendall's tau between time and sample, for no trend; null if too few.
    """

    share: float
    p_value: float | None
    detected: bool


class Noise(Model):
    """Interquartile range as a share of the median."""

    iqr_share: float
    detected: bool


class Compared(Model):
    """The kernel against another arm of the same blocks; `ratio` is kernel / other.

    Attributes:
        samples_ms: the other arm's, block by block as `benchmark.samples_ms`.
        ratio: median of the paired ratios; its bootstrap interval is null below 20 pairs.
        noise_floor: what an A/A control in the same blocks showed; null without one.
        margin: the larger of threshold and noise floor, below which nothing is a difference.
        own_noise: of a control: the noise floor that follows from its interval.
    """

    samples_ms: Samples
    median_ms: Milliseconds
    ratio: float = Field(gt=0)
    ratio_lo: float | None
    ratio_hi: float | None
    pairs: int
    resamples: int
    seed: int
    threshold: float
    noise_floor: float | None
    margin: float
    own_noise: float | None
    verdict: Verdict


class Paired(Compared):
    """The kernel against a baseline; `baseline` is its configuration."""

    baseline: dict[str, JsonValue]


class DeviceTime(Model):
    """Chained calls: (full - empty) / inner_calls is a sample of one call's device time."""

    inner_calls: int = Field(ge=1)
    full_ms: Samples
    empty_ms: Samples
    samples_ms: Samples
    median_ms: float
    lo_ms: float | None
    hi_ms: float | None


class ProfilerTime(Model):
    """Device time of one call by the profiler's events: the union of their intervals."""

    call_ms: Milliseconds
    calls: int = Field(ge=1)
    events: int = Field(ge=1)
    plane: str


class Conditions(Model):
    """Load and company during the samples; a field is null where the system does not tell.

    Attributes:
        load_before, load_after: the one-minute load average.
        others_cpu_share: share of all processors that other processes used, 0 to 1.
        other_workers: other timed or graded cells of this lab that ran when sampling ended.
        memory_available_bytes: before the samples.
        foreign_accelerator_processes: other processes that hold the accelerator.
        parallel_jobs: cells that the launcher runs at a time.
    """

    load_before: float
    load_after: float
    others_cpu_share: float | None
    other_workers: int
    memory_available_bytes: int
    foreign_accelerator_processes: int | None
    parallel_jobs: int = Field(ge=1)


class PhysicalFloor(Model):
    """The least time by the chip's peaks, work over peaks; `source` says where those come from."""

    ms: float
    flops: int
    hbm_bytes: int
    peak_tflops: float
    peak_hbm_gb_s: float
    source: str


class Recheck(Model):
    """The results of the last timed calls: the first's bits, or their error at the gate."""

    same_bits: bool
    error: float | None


class Spent(Model):
    """Wall seconds of the worker process, in order; all but two of them are the lab's own cost.

    Attributes:
        start_s: from the process's start on: Python, jax and the lab are imported.
        inputs_s: arrays are drawn, programs built and looked through for Pallas.
        compile_s: transfer, trace, lower, compile and first call of every program.
        gate_s: the results of the first calls are judged by the oracle.
        samples_s: the floor's program is compiled; warm-up, all samples, chained and traced calls.
        statistics_s: intervals, ratios, drift, the machine's conditions.
        recheck_s: the results of the last calls are judged.
    """

    start_s: float
    inputs_s: float
    compile_s: float
    gate_s: float
    samples_s: float
    statistics_s: float
    recheck_s: float

    @property
    def overhead_s(self) -> float:
        """What is neither compiling nor sampling."""
        own = (self.start_s, self.inputs_s, self.gate_s, self.statistics_s, self.recheck_s)
        return sum(own)


class BenchmarkSection(Model):
    """`benchmark` of a result.

    Attributes:
        lower_ms: lowering to StableHLO; with tracing, where `trace_ms` is null.
        samples_ms: of the time that `used` names, which is the one that tables and comparisons use.
        latency_ms: synchronised calls, where `used` is the device time.
        dispatch_floor_ms: median of an empty computation timed in the same blocks.
        peak_bytes: arguments, results and temporaries by the compiler's own count.
        flags: what must be known beside the median; see lab/timing/summaries.py.
    """

    transfer_ms: Milliseconds
    trace_ms: Milliseconds | None = None
    lower_ms: Milliseconds
    compile_ms: Milliseconds
    first_call_ms: Milliseconds
    warmups_ms: Samples
    used: Literal["latency", "device"] = "latency"
    samples_ms: list[float] = Field(min_length=1, max_length=MAX_SAMPLES)
    median_ms: Milliseconds
    summary: Summary | None = None
    sampling: Sampling | None = None
    drift: Drift | None = None
    noise: Noise | None = None
    dispatch_floor_ms: Milliseconds | None = None
    floor_samples_ms: Samples | None = None
    latency_ms: Samples | None = None
    device: DeviceTime | None = None
    no_device_time: str | None = None
    profiler: ProfilerTime | None = None
    control: Compared | None = None
    paired: Paired | None = None
    verdict: Verdict | None = None
    physical_floor: PhysicalFloor | None = None
    no_physical_floor: str | None = None
    peak_bytes: int | None = Field(default=None, ge=0)
    devices_used: int | None = Field(default=None, ge=1)
    conditions: Conditions | None = None
    spent: Spent | None = None
    flags: list[str] = Field(default_factory=list)
    gate: Gate
    recheck: Recheck | None = None

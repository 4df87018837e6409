"""The rows of the release's tables: the one place where columns, types, units and limits stand.

The Table Schema files, the Croissant description and the card's feature list are generated from
these models, and `task=verify` reads every row through them. A unit is the end of a column's name
(`UNITS`), so that no table can be read without it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lab.records import Evidence, Verdict

# The end of a column's name, and the unit it stands for.
UNITS = {"_ms": "ms", "_bytes": "B", "_flops": "FLOP", "_share": "1"}

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Milliseconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Length = Annotated[int, Field(ge=1)]
FinishedStatus = Literal["done", "unsupported", "failed", "timeout", "interrupted"]


class Row(BaseModel):
    """A row of any table: no unknown column, no NaN, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, strict=True)

    profile: Name = Field(description="Release profile that the row belongs to")


class RecordRow(Row):
    """A row made from one raw record."""

    record: Name = Field(description="Raw record: the file raw/<profile>/<record>.json")
    raw_sha256: Sha256 = Field(description="SHA-256 of that file")


class CaseRow(RecordRow):
    """A row about one implementation in one case."""

    cell_id: Name = Field(description="Identity of the resolved configuration")
    system: Name = Field(description="Row of the table systems that it ran on")
    kernel: Name = Field(description="Kernel under test, or the candidate that replaces it")
    kernel_options: str = Field(description="The kernel's own options, name=value")
    scope: Literal["softmax", "attention"] = Field(description="What is exercised")
    seq: Length = Field(description="Key length S")
    q_len: Length = Field(description="Query length T")
    dtype: Name = Field(description="Dtype policy")
    shape: Name = Field(description="Name of the shape")
    batch: Length = Field(description="Batch size B")
    q_heads: Length = Field(description="Query heads Hq")
    kv_heads: Length = Field(description="Key/value heads Hkv")
    head_dim: Length = Field(description="Width of a head D")
    causal: bool = Field(description="Whether causal masking applies (aligned bottom-right)")
    padding: Name = Field(description="How keys are hidden by the key mask")
    direction: Literal["forward", "backward"] = Field(description="Output, or output and gradients")
    seed: Count = Field(description="Seed of the inputs")
    regime: str = Field(description="Distribution of the inputs")
    evidence: Evidence | None = Field(description="Level of evidence; null when nothing came of it")
    interpret: bool | None = Field(description="Whether a Pallas kernel ran in interpret mode")
    status: FinishedStatus = Field(description="How the case ended")
    reason: str | None = Field(description="Why it did not end as done")


class Benchmark(CaseRow):
    """One timed case: phases apart, and the summary of its synchronised steady samples."""

    transfer_ms: Milliseconds | None = Field(description="Copying the inputs to the device")
    lower_ms: Milliseconds | None = Field(description="Tracing and lowering to StableHLO")
    compile_ms: Milliseconds | None = Field(description="Compiling")
    first_call_ms: Milliseconds | None = Field(description="First synchronised call")
    warmups: Count | None = Field(description="Warm-up calls, timed but outside the summary")
    samples: Count | None = Field(description="Timed synchronised calls in the summary")
    median_ms: Milliseconds | None = Field(description="Median of the samples")
    median_lo_ms: Milliseconds | None = Field(
        description="Lower end of its 95% interval by order statistics; null below 6 samples"
    )
    median_hi_ms: Milliseconds | None = Field(description="Upper end of that interval or band")
    q1_ms: Milliseconds | None = Field(description="First quartile of the samples")
    q3_ms: Milliseconds | None = Field(description="Third quartile of the samples")
    min_ms: Milliseconds | None = Field(description="Fastest sample")
    max_ms: Milliseconds | None = Field(description="Slowest sample")
    devices_used: Length | None = Field(description="Devices that held arrays of the case")
    outliers: Count | None = Field(
        description="Samples beyond 1.5 interquartile ranges of the quartiles; counted, not dropped"
    )
    gate_passed: bool | None = Field(description="Whether the output matched the oracle first")
    gate_error: float | None = Field(description="Its error, in the gate's own measure")
    gate_bound: float | None = Field(description="The largest error allowed")
    cache_state: str | None = Field(description="State of the compilation cache")


class Comparison(Row):
    """One kernel against the baseline in the same case on the same system."""

    scope: Literal["softmax", "attention"] = Field(description="What is exercised")
    seq: Length = Field(description="Key length S")
    q_len: Length = Field(description="Query length T")
    dtype: Name = Field(description="Dtype policy")
    shape: Name = Field(description="Name of the shape")
    direction: Literal["forward", "backward"] = Field(description="Output, or output and gradients")
    baseline: Name = Field(description="Baseline kernel")
    kernel: Name = Field(description="Kernel compared with it")
    kernel_options: str = Field(description="The kernel's own options, name=value")
    baseline_ms: Milliseconds = Field(description="Baseline: median, or compiler's estimate")
    kernel_ms: Milliseconds = Field(description="Kernel: median, or compiler's estimate")
    slowdown: float = Field(
        gt=0, description="kernel_ms / baseline_ms; above 1 the kernel is slower"
    )
    slowdown_lo: float | None = Field(
        ge=0,
        description="Lower end of an interval of at least 95%, or of the band of two estimates; "
        "null where there is neither",
    )
    slowdown_hi: float | None = Field(ge=0, description="Upper end of that interval or band")
    evidence: Evidence = Field(description="The weaker level of the two sides")
    device_kind: str = Field(description="Device that ran both, or that both were compiled for")
    baseline_cell: Name = Field(description="Raw record of the baseline")
    kernel_cell: Name = Field(description="Raw record of the kernel")


class Correctness(CaseRow):
    """One check of one implementation against the float64 oracle."""

    check: Name = Field(description="What is checked")
    passed: bool = Field(description="Whether error <= bound")
    error: float | None = Field(ge=0, description="Largest error; null: not a finite number")
    bound: float = Field(ge=0, description="Largest error allowed, in the same measure")


class Rubric(CaseRow):
    """The grader's verdict on one candidate."""

    kind: Name = Field(description="reference, known-bad, low-precision, control or custom")
    score: float | None = Field(ge=0, description="Points earned")
    max_score: float | None = Field(ge=0, description="Points there were")
    verdict: Verdict | None = Field(description="What the grader says")
    expected: Verdict = Field(description="What it should say")
    as_expected: bool | None = Field(description="Whether verdict equals expected")
    tier: str | None = Field(description="Precision tier that the candidate was accepted at")
    fault_class: str | None = Field(description="Class of the fault, as the grader names it")
    items: Count | None = Field(description="Risks that were scored")
    failed_items: str | None = Field(description="Ids of the items that failed, by comma")


class Estimate(CaseRow):
    """One case compiled for a TPU without a TPU, and the time its compiler expects."""

    target: Name = Field(description="Chip compiled for")
    validated: bool | None = Field(description="Whether its estimates were checked on hardware")
    cost_model_ms: Milliseconds | None = Field(description="From estimated cycles in the HLO")
    static_profile_ms: Milliseconds | None = Field(description="From libtpu's static profile")
    schedule_ms: Milliseconds | None = Field(description="From executing the final schedule")
    estimated_ms: Milliseconds | None = Field(
        description="Expected device time by the documented rule; an estimate, not a measurement"
    )
    no_estimate: str | None = Field(description="Why there is no estimate")
    floor_ms: Milliseconds | None = Field(description="Least time: work over the chip's peaks")
    floor_bound_by: Literal["compute", "memory"] | None = Field(description="Which peak binds")
    work_flops: Count | None = Field(description="Operations that the case needs at the least")
    hbm_bytes: Count | None = Field(description="HBM traffic that the case needs at the least")
    argument_bytes: Count | None = Field(description="HBM of the arguments, by the compiler")
    output_bytes: Count | None = Field(description="HBM of the results, by the compiler")
    temporary_bytes: Count | None = Field(description="HBM of temporaries, by the compiler")
    vmem_used_bytes: Count | None = Field(description="VMEM of the op that takes most")
    vmem_limit_bytes: Count | None = Field(description="VMEM that this op may take")


class System(Row):
    """One machine and its libraries."""

    system: Name = Field(description="Identity: a hash of the row's other columns")
    platform: str | None = Field(description="JAX platform: cpu, tpu, gpu; null: no device asked")
    device_kind: str | None = Field(description="Device kind as JAX names it")
    device_count: Count | None = Field(description="Devices visible")
    cpu_model: str = Field(description="Host processor")
    cpu_count: Length = Field(description="Host processors visible")
    python: str = Field(description="Version of Python")
    jax: str | None = Field(description="Version of jax")
    jaxlib: str | None = Field(description="Version of jaxlib")
    libtpu: str | None = Field(description="Version of libtpu")
    numpy: str = Field(description="Version of NumPy")
    hydra: str = Field(description="Version of hydra-core")
    omegaconf: str = Field(description="Version of omegaconf")
    records: Length = Field(description="Raw records from this system")


class Bootstrap(RecordRow):
    """One look at the machine before the measurement; failed first pairings stay here."""

    started_at: str = Field(description="When, UTC")
    system: Name = Field(description="Row of the table systems")
    ready: bool = Field(description="Whether the lab could run here")
    pairing_fits: bool | None = Field(description="Whether jax, jaxlib and libtpu fit each other")
    canary_passed: bool | None = Field(description="Whether a small kernel compiled and was right")
    advice: str | None = Field(description="What to do, in plain words")


class Provenance(RecordRow):
    """Where one raw record comes from."""

    task: Name = Field(description="What was done")
    cell_id: Name = Field(description="Identity of the resolved configuration")
    status: FinishedStatus = Field(description="How the case ended")
    system: Name = Field(description="Row of the table systems")
    overrides: str = Field(description="Command-line overrides, shell-quoted")
    config_sha256: Sha256 = Field(
        description="SHA-256 of the resolved configuration's one-line JSON"
    )
    code_sha256: Sha256 = Field(description="Identity of the code that ran")
    commit: str | None = Field(description="Commit of the code")
    dirty: bool | None = Field(description="Whether that commit had uncommitted changes")
    started_at: str = Field(description="Start, UTC")
    finished_at: str = Field(description="End, UTC")


# In the order of the card. A table's file is `<name>.jsonl`; a table with no rows has no file.
TABLES: dict[str, type[Row]] = {
    "comparisons": Comparison,
    "benchmarks": Benchmark,
    "correctness": Correctness,
    "rubric": Rubric,
    "estimates": Estimate,
    "bootstrap": Bootstrap,
    "systems": System,
    "provenance": Provenance,
}
# The columns that tell rows apart, by which tables are sorted.
KEYS: dict[str, tuple[str, ...]] = {
    "comparisons": (
        "profile", "evidence", "direction", "dtype", "shape", "scope", "q_len", "seq", "kernel",
        "kernel_options", "kernel_cell", "baseline_cell",
    ),
    "benchmarks": ("profile", "direction", "scope", "kernel", "q_len", "seq", "record"),
    "correctness": ("profile", "scope", "kernel", "dtype", "record", "check"),
    "rubric": ("profile", "kind", "kernel", "record"),
    "estimates": ("profile", "target", "direction", "scope", "kernel", "q_len", "seq", "record"),
    "bootstrap": ("profile", "started_at", "record"),
    "systems": ("profile", "system"),
    "provenance": ("profile", "record"),
}  # fmt: skip


def unit(column: str) -> str | None:
    """The unit of a column by its name, or None for one that has none."""
    return next((name for end, name in UNITS.items() if column.endswith(end)), None)


def sort_key(table: str, row: Row) -> tuple[str | int, ...]:
    """What a table is sorted by: columns that are never null."""
    return tuple(getattr(row, column) for column in KEYS[table])

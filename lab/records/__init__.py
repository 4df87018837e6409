"""The schema of every file a run leaves, validated on write and on read.

A record that does not fit is refused with the field and the reason; readers get models, never
half-known dictionaries. No jax here: reports, releases and verification read these files alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from lab.records.benchmark import BenchmarkSection
from lab.records.model import Model

SCHEMA_VERSION = 1
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"

StatusName = Literal["running", "done", "unsupported", "failed", "timeout", "interrupted"]
Evidence = Literal["interpreted", "compiled", "estimated", "measured"]
# From weakest to strongest; a comparison has the weaker level of its two sides.
EVIDENCE_ORDER: tuple[Evidence, ...] = ("interpreted", "compiled", "estimated", "measured")
Verdict = Literal["accepted", "accepted_lower_tier", "rejected"]


class CellNames(Model):
    """The cell in plain names and integers."""

    task: str
    kernel: str
    scope: str
    seq: int = Field(ge=1)
    q_len: int = Field(ge=1)
    dtype: str
    shape: str
    candidate: str
    direction: str
    target: str | None


class ErrorInfo(Model):
    """What went wrong; `file` (in the run directory) holds the full text."""

    type: str
    message: str
    file: str | None


class Device(Model):
    """The attached devices as a worker saw them; null where none was asked."""

    platform: str | None = None
    device_kind: str | None = None
    device_count: int | None = None
    matmul_precision: str | None = None


class Environment(Model):
    """What ran the cell. The device fields are null where no device was asked.

    The last three are null in records of the first version of the lab.
    """

    python: str
    jax: str | None
    jaxlib: str | None
    libtpu: str | None
    hydra: str
    omegaconf: str
    numpy: str
    platform: str | None
    device_kind: str | None
    device_count: int | None
    cpu_model: str
    cpu_count: int
    commit: str | None
    dirty: bool | None
    flags: dict[str, str]
    memory_bytes: int | None = None
    governor: str | None = None
    matmul_precision: str | None = None


class CorrectnessCheck(Model):
    """One check against the oracle: passed when error <= bound (both in the check's own measure).

    `error` is null when an output was not finite where it must be; `margin` = bound / error, null
    where the error is 0 or null.
    """

    name: str
    passed: bool
    error: float | None
    bound: float
    margin: float | None
    note: str | None = None


class CorrectnessSection(Model):
    """`correctness` of a result."""

    checks: list[CorrectnessCheck]


class Worst(Model):
    """Where the largest error is, in units of its bound; units null: not a finite number."""

    case: str | None = None
    output: str | None = None
    units: float | None
    batch: int | None
    head: int | None
    row: int | None


class RubricItem(Model):
    """One risk of the scorecard; `covered`: whether any answer spoke of it."""

    id: str
    points: float = Field(ge=0)
    earned: float = Field(ge=0)
    passed: bool
    covered: bool = True
    note: str | None = None


class RubricSection(Model):
    """`rubric` of a result."""

    score: float
    max_score: float
    verdict: Verdict
    expected: Verdict
    tier: str | None
    fault_class: str | None
    worst: Worst | None
    items: list[RubricItem]
    advice: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class AuditSection(Model):
    """`audit` of a result: the headline figures; the tables lie beside it as files."""

    size: str
    summary: dict[str, Any]
    files: list[str]


class CompileFiles(Model):
    """Texts beside the record, named from the run directory; .gz where they are large."""

    stablehlo: str
    hlo: str
    dumps: str | None = None


class PallasCall(Model):
    """A Pallas kernel of the program, and what it does itself; a loop's body counts once."""

    name: str
    grid: list[int]
    dots: int = Field(ge=0)
    reductions: int = Field(ge=0)


class XlaOwned(Model):
    """What the program leaves to XLA."""

    dots: int = Field(ge=0)
    reductions: int = Field(ge=0)


class CompileBoundary(Model):
    """Which products and reductions are inside Pallas calls, and which are XLA's."""

    pallas_calls: list[PallasCall]
    xla: XlaOwned


class CompileMemory(Model):
    """HBM of the compiled program, as the compiler states it."""

    argument_bytes: int = Field(ge=0)
    output_bytes: int = Field(ge=0)
    temporary_bytes: int = Field(ge=0)
    code_bytes: int = Field(ge=0)
    hbm_limit_bytes: int = Field(gt=0)


class CompileVmem(Model):
    """The op that takes most scoped VMEM; `limit_bytes` is its own limit, not the chip's."""

    op: str | None
    used_bytes: int = Field(ge=0)
    limit_bytes: int = Field(gt=0)
    capacity_bytes: int = Field(gt=0)


class CompileWork(Model):
    """The least the cell must do, counted analytically, and the time a chip needs for that."""

    flops: int = Field(ge=0)
    hbm_bytes: int = Field(gt=0)
    intensity_flops_per_byte: float = Field(ge=0)
    peak_tflops: float = Field(gt=0)
    peak_hbm_gb_s: float = Field(gt=0)
    peak_source: str
    most_flops: int | None = None


class CompileProof(Model):
    """Whether the compiled program's values were proved; `proved` is null where `reason` says why.

    `rows` of `of_rows` query rows were judged against the float64 oracle on inputs of `seed`;
    `error` is the worst in units of the rounding bound. `fingerprint` names the lowered program.
    """

    proved: bool | None
    reason: str | None
    fingerprint: str | None = None
    seed: int | None = None
    rows: int | None = None
    of_rows: int | None = None
    error: float | None = None
    seconds: float | None = None


class CompileOp(Model):
    """One timed op: cycles of one execution by each source, and the source that counts.

    A `copy` is an asynchronous copy of XLA's; its `channel_cycles` are what the program waits for
    it. Those of an op that only moves values are what its bytes need on the channel to HBM.
    """

    name: str
    kind: Literal["xla", "pallas", "copy"]
    count: int = Field(ge=1)
    contains: list[str]
    estimated_cycles: int | None
    source: Literal["cost_model", "static_profile", "schedule", "channel"] | None
    cost_model_cycles: int | None
    static_profile_cycles: int | None
    schedule_cycles: int | None
    channel_cycles: int | None = None
    hbm_bytes: int | None = None
    schedule_problem: str | None
    scoped_vmem_bytes: int = Field(ge=0)


class CompileLoop(Model):
    """A loop of an op's final schedule; `use` is the share of busy slots by unit, 0 to 1."""

    op: str
    loop: str
    trips: int = Field(ge=0)
    cycles: int = Field(ge=0)
    share: float
    bound_by: str
    dma_bytes: int = Field(ge=0)
    copy_waits: float
    latency: float
    use: dict[str, float]


class Implementation(Model):
    """A kernel that a program calls, the sizes it was given, and who chose them.

    `chosen` is such as `tuned for v5e`, `untuned fallback`, `as given`.
    """

    name: str
    sizes: dict[str, int]
    chosen: str

    @property
    def line(self) -> str:
        """`flash forward: block_q 512, block_k 256: untuned fallback`."""
        sizes = ", ".join(f"{name} {size}" for name, size in self.sizes.items())
        return f"{self.name}: {sizes}: {self.chosen}"


class CompileSection(Model):
    """`compile` of a result: what the TPU compiler made of a cell, and the device time it expects.

    A `*_ms` of a source is null unless the source has a figure for every op. `estimated_ms` follows
    `rule`; where it is null, `no_estimate` says why (`estimated_cycles` may still be there: where
    no clock is public). `implementation` is what the kernel said of itself: its blocks, and whether
    they were tuned. `label` must stand beside every time. Only
    where `values_proved` is true may an estimate be compared, or enter a table.
    """

    target: str
    device_kind: str
    attached: bool
    validated: bool
    label: str | None
    jax: str
    jaxlib: str
    libtpu: str
    seconds: dict[str, float]
    files: CompileFiles
    boundary: CompileBoundary
    memory: CompileMemory
    vmem: CompileVmem
    work: CompileWork
    floor_ms: float = Field(gt=0)
    floor_bound_by: Literal["compute", "memory"]
    rule: str
    cost_model_ms: float | None
    static_profile_ms: float | None
    schedule_ms: float | None
    estimated_ms: float | None
    estimated_cycles: int | None = None
    no_estimate: str | None
    implementation: list[Implementation] = Field(default_factory=list)
    values_proved: bool | None = None
    proof: CompileProof | None = None
    scalars: dict[str, list[int]] = Field(default_factory=dict)
    floor_share: float | None
    achieved_tflops: float | None
    ops: list[CompileOp]
    loops: list[CompileLoop]
    warnings: list[str]

    @property
    def rating(self) -> float | None:
        """What a search minimises: ms, or cycles where no clock is public; None for no winner."""
        if self.values_proved is not True:
            return None
        return self.estimated_cycles if self.estimated_ms is None else self.estimated_ms

    @model_validator(mode="after")
    def _one_answer(self) -> CompileSection:
        if (self.estimated_ms is None) == (self.no_estimate is None):
            raise ValueError("exactly one of estimated_ms and no_estimate is null")
        if self.estimated_ms is not None and self.estimated_ms < self.floor_ms:
            raise ValueError("an estimate below the floor is no estimate")
        if (self.label is None) != self.validated:
            raise ValueError("a target that was not validated carries its label")
        return self


class ReportSection(Model):
    """`report` of a result."""

    cells: int
    comparisons: int
    skipped: list[str]
    files: list[str]


class ComparedCell(Model):
    """One cell before and after; `ratio` is after / before, null where either has no time."""

    case: str
    verdict: Literal["faster", "slower", "same", "ambiguous", "missing"]
    regression: bool
    evidence: Evidence | None
    before_ms: float | None
    after_ms: float | None
    ratio: float | None
    ratio_lo: float | None
    ratio_hi: float | None
    margin: float | None
    before_peak_bytes: int | None
    after_peak_bytes: int | None
    differs: list[str]
    note: str | None
    before: str | None
    after: str | None


class CompareSection(Model):
    """`compare` of a result: two sets of runs, cell by cell."""

    before: str
    after: str
    max_regression: float
    threshold: float
    cells: list[ComparedCell]
    regressions: int = Field(ge=0)
    compared: int = Field(ge=0)
    files: list[str]


class ReleaseSection(Model):
    """`release` of a result."""

    profile: str
    out: str
    records: int
    files: int


class VerifyCheck(Model):
    """One check of a release: what it looks at, and the first of the `count` problems it found."""

    name: str
    purpose: str
    passed: bool
    problems: list[str]
    count: int


class VerifySection(Model):
    """`verify` of a result."""

    path: str
    passed: bool
    checks: list[VerifyCheck]


class PairingPart(Model):
    """A package beside jax: installed and needed versions; `fits` is null if it is missing."""

    package: str
    installed: str | None
    wanted: str
    fits: bool | None


class DoctorSection(Model):
    """`doctor` of a result: what this machine is and can do.

    `ready` means that the libraries fit and that the canary kernel was right; else `advice` says
    what to do. `pairing_fits` and `canary_passed` are null where it did not come to that.
    """

    ready: bool
    device: str | None
    pairing_fits: bool | None
    pairing: list[PairingPart]
    canary_passed: bool | None
    canary: str
    tasks: dict[str, str]
    advice: str | None
    next_command: str


class CampaignStep(Model):
    """One command of a campaign; `exit_code` is null where there was no time left to start it."""

    name: str
    arguments: list[str]
    as_expected: bool
    exit_code: int | None
    seconds: float | None = None
    note: str | None = None


class CampaignSection(Model):
    """`campaign` of a result."""

    name: str
    steps: list[CampaignStep]
    package: str | None


class TunedCase(Model):
    """One search of task=tune: its winner, and whether that entered the table.

    `kept`: the table's entry, of the same kernel, is as fast; `none`: `reason` says why.
    """

    case: str
    outcome: Literal["entered", "kept", "none"]
    reason: str | None
    cells: int = Field(ge=0)
    cell_id: str | None = None
    options: dict[str, int] = Field(default_factory=dict)
    estimated_ms: float | None = None
    estimated_cycles: int | None = None


class TuneSection(Model):
    """`tune` of a result."""

    target: str
    cases: list[TunedCase]


Section = (
    BenchmarkSection
    | CorrectnessSection
    | RubricSection
    | AuditSection
    | CompileSection
    | ReportSection
    | CompareSection
    | ReleaseSection
    | VerifySection
    | DoctorSection
    | CampaignSection
    | TuneSection
)
# BenchmarkSection is the section of task=benchmark, and so on.
SECTIONS = tuple(kind.__name__.removesuffix("Section").lower() for kind in get_args(Section))
# Tasks that say nothing about a kernel, so that no level of evidence applies.
LEVEL_FREE_TASKS = ("report", "compare", "release", "verify", "doctor", "audit", "campaign", "tune")


class Status(Model):
    """status.json: written first and last."""

    schema_version: Literal[1]
    cell_id: str
    status: StatusName
    reason: str | None
    pid: int
    started_at: str
    finished_at: str | None


class Result(Model):
    """result.json: one finished cell, whatever came of it."""

    schema_version: Literal[1]
    task: str
    cell_id: str
    status: StatusName
    reason: str | None
    evidence: Evidence | None
    cell: CellNames
    config: dict[str, Any]
    overrides: list[str]
    seed: int
    regime: str
    interpret: bool | None
    cache_state: str | None
    code_sha256: str
    environment: Environment
    started_at: str
    finished_at: str
    error: ErrorInfo | None
    benchmark: BenchmarkSection | None = None
    correctness: CorrectnessSection | None = None
    rubric: RubricSection | None = None
    audit: AuditSection | None = None
    compile: CompileSection | None = None
    report: ReportSection | None = None
    compare: CompareSection | None = None
    release: ReleaseSection | None = None
    verify: VerifySection | None = None
    doctor: DoctorSection | None = None
    campaign: CampaignSection | None = None
    tune: TuneSection | None = None

    @model_validator(mode="after")
    def _sections_fit(self) -> Result:
        present = [name for name in SECTIONS if getattr(self, name) is not None]
        if any(name != self.task for name in present):
            raise ValueError(f"sections {present} in a record of task {self.task}")
        if self.status == "done":
            if not present:
                raise ValueError(f"a done record of task {self.task} needs its section")
            if (self.evidence is None) != (self.task in LEVEL_FREE_TASKS):
                raise ValueError(f"evidence {self.evidence} does not fit task {self.task}")
        if self.status == "running":
            raise ValueError("a result is never 'running'")
        return self


M = TypeVar("M", bound=BaseModel)


class InvalidRecord(Exception):  # noqa: N818 - reads as what the file is
    """A file that is no valid record: names the file and the first reason."""


def dump(model: BaseModel) -> str:
    """The canonical text of a record: indented JSON, absent sections left out."""
    data = model.model_dump(mode="json")
    data = {k: v for k, v in data.items() if not (k in SECTIONS and v is None)}
    return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary file beside `path`, flush it to disk, then rename: whole or absent."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say where
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write(path: Path, model: BaseModel) -> None:
    """Validate by construction, then write atomically."""
    write_atomically(path, dump(model))


def read(path: Path, model: type[M]) -> M:
    """Read and validate one record.

    Raises:
        InvalidRecord: the file is missing, truncated, no JSON, or does not fit the schema.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidRecord(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidRecord(f"{path}: {where}: {first['msg']}") from None


def weaker(a: Evidence, b: Evidence) -> Evidence:
    """The weaker of two levels of evidence."""
    return min(a, b, key=EVIDENCE_ORDER.index)

"""The typed schema behind conf/: a wrong type, an unknown key or a missing value is an error.

Hydra merges the YAML groups into these dataclasses. What a type cannot say (ranges, values that
must fit each other) is said by `check`, before the first cell runs.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from lab.errors import UserError
from lab.kernels import options
from lab.records import Verdict
from lab.records.benchmark import MAX_SAMPLES
from lab.truth.problems import POLICIES, REGIMES, Shape
from lab.worker import PACKAGE_ROOT

# The tiers of lab/grading/judge/tiers.py, which takes longer to import than a command line should.
TIER_NAMES = ("fp32", "bf16", "bf16_scores", "bf16_accumulate")
ARGUMENT_DTYPES = ("bfloat16", "float32", "int32", "int16", "int8", "uint8", "bool")


class Direction(StrEnum):
    """What is timed or compiled: the output alone, or the output and the gradients."""

    forward = "forward"
    backward = "backward"


class Causality(StrEnum):
    """Which causal flags a candidate accepts."""

    both = "both"
    causal = "causal"
    full = "full"


class Contract(StrEnum):
    """What a stranger's function is: the lab's attention, or any function of arrays."""

    attention = "attention"
    function = "function"


class BackwardSupport(StrEnum):
    """Whether a custom candidate is differentiated: try, insist, or leave out."""

    auto = "auto"
    required = "required"
    none = "none"


class TimeKind(StrEnum):
    """Which time is sampled and compared: synchronised calls, or chained calls on the device."""

    latency = "latency"
    device = "device"


class Padding(StrEnum):
    """How keys are hidden by the key mask."""

    none = "none"
    tail = "tail"
    head = "head"
    hole = "hole"
    random = "random"
    mixed = "mixed"
    empty = "empty"


@dataclass
class TaskConfig:
    """What is done with a cell."""

    name: str = MISSING


@dataclass
class ScopeConfig:
    """What is exercised: the masked softmax alone, or the whole attention."""

    name: str = MISSING


@dataclass
class DtypeConfig:
    """A dtype policy: what arrives, what is computed in, what leaves."""

    name: str = MISSING
    input: str = MISSING
    logits: str = MISSING
    accumulation: str = MISSING
    output: str = MISSING


@dataclass
class ShapeConfig:
    """Everything about the arrays but the two lengths."""

    name: str = MISSING
    batch: int = MISSING
    q_heads: int = MISSING
    kv_heads: int = MISSING
    head_dim: int = MISSING
    causal: bool = MISSING
    padding: Padding = MISSING


@dataclass
class Supports:
    """What a custom candidate declares it can do; the rest is listed as coverage.

    Attributes:
        head_dims: the head widths it takes; None for all.
        length_multiple_of: both lengths, T and S, are multiples of this.
        causal: which calls it takes.
        key_mask: whether it takes a key mask.
    """

    head_dims: list[int] | None = None
    length_multiple_of: int = 1
    causal: Causality = Causality.both
    key_mask: bool = True


@dataclass
class CandidateConfig:
    """The implementation under test; `reference` stands for the configured kernel."""

    name: str = MISSING
    kind: str = MISSING  # reference | known-bad | low-precision | control | custom
    expected: str = MISSING  # accepted | accepted_lower_tier | rejected
    description: str | None = None
    fault_class: str | None = None
    caught_by: str | None = None
    inspired_by: str | None = None
    equivalent_when: str | None = None
    module: str | None = None
    function: str | None = None
    # A stranger's file.
    path: str | None = None
    contract: Contract = Contract.attention
    # Mappings that a command line fills: Any, for Hydra adds no key to a typed one.
    arguments: Any = None  # of a function: name -> [dtype, sizes ...]
    options: Any = None  # keyword arguments of a function
    claims: str | None = None  # pallas
    backward: BackwardSupport = BackwardSupport.auto
    tier: str | None = None  # fp32 | bf16 | bf16_scores | bf16_accumulate; None: the policy's
    supports: Supports = field(default_factory=Supports)
    call_limit_s: float = 60.0
    memory_limit_mib: int = 4096
    output_limit_mib: int = 256


@dataclass
class Chip:
    """One JAX device of a generation: what is compiled for.

    Peaks are datasheet figures: they make a roofline, and are never measurements. Without a public
    clock (None) there are cycles, but no milliseconds.
    """

    name: str = MISSING
    kind: str = MISSING
    topology: str = MISSING
    clock_ghz: float | None = None
    bf16_tflops: float = MISSING
    hbm_gb_s: float = MISSING
    hbm_gib: float = MISSING
    vmem_mib: float = MISSING
    scoped_vmem_mib: float = MISSING
    cores_per_device: int = 1
    devices_per_chip: int = 1
    validated: bool = False
    source: str = MISSING

    @property
    def hbm_bytes(self) -> int:
        """Its memory."""
        return int(self.hbm_gib * 2**30)

    @property
    def vmem_bytes(self) -> int:
        """All of its vector memory."""
        return int(self.vmem_mib * 2**20)

    @property
    def scoped_vmem_bytes(self) -> int:
        """What a kernel gets of it unless it asks for more."""
        return int(self.scoped_vmem_mib * 2**20)


@dataclass
class ReleaseConfig:
    """One profile of the data release and what a run must show to enter it."""

    name: str | None = None
    runs: list[str] = field(default_factory=list)
    out: str = "dataset"
    evidence: str | None = None  # also write the evidence pages into this folder
    profile: Any = None


@dataclass
class CampaignConfig:
    """A whole measurement: which tasks over which cells, packed into one file."""

    name: str | None = None
    device: str | None = None  # cpu | gpu | tpu: the platform that it measures
    out: str | None = None  # default: runs/campaign-NAME; the same directory resumes
    limit_s: float | None = None  # no step runs on beyond this many seconds
    steps: Any = None  # name and overrides each, run as sweeps


@dataclass
class TuneConfig:
    """What task=tune searches, and where the winners go."""

    name: str | None = None
    cases: Any = None  # name -> cell, experiment, search: see conf/tune
    only: list[str] = field(default_factory=list)  # names of cases; default: all
    runs: list[str] = field(default_factory=list)  # enter what was searched there; search nothing
    table: str | None = None  # default: the kernel's own table
    records: str | None = None  # where the winners' records are kept; default: evidence/tuning


@dataclass
class BenchmarkConfig:
    """How a cell is timed; what each key means is in conf/config.yaml."""

    warmups: int = 5
    warmup_ms: float = 100.0
    samples: int = 20
    max_samples: int = 1000
    target: float = 0.05
    limit_s: float = 10.0
    time: TimeKind = TimeKind.latency
    baseline: str | None = None
    control: bool = False
    threshold: float = 0.02
    device_time: bool = True
    quick: bool = False


@dataclass
class CompileConfig:
    """What a compiled cell is asked beyond its time; what each key means is in conf/config.yaml."""

    prove: bool = True
    prove_cpu_s: int = 40
    profile: bool = False
    keep_dumps: bool = False
    scalars: Any = None  # argument -> list of integers


@dataclass
class RubricConfig:
    """How a scorecard becomes an exit code."""

    fail_under: float | None = None


@dataclass
class AuditConfig:
    """How much of the grader's audit runs: `quick` or `full`."""

    size: str = "quick"
    workers: int = 2


@dataclass
class ReportConfig:
    """Which runs a report reads, and what it draws beside them."""

    runs: list[str] = field(default_factory=list)
    overlay: str | None = None  # published
    baseline: str = "xla"
    merge_machines: bool = False


@dataclass
class CompareConfig:
    """Two sets of runs, cell by cell."""

    before: str | None = None
    after: str | None = None
    max_regression: float = 0.1
    threshold: float = 0.02


@dataclass
class VerifyConfig:
    """Which release is verified."""

    path: str = "dataset"


@dataclass
class LabConfig:
    """The root: one fully resolved instance is a cell."""

    task: TaskConfig = field(default_factory=TaskConfig)
    kernel: Any = MISSING  # name, module and the kernel's own options: see lab/kernels/options.py
    scope: ScopeConfig = field(default_factory=ScopeConfig)
    dtype: DtypeConfig = field(default_factory=DtypeConfig)
    shape: ShapeConfig = field(default_factory=ShapeConfig)
    candidate: CandidateConfig = field(default_factory=CandidateConfig)
    target: Chip = field(default_factory=Chip)
    release: ReleaseConfig = field(default_factory=ReleaseConfig)
    campaign: CampaignConfig = field(default_factory=CampaignConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    seq: int = 256
    q_len: int | None = None
    seed: int = 0
    regime: str = "normal"
    direction: Direction = Direction.forward
    deadline_s: float = 600.0
    resume: bool = True
    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    compile: CompileConfig = field(default_factory=CompileConfig)
    rubric: RubricConfig = field(default_factory=RubricConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    compare: CompareConfig = field(default_factory=CompareConfig)
    verify: VerifyConfig = field(default_factory=VerifyConfig)


def register() -> None:
    """Tell Hydra the kernels, and the schema that `defaults` of conf/config.yaml begins with."""
    options.register()
    ConfigStore.instance().store(name="lab_schema", node=LabConfig)


def config_directory() -> Path:
    """conf/ beside the package in a checkout, inside the package in an installed wheel."""
    checkout = PACKAGE_ROOT / "conf"
    return checkout if (checkout / "config.yaml").is_file() else PACKAGE_ROOT / "lab" / "conf"


@functools.cache
def chips() -> dict[str, Chip]:
    """The chips of conf/target, by JAX's name of the device."""
    found: dict[str, Chip] = {}
    for path in sorted((config_directory() / "target").glob("*.yaml")):
        chip = OmegaConf.to_object(
            OmegaConf.merge(OmegaConf.structured(Chip), OmegaConf.load(path))
        )
        assert isinstance(chip, Chip)
        found[chip.kind] = chip
    return found


def check(config: LabConfig) -> None:
    """Refuse what types cannot.

    Raises:
        UserError: names the key, what was given and what is allowed.
    """
    options.check(config.kernel)
    if config.regime not in REGIMES:
        raise UserError(f"regime={config.regime}: allowed are {', '.join(REGIMES)}")
    if config.dtype.name not in POLICIES:
        raise UserError(f"dtype.name={config.dtype.name}: allowed are {', '.join(POLICIES)}")
    _require(config.seq >= 1, "seq", config.seq, "a whole number of at least 1")
    _require(config.seed >= 0, "seed", config.seed, "a whole number of at least 0")
    _require(config.deadline_s > 0, "deadline_s", config.deadline_s, "seconds above 0")
    _check_benchmark(config.benchmark)
    _require(
        config.report.overlay in (None, "published"),
        "report.overlay",
        config.report.overlay,
        "null or published",
    )
    for key, value in _leaves(to_plain(config)):
        finite = not isinstance(value, float) or math.isfinite(value)
        _require(finite, key, value, "a finite number")
    _check_groups(config)
    _check_limits(config.candidate)
    if config.candidate.kind == "custom":
        _check_custom(config.candidate)
    problem_shape(config)  # raises UserError for impossible shapes


def _require(holds: bool, key: str, given: object, allowed: str) -> None:
    if not holds:
        raise UserError(f"{key}={given}: allowed is {allowed}")


def _one_of(key: str, given: object, allowed: Iterable[object]) -> None:
    names = ["null" if name is None else str(name) for name in allowed]
    name = "null" if given is None else str(given)
    _require(name in names, key, name, " or ".join(names))


def _check_benchmark(benchmark: BenchmarkConfig) -> None:
    """Refuse a budget that cannot be kept, and a baseline that is no kernel."""
    whole = {"samples": 1, "max_samples": 1, "warmups": 0}
    for key, least in whole.items():
        value = getattr(benchmark, key)
        _require(
            least <= value <= MAX_SAMPLES, f"benchmark.{key}", value, f"{least} to {MAX_SAMPLES}"
        )
    for key in ("warmup_ms", "threshold"):
        value = getattr(benchmark, key)
        _require(value >= 0, f"benchmark.{key}", value, "a number of at least 0")
    for key in ("target", "limit_s"):
        value = getattr(benchmark, key)
        _require(value > 0, f"benchmark.{key}", value, "a number above 0")
    _one_of("benchmark.baseline", benchmark.baseline, (None, *options.KERNELS))


def _check_groups(config: LabConfig) -> None:
    """Refuse values that would make a record say what did not run."""
    _one_of("scope.name", config.scope.name, ("softmax", "attention"))
    for key, value in asdict(POLICIES[config.dtype.name]).items():
        _one_of(f"dtype.{key}", getattr(config.dtype, key), (value,))
    candidate, target = config.candidate, config.target
    _one_of("candidate.expected", candidate.expected, get_args(Verdict))
    _one_of("candidate.tier", candidate.tier, (None, *TIER_NAMES))
    if candidate.name != "reference" and config.scope.name == "softmax":
        raise UserError(
            f"scope=softmax with candidate={candidate.name}: a candidate is an attention; "
            "use scope=attention"
        )
    for key in ("max_regression", "threshold"):
        value = getattr(config.compare, key)
        _require(value >= 0, f"compare.{key}", value, "a number of at least 0")
    _require(
        config.compile.prove_cpu_s >= 1,
        "compile.prove_cpu_s",
        config.compile.prove_cpu_s,
        "whole seconds of at least 1",
    )
    _check_scalars(config.compile.scalars)
    _check_contract(config)
    _one_of("audit.size", config.audit.size, ("quick", "full"))
    _require(config.audit.workers >= 1, "audit.workers", config.audit.workers, "at least 1")
    limit_s = config.campaign.limit_s
    _require(limit_s is None or limit_s > 0, "campaign.limit_s", limit_s, "seconds above 0")
    fail_under = config.rubric.fail_under
    _require(
        fail_under is None or 0 <= fail_under <= 100, "rubric.fail_under", fail_under, "0 to 100"
    )
    _require(
        re.fullmatch(r"[a-z]\w*:\d+(x\d+)*", target.topology) is not None,
        "target.topology",
        target.topology,
        "a chip and how many of it, as in v5e:2x2",
    )
    _check_target(target)


def _check_target(target: Chip) -> None:
    for key in ("clock_ghz", "bf16_tflops", "hbm_gb_s", "hbm_gib", "vmem_mib", "scoped_vmem_mib"):
        value = getattr(target, key)
        _require(value is None or value > 0, f"target.{key}", value, "a number above 0")
    for key in ("cores_per_device", "devices_per_chip"):
        value = getattr(target, key)
        _require(value >= 1, f"target.{key}", value, "a whole number of at least 1")
    shaped = re.fullmatch(r"\w+:\d+(x\d+){1,2}", target.topology)
    wanted = "a generation and its chips, as in v5e:2x2"
    _require(shaped is not None, "target.topology", target.topology, wanted)


def _check_scalars(scalars: object) -> None:
    holds = scalars is None or (
        isinstance(scalars, dict)
        and all(isinstance(v, list) and all(type(i) is int for i in v) for v in scalars.values())
    )
    _require(
        holds, "compile.scalars", scalars, "names with lists of integers, {lengths: [96, 512]}"
    )


def _check_contract(config: LabConfig) -> None:
    """A function of arrays is compiled, and needs their dtypes and sizes; nothing else takes it."""
    candidate = config.candidate
    if candidate.contract is Contract.attention:
        given = [n for n in ("arguments", "options") if getattr(candidate, n) is not None]
        if given:
            raise UserError(
                f"candidate.{given[0]} is for candidate.contract=function; an attention is called "
                "with the arrays of the shape"
            )
        return
    if candidate.kind != "custom" or config.task.name != "compile":
        raise UserError(
            "candidate.contract=function is for task=compile candidate=custom: the lab knows no "
            "right answer of any function but attention"
        )
    if not isinstance(candidate.arguments, dict) or not candidate.arguments:
        raise UserError(
            "candidate.contract=function needs its arrays: "
            "'candidate.arguments={a:[bfloat16,8192,8192],b:[bfloat16,8192,8192]}'"
        )
    if not isinstance(candidate.options, dict | None):
        raise UserError(
            f"candidate.options={candidate.options}: give names, such as {{block: 512}}"
        )
    for name, array in candidate.arguments.items():
        dtype, sizes = (array[0], array[1:]) if isinstance(array, list) and array else (None, [])
        if dtype not in ARGUMENT_DTYPES or not all(
            isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes
        ):
            raise UserError(
                f"candidate.arguments.{name}={array}: give a dtype and its sizes, such as "
                f"[bfloat16,8192,8192]; dtypes are {', '.join(ARGUMENT_DTYPES)}"
            )


def _check_custom(candidate: CandidateConfig) -> None:
    if candidate.path is None or candidate.function is None:
        raise UserError("candidate=custom needs candidate.path=FILE and candidate.function=NAME")
    if not Path(candidate.path).expanduser().is_file():
        raise UserError(f"candidate.path={candidate.path}: not a file; give a Python file")


def _check_limits(candidate: CandidateConfig) -> None:
    supports = candidate.supports
    widths = [1] if supports.head_dims is None else supports.head_dims
    at_least_one = {
        "candidate.supports.head_dims": min(widths, default=0) if widths else 0,
        "candidate.supports.length_multiple_of": supports.length_multiple_of,
        "candidate.memory_limit_mib": candidate.memory_limit_mib,
        "candidate.output_limit_mib": candidate.output_limit_mib,
    }
    for key, value in at_least_one.items():
        _require(value >= 1, key, value, "whole numbers of at least 1")
    _require(
        candidate.call_limit_s > 0, "candidate.call_limit_s", candidate.call_limit_s, "above 0"
    )
    _require(
        candidate.claims in (None, "pallas"), "candidate.claims", candidate.claims, "null or pallas"
    )


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key)
    else:
        yield key, value


def problem_shape(config: LabConfig) -> Shape:
    """The shape of this configuration's arrays, lengths included; UserError if impossible."""
    shape = config.shape
    return Shape(
        batch=shape.batch,
        q_heads=shape.q_heads,
        kv_heads=shape.kv_heads,
        q_len=config.seq if config.q_len is None else config.q_len,
        kv_len=config.seq,
        head_dim=shape.head_dim,
        causal=shape.causal,
        padding=str(shape.padding),
    )


def to_plain(config: LabConfig) -> dict[str, Any]:
    """The configuration as JSON values (enumerations as their names)."""
    plain = json.loads(json.dumps(dataclasses.asdict(config)))
    assert isinstance(plain, dict)
    return plain


def from_plain(plain: dict[str, Any]) -> LabConfig:
    """The inverse of `to_plain`; used in worker processes."""
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LabConfig), plain))
    assert isinstance(config, LabConfig)
    return config


def field_names() -> tuple[str, ...]:
    """The keys of the root, in order."""
    return tuple(f.name for f in dataclasses.fields(LabConfig))

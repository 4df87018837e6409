"""What runs in the worker process: trace, lower and compile a cell's program for a TPU.

No array is made and no backend of this machine's is asked for: the program is lowered from shapes
for a device of a described topology. Flags for libtpu stand in the process's environment, because
libtpu reads them once, when it is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import resource
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.extend import backend
from jax.extend.core import Jaxpr
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

from lab import programs
from lab.cells.cell import Cell
from lab.errors import UnsupportedCell, UserError
from lab.kernels import notes
from lab.records import CompileBoundary, XlaOwned
from lab.tpu import boundary, work
from lab.tpu.compile import source
from lab.tpu.compile.answers import HLO_FILE, STABLEHLO_FILE, Answer, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

# HLO names the source file of each op: keep it from the package on, not the machine's directories.
_PATH_PREFIX = r".*/(?=lab/|jax/|site-packages/)"


def compile_cell(cell: Cell, directory: Path, attached: bool) -> Answer:
    """Compile a cell's program; worker entry.

    Args:
        cell: what to compile.
        directory: where the texts go.
        attached: whether a TPU is there to compile for.
    """
    device, on_attached = described_device(cell, attached=attached)
    answer = Answer(
        device_kind=device.device_kind,
        attached=on_attached,
        versions={name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "libtpu")},
        boundary=CompileBoundary(pallas_calls=[], xla=XlaOwned(dots=0, reductions=0)),
    )
    clock = _Stopwatch()
    program: Jaxpr | None = None
    try:
        with as_on(device):
            with notes.heard() as implementation:
                traced = trace(cell, device)
            program = traced.jaxpr.jaxpr
            flops, moved = work.of_program(traced.jaxpr)
            answer = answer.model_copy(
                update={
                    "boundary": boundary.describe(program),
                    "implementation": implementation,
                    "work_flops": flops,
                    "work_bytes": moved,
                }
            )
            _refuse_interpreted(program)
            clock.lap("trace")
            lowered = traced.lower()
            stablehlo = lowered.as_text()
            (directory / STABLEHLO_FILE).write_text(stablehlo)
            clock.lap("lower")
            compiled = lowered.compile()
            clock.lap("compile")
    except (UnsupportedCell, UserError, OSError, MemoryError):
        raise
    except Exception as error:
        if clock.stage == "trace" and not _raised_by_pallas(error):
            raise  # a mistake in the program, not the compiler's judgement
        return answer.model_copy(update={"refusal": _refusal(clock.stage, error, program)})
    (directory / HLO_FILE).write_text(compiled.as_text())
    update = {
        "fingerprint": fingerprint(stablehlo),
        "memory": _memory(compiled),
        "seconds": clock.seconds,
    }
    return answer.model_copy(update=update)


def fingerprint(stablehlo: str) -> str:
    """Names a lowered program: two of one fingerprint are compiled alike."""
    return hashlib.sha256(stablehlo.encode()).hexdigest()


def profile_cell(cell: Cell, directory: Path, cpu_limit_s: int, pallas_cpu_limit_s: int) -> str:
    """Compile a cell once more so that libtpu profiles its schedules; worker entry.

    The profile takes up to a minute for some of XLA's fused products, so this process ends itself
    after `cpu_limit_s` of CPU time where XLA owns a product, and `pallas_cpu_limit_s` where all are
    inside Pallas. Nothing is compiled without a Pallas call in the program, nor for a backward in
    which XLA owns products: from 256 rows on that takes 14 to 40 s of CPU time (libtpu 0.0.42.1),
    and would slow the other compile down for nothing.

    Returns:
        why nothing was compiled, or nothing; HLO with the profile's figures lies in `directory`.
    """
    device, _ = described_device(cell)
    with as_on(device):
        traced = trace(cell, device)
        owners = boundary.describe(traced.jaxpr.jaxpr)
        if not owners.pallas_calls:
            return ""
        if owners.xla.dots and cell.config.direction == "backward":
            return "it takes libtpu too long where XLA owns products of a backward"
        limit = cpu_limit_s if owners.xla.dots else pallas_cpu_limit_s
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))  # SIGXCPU, then SIGKILL
        (directory / HLO_FILE).write_text(traced.lower().compile().as_text())
    return ""


def trace(cell: Cell, device: Any) -> Any:  # noqa: ANN401 - jax's stages and devices
    """The cell's program as jax traces it for a device: what is compiled and what is proved."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", _PATH_PREFIX)
    sharding = SingleDeviceSharding(device)
    types, function = programs.compiled_function(cell)
    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)
        for shape, dtype in types.values()
    ]
    return jax.jit(function).trace(*shapes)


def _refuse_interpreted(jaxpr: Jaxpr) -> None:
    if interpreted := boundary.interpreted(jaxpr):
        raise UnsupportedCell(
            f"pallas_call {interpreted[0]} is in interpret mode, which no TPU compiler sees: "
            "call it with interpret=False"
        )


def described_device(cell: Cell, *, attached: bool = False) -> tuple[Any, bool]:
    """The device to compile for: the attached chip where it is of the target's kind."""
    target = cell.config.target
    if attached:
        with contextlib.suppress(RuntimeError):
            device: Any = jax.devices("tpu")[0]
            if device.device_kind == target.kind:
                return device, True
    try:
        device = topologies.get_topology_desc(target.topology, "tpu").devices[0]
    except (RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        given = f"target={target.name} (target.topology={target.topology})"
        remedy = "repair the installation with: pip install --force-reinstall '.[tpu]'"
        if first.startswith("INVALID_ARGUMENT: "):
            first = first.removeprefix("INVALID_ARGUMENT: ")
            remedy = "give a topology that there is, as in v5e:2x2"
        raise UserError(f"libtpu cannot describe {given}: {first}; {remedy}") from error
    if device.device_kind != target.kind:
        raise UserError(
            f"target.kind={target.kind!r}, but topology {target.topology} has devices of kind "
            f"{device.device_kind!r}; correct one of the two"
        )
    return device, False


@contextlib.contextmanager
def as_on(device: Any) -> Iterator[None]:  # noqa: ANN401 - jax's device types are not public
    """Show the chip to code that asks for it while it is traced or lowered.

    `//` in a kernel's index map asks for its generation; many a kernel asks for its platform.
    """
    abstract = AbstractDevice(
        device_kind=device.device_kind,
        num_cores=getattr(device, "num_cores", 1),
        platform="tpu",
    )
    mesh = AbstractMesh((1,), ("x",), abstract_device=abstract)
    # Kernels choose interpret mode, or refuse, by these; jax itself does not ask through them.
    with (
        use_abstract_mesh(mesh),
        mock.patch.object(jax, "default_backend", return_value="tpu"),
        mock.patch.object(jax, "devices", return_value=[device]),
        mock.patch.object(backend, "get_default_device", return_value=device),
    ):
        yield


def _raised_by_pallas(error: BaseException) -> bool:
    """Whether an error comes from Pallas itself, such as a block that no TPU can have."""
    frames = traceback.extract_tb(error.__traceback__)
    return "jax/_src/pallas/" in frames[-1].filename.replace("\\", "/") if frames else False


def _refusal(stage: str, error: Exception, program: Jaxpr | None) -> Refusal:
    return Refusal(
        stage=stage,
        type=type(error).__name__,
        message=str(error),
        place=source.of(error, program),
        text="".join(traceback.format_exception(error)),
    )


def _memory(compiled: Any) -> dict[str, int]:  # noqa: ANN401 - jax's stages
    stats = compiled.memory_analysis()
    return {
        "argument_bytes": int(stats.argument_size_in_bytes),
        "output_bytes": int(stats.output_size_in_bytes),
        "temporary_bytes": int(stats.temp_size_in_bytes),
        "code_bytes": int(stats.generated_code_size_in_bytes),
    }


class _Stopwatch:
    """Seconds of each step; `stage` is the step that is running."""

    _STAGES = ("trace", "lower", "compile", "done")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.stage = self._STAGES[0]
        self._start = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[f"{stage}_s"] = round(now - self._start, 3)
        self._start = now
        self.stage = self._STAGES[self._STAGES.index(stage) + 1]

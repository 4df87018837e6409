"""task=compile: what the TPU compiler makes of a cell, and the device time it expects.

No TPU is needed: libtpu's compiler runs on any Linux machine. Two worker processes compile the same
program, because libtpu reads its flags once: one writes the final schedule, the other libtpu's own
static profile, which ends some compiles (see lab/tpu/bundles.py) and takes long for others.

Where a TPU of the target's kind is attached, its own device is compiled for, by one process. That
path was written without a TPU at hand and is untested.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab import records, worker
from lab.cells import Cell, Outcome
from lab.errors import UnsupportedCell, UserError
from lab.records import CompileSection
from lab.report.compiled import summary
from lab.tpu import analysis, bundles, chips, failures, roofline, section
from lab.tpu.chips import Chip
from lab.tpu.hlo_text import UnrecognisedHloError
from lab.worker import DeadlineExceeded, WorkerCrashed, WorkerFailed

COMPRESS_ABOVE_BYTES = 256 * 1024
PROFILE_CPU_S = 10  # where XLA owns products: a whole cell is to take less than 15 s
PROFILE_PALLAS_CPU_S = 40
LEAST_FREE_BYTES = 64 * 2**20  # the dumps of one cell take 5 to 20 MB
ERROR_FILE = "compiler_error.txt"
SUMMARY_FILE = "summary.md"
STABLEHLO_FILE, HLO_FILE = "stablehlo.mlir", "hlo.txt"


def preflight(cell: Cell) -> None:  # noqa: ARG001 - the interface of a task
    """Refuse a machine without the TPU compiler, before the first cell.

    Raises:
        UserError: libtpu is not installed.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(
            "task=compile needs the TPU compiler, and libtpu is not installed; it needs no TPU: "
            "pip install '.[tpu]' (about 700 MB)"
        )


def run(cell: Cell, directory: Path) -> Outcome:
    """Compile a cell for its target, keep the compiler's texts, and estimate the device time.

    Raises:
        UnsupportedCell: the compiler refuses the program; the reason is in one line, its full text
            in compiler_error.txt.
    """
    chip = chips.from_config(cell.config.target)
    (directory / ERROR_FILE).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-compile-") as name:
        scratch = Path(name)
        _require_space(scratch)
        compiled = _compile(cell, scratch, directory)
        if (refusal := compiled.answer.get("refusal")) is not None:
            records.write_atomically(directory / ERROR_FILE, refusal["text"])
            raise UnsupportedCell(f"{chip.name}: {failures.explain(refusal['message'])}")
        built = _section(cell, chip, compiled, scratch, directory)
    text = summary(CompileSection.model_validate(built))
    records.write_atomically(directory / SUMMARY_FILE, text)
    device = {**compiled.answer["device"], "platform": "tpu"}
    return Outcome(
        section=built,
        evidence="compiled" if built["estimated_ms"] is None else "estimated",
        interpret=False,
        cache_state="cold",
        device=device if compiled.answer["attached"] else {**device, "device_count": 0},
    )


class _Compiled:
    """What the two workers came to."""

    def __init__(self, answer: dict[str, Any], dump: Path | None, profile: str | None) -> None:
        self.answer = answer
        self.dump = dump
        self.profile = profile
        self.warnings: list[str] = []


def _compile(cell: Cell, scratch: Path, directory: Path) -> _Compiled:
    """Both compiles at once, or one where a real TPU, which serves one process, is attached."""
    attached = chips.attached()
    dump, profile = scratch / "dump", scratch / "profile"
    dump.mkdir()
    profile.mkdir()
    payload = {"config": cell.plain(), "directory": str(scratch), "attached": attached}
    with ThreadPoolExecutor(max_workers=1) as pool:
        profiled = None if attached else pool.submit(_profile, cell, profile)
        try:
            compiled = _Compiled(
                worker.call(
                    "lab.tpu.child:compile_cell",
                    payload,
                    env=environment(
                        bundles.DUMP_FLAGS.format(directory=dump), scratch, attached=attached
                    ),
                    deadline_s=cell.config.deadline_s,
                    directory=directory,
                ),
                dump,
                None,
            )
        except WorkerCrashed as crash:
            compiled = _compile_without_dump(cell, payload, crash, directory)
        if profiled is not None:
            text, problem = profiled.result()
            compiled.profile = text
            if problem and compiled.answer.get("boundary", {}).get("pallas_calls"):
                compiled.warnings.append(problem)
    return compiled


def _compile_without_dump(
    cell: Cell, payload: dict[str, Any], crash: WorkerCrashed, directory: Path
) -> _Compiled:
    """Once more, where the compiler itself gave up: was it the program, or writing its schedule?"""
    _require_space(Path(payload["directory"]))
    abort = failures.compiler_abort(crash.log_tail)
    if abort is None:
        raise crash
    try:
        answer = worker.call(
            "lab.tpu.child:compile_cell",
            payload,
            env=environment("", Path(payload["directory"]), attached=payload["attached"]),
            deadline_s=cell.config.deadline_s,
            directory=directory,
        )
    except WorkerCrashed as again:
        records.write_atomically(directory / ERROR_FILE, again.log_tail)
        raise UnsupportedCell(
            f"{cell.config.target.name}: the compiler ends itself on this program: "
            f"{failures.compiler_abort(again.log_tail) or again.reason}; full text: {ERROR_FILE}"
        ) from None
    compiled = _Compiled(answer, None, None)
    compiled.warnings.append(f"the compiler ended itself while it wrote the schedule: {abort}")
    return compiled


def _profile(cell: Cell, directory: Path) -> tuple[str | None, str | None]:
    """The HLO with static profiles, or why there is none; it is a cross-check, never a must."""
    payload = {
        "config": cell.plain(),
        "directory": str(directory),
        "cpu_limit_s": PROFILE_CPU_S,
        "pallas_cpu_limit_s": PROFILE_PALLAS_CPU_S,
    }
    try:
        worker.call(
            "lab.tpu.child:profile_cell",
            payload,
            env=environment(
                bundles.PROFILE_FLAG.format(directory=directory), directory, attached=False
            ),
            deadline_s=cell.config.deadline_s,
        )
        text = (directory / HLO_FILE).read_text()
    except WorkerCrashed as crash:
        abort = failures.compiler_abort(crash.log_tail)
        slow = "it takes libtpu too much CPU time"
        why = abort or (slow if "SIGXCPU" in crash.reason else crash.reason)
        return None, f"no static profile: {why}"
    except FileNotFoundError:
        return None, None  # nothing of Pallas in it
    except (DeadlineExceeded, WorkerFailed, UserError, UnsupportedCell) as error:
        return None, f"no static profile: {str(error).splitlines()[0]}"
    return text, None


def environment(flags: str, scratch: Path, *, attached: bool) -> dict[str, str]:
    """A process that reaches for no metadata server, no cache and, unless attached, no TPU.

    Its temporary files and libtpu's logs go to `scratch`, which goes away with the cell.
    """
    given = os.environ.get("LIBTPU_INIT_ARGS", "")
    environment = {
        "LIBTPU_INIT_ARGS": f"{given} {flags}".strip(),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TPU_LOG_DIR": str(scratch),
        "TMPDIR": str(scratch),
    }
    if attached:
        return environment
    return environment | {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def _section(
    cell: Cell, chip: Chip, compiled: _Compiled, scratch: Path, directory: Path
) -> dict[str, Any]:
    stablehlo = (scratch / STABLEHLO_FILE).read_text()
    hlo_text = (scratch / HLO_FILE).read_text()
    try:
        program = analysis.analyse(hlo_text, compiled.profile, compiled.dump, chip)
    except UnrecognisedHloError as error:
        program = analysis.Program((), {}, {}, (str(error),), {}, ())
    work = roofline.work(
        cell.problem_shape(), cell.policy(), cell.config.scope.name, str(cell.config.direction)
    )
    return section.build(
        compiled.answer,
        program,
        chip,
        work,
        roofline.floor(work, chip),
        files={
            "stablehlo": _keep(directory, STABLEHLO_FILE, stablehlo),
            "hlo": _keep(directory, HLO_FILE, hlo_text),
        },
        stablehlo=stablehlo,
        warnings=compiled.warnings,
    )


def _keep(directory: Path, name: str, text: str) -> str:
    """Save a text whole or not at all, compressed where it is large; the name it got."""
    data = text.encode()
    if len(data) > COMPRESS_ABOVE_BYTES:
        name, data = f"{name}.gz", gzip.compress(data, mtime=0)
    temporary = directory / f".{name}.tmp"
    try:
        temporary.write_bytes(data)
        temporary.replace(directory / name)
    finally:
        temporary.unlink(missing_ok=True)
    return name


def _require_space(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE_BYTES:
        raise UserError(
            f"{tempfile.gettempdir()} has {free / 2**20:.0f} MiB free, and the compiler's dumps "
            f"need {LEAST_FREE_BYTES >> 20}; free some, or set TMPDIR to a roomier place"
        )

"""task=compile: what the TPU compiler makes of a cell, and the device time it expects.

No TPU is needed: libtpu's compiler runs on any Linux machine.
"""

from __future__ import annotations

import gzip
import importlib.util
import tempfile
from pathlib import Path

from lab import records
from lab.cells.cell import Cell, Outcome
from lab.cells.config import Chip
from lab.errors import UnsupportedCell, UserError
from lab.records import CompileFiles, CompileSection, Device
from lab.report.compiled import summary
from lab.tpu import analysis, roofline
from lab.tpu import record as section
from lab.tpu.compile import compiler, failures
from lab.tpu.compile.answers import HLO_FILE, STABLEHLO_FILE
from lab.tpu.compile.compiler import ERROR_FILE, Compiled
from lab.tpu.hlo.text import UnrecognisedHloError

COMPRESS_ABOVE_BYTES = 256 * 1024
SUMMARY_FILE = "summary.md"
DUMPS_DIRECTORY = "dumps"


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
    chip = cell.config.target
    (directory / ERROR_FILE).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="lab-compile-") as name:
        scratch = Path(name)
        compiled = compiler.run(cell, scratch, directory)
        if (refusal := compiled.answer.refusal) is not None:
            records.write_atomically(directory / ERROR_FILE, refusal.text)
            raise UnsupportedCell(
                f"{chip.name}: {failures.explain(refusal.message, refusal.place)}"
            )
        built = _section(cell, chip, compiled, scratch, directory)
    records.write_atomically(directory / SUMMARY_FILE, summary(built))
    answer = compiled.answer
    return Outcome(
        section=built,
        evidence="compiled" if built.estimated_ms is None else "estimated",
        interpret=False,
        cache_state="cold",
        device=Device(
            platform="tpu",
            device_kind=answer.device_kind,
            device_count=int(answer.attached),
        ),
    )


def _section(
    cell: Cell, chip: Chip, compiled: Compiled, scratch: Path, directory: Path
) -> CompileSection:
    stablehlo = (scratch / STABLEHLO_FILE).read_text()
    hlo_text = (scratch / HLO_FILE).read_text()
    config = cell.config
    scalars = dict(config.compile.scalars or {})
    try:
        program = analysis.analyse(hlo_text, compiled.profile, compiled.dump, chip, scalars)
    except UnrecognisedHloError as error:
        program = analysis.Program((), {}, {}, (str(error),), {}, ())
    if config.candidate.contract == "function":
        work = roofline.Work(compiled.answer.work_flops, compiled.answer.work_bytes)
    else:
        work = roofline.work(
            cell.problem_shape(), cell.policy(), config.scope.name, str(config.direction)
        )
    return section.build(
        compiled.answer,
        program,
        chip,
        work,
        roofline.floor(work, chip),
        proof=compiled.proof,
        scalars=scalars,
        files=CompileFiles(
            stablehlo=_keep(directory, STABLEHLO_FILE, stablehlo),
            hlo=_keep(directory, HLO_FILE, hlo_text),
            dumps=_keep_dumps(directory, compiled.dump) if config.compile.keep_dumps else None,
        ),
        stablehlo=stablehlo,
        warnings=compiled.warnings,
    )


def _keep_dumps(directory: Path, dump: Path | None) -> str | None:
    """Keep the schedules and the slot use that an estimate was read from, compressed."""
    if dump is None:
        return None
    kept = directory / DUMPS_DIRECTORY
    kept.mkdir(exist_ok=True)
    for file in sorted(dump.glob("*.txt")):
        (kept / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    return DUMPS_DIRECTORY


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

"""task=compile: what the TPU compiler makes of a cell, and the device time it expects.

No TPU is needed: libtpu's compiler runs on any Linux machine.
"""

from __future__ import annotations

import gzip
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from lab import records
from lab.cells.cell import Cell, Outcome
from lab.errors import UnsupportedCell, UserError
from lab.records import CompileSection
from lab.report.compiled import summary
from lab.tpu import analysis, chips, roofline
from lab.tpu import record as section
from lab.tpu.chips import Chip
from lab.tpu.compile import compiler, failures
from lab.tpu.compile.compiler import ERROR_FILE, HLO_FILE, STABLEHLO_FILE, Compiled
from lab.tpu.hlo.text import UnrecognisedHloError

COMPRESS_ABOVE_BYTES = 256 * 1024
SUMMARY_FILE = "summary.md"


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
        compiled = compiler.run(cell, scratch, directory)
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


def _section(
    cell: Cell, chip: Chip, compiled: Compiled, scratch: Path, directory: Path
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

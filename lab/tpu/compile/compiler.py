"""The compile of a cell, and beside it the proof of its values, in worker processes of their own.

libtpu reads its flags once, when it is loaded. So one process writes the final schedule, and, only
if it is asked for, another libtpu's own static profile, which ends some compiles (see
lab/tpu/schedule/bundles.py) and takes long for others. Where a TPU of the target's kind is
attached, its own device is compiled for, by one process; that path was written without a TPU at
hand and is untested.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lab import records, worker
from lab.cells.cell import Cell
from lab.errors import UnsupportedCell, UserError
from lab.records import CompileProof
from lab.tpu import chips
from lab.tpu.compile import failures
from lab.tpu.compile.answers import HLO_FILE, Answer
from lab.tpu.schedule import bundles
from lab.worker import DeadlineExceeded, WorkerCrashed, WorkerFailed

PROFILE_CPU_S = 10  # where XLA owns products: a whole cell is to take less than 15 s
PROFILE_PALLAS_CPU_S = 40
LEAST_FREE_BYTES = 64 * 2**20  # the dumps of one cell take 5 to 20 MB
ERROR_FILE = "compiler_error.txt"


UNPROVED = CompileProof(proved=None, reason="compile.prove=false")


@dataclass
class Compiled:
    """What the two workers came to.

    Attributes:
        answer: its texts lie in the scratch directory.
        dump: the directory of the schedules; None where the compiler could not write them.
        profile: HLO with static profiles, or None.
        warnings: what a reader of the record must know.
    """

    answer: Answer
    dump: Path | None
    profile: str | None = None
    proof: CompileProof = UNPROVED
    warnings: list[str] = field(default_factory=list)


def run(cell: Cell, scratch: Path, directory: Path) -> Compiled:
    """Compile a cell and prove its values, at once; one by one where a TPU is attached.

    Args:
        cell: what to compile.
        scratch: an empty directory for texts and dumps.
        directory: of the run, for the worker's log.

    Raises:
        UserError: no room in `scratch`.
        UnsupportedCell: the compiler ends itself on this program.
        WorkerCrashed, WorkerFailed, DeadlineExceeded: as lab.worker.call raises them.
    """
    _require_space(scratch)
    attached, asked = chips.attached(), cell.config.compile
    for name in ("dump", "profile", "proof"):
        (scratch / name).mkdir()
    # A TPU serves one process: then the proof waits for the compile, and there is no profile.
    with ThreadPoolExecutor(max_workers=2) as pool, _stopping() as stop:
        proof = pool.submit(_prove, cell, scratch / "proof", stop) if not attached else None
        profile = (
            pool.submit(_profile, cell, scratch / "profile", stop)
            if asked.profile and not attached
            else None
        )
        compiled = _compile(cell, scratch, directory, attached=attached)
        if compiled.answer.refusal is not None:
            stop.set()
            return compiled
        compiled.proof = proof.result() if proof else _prove(cell, scratch / "proof", stop)
        if profile is not None:
            compiled.profile, problem = profile.result()
            if problem and compiled.answer.boundary.pallas_calls:
                compiled.warnings.append(problem)
    if compiled.proof.fingerprint not in (None, compiled.answer.fingerprint):
        compiled.proof = CompileProof(
            proved=None,
            reason="traced twice it is two programs: what was compiled is not what was proved",
        )
    return compiled


def _compile(cell: Cell, scratch: Path, directory: Path, *, attached: bool) -> Compiled:
    def once(flags: str) -> Answer:
        return worker.call(
            "lab.tpu.compile.child:compile_cell",
            {"cell": cell, "directory": scratch, "attached": attached},
            Answer,
            env=environment(flags, scratch, attached=attached),
            deadline_s=cell.config.deadline_s,
            directory=directory,
        )

    dump = scratch / "dump"
    try:
        return Compiled(once(bundles.DUMP_FLAGS.format(directory=dump)), dump)
    except WorkerCrashed as crash:
        # The compiler itself gave up: was it the program, or writing its schedule?
        _require_space(scratch)
        abort = failures.compiler_abort(crash.log_tail)
        if abort is None:
            raise
    try:
        compiled = Compiled(once(""), None)
    except WorkerCrashed as again:
        records.write_atomically(directory / ERROR_FILE, again.log_tail)
        raise UnsupportedCell(
            f"{cell.config.target.name}: the compiler ends itself on this program: "
            f"{failures.compiler_abort(again.log_tail) or again.reason}; a check inside libtpu "
            "failed, so leave out parts of the kernel (a dtype, a block shape, a scratch buffer) "
            f"until it compiles; full text: {ERROR_FILE}"
        ) from None
    compiled.warnings.append(f"the compiler ended itself while it wrote the schedule: {abort}")
    return compiled


def _prove(cell: Cell, scratch: Path, stop: threading.Event) -> CompileProof:
    """The proof, or why there is none: an estimate without it is still an estimate."""
    config = cell.config
    limit_s = config.compile.prove_cpu_s
    if not config.compile.prove:
        return UNPROVED
    if config.candidate.contract == "function":
        reason = "the lab knows the right values of attention alone, not of a plain function"
        return CompileProof(proved=None, reason=reason)
    try:
        return worker.call(
            "lab.tpu.proof.prove:prove_cell",
            {"cell": cell, "cpu_limit_s": limit_s},
            CompileProof,
            env=environment("", scratch, attached=False),
            deadline_s=config.deadline_s,
            stop=stop,
        )
    except WorkerCrashed as crash:
        slow = f"interpreting it takes more than compile.prove_cpu_s={limit_s} s of CPU time"
        reason = slow if "SIGXCPU" in crash.reason else crash.reason
    except (DeadlineExceeded, WorkerFailed, UserError, UnsupportedCell) as error:
        reason = str(error).splitlines()[0]
    return CompileProof(proved=None, reason=reason)


@contextlib.contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that is set when something is raised, Ctrl-C too: then no profile is waited for."""
    stop = threading.Event()
    try:
        yield stop
    except BaseException:
        stop.set()
        raise


def _profile(cell: Cell, directory: Path, stop: threading.Event) -> tuple[str | None, str | None]:
    """The HLO with static profiles, or why there is none; it is a cross-check, never a must."""
    try:
        skipped = worker.call(
            "lab.tpu.compile.child:profile_cell",
            {
                "cell": cell,
                "directory": directory,
                "cpu_limit_s": PROFILE_CPU_S,
                "pallas_cpu_limit_s": PROFILE_PALLAS_CPU_S,
            },
            str,
            env=environment(
                bundles.PROFILE_FLAG.format(directory=directory), directory, attached=False
            ),
            deadline_s=cell.config.deadline_s,
            stop=stop,
        )
        if skipped:
            return None, f"no static profile: {skipped}"
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


def _require_space(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE_BYTES:
        raise UserError(
            f"{tempfile.gettempdir()} has {free / 2**20:.0f} MiB free, and the compiler's dumps "
            f"need {LEAST_FREE_BYTES >> 20}; free some, or set TMPDIR to a roomier place"
        )

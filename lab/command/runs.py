"""The protocol of a run directory: status first, result atomically, status last.

    running -> done | unsupported | failed | timeout | interrupted

A directory whose status says `running` but whose process is gone was killed: it holds no result,
and a resumed sweep runs it again.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import traceback
from pathlib import Path

from lab import records, tasks
from lab.cells import environment
from lab.cells.cell import Cell, Outcome
from lab.errors import UnsupportedCell, UserError
from lab.records import RESULT_FILE, STATUS_FILE, ErrorInfo, Result, Status, StatusName
from lab.worker import LOG_FILE, DeadlineExceeded, WorkerCrashed, WorkerFailed

ERROR_FILE = "error.txt"


def now() -> str:
    """The time in UTC, ISO 8601, to the millisecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def finished_before(cell: Cell, directory: Path) -> Result | None:
    """The result of an earlier run of the same configuration by the same code, if it is done.

    The result alone decides: it is whole or absent. A run that was killed after it and before the
    last status is done all the same (`settle`).
    """
    try:
        result = records.read(directory / RESULT_FILE, Result)
    except records.InvalidRecord:
        return None
    same = result.cell_id == cell.id and result.code_sha256 == environment.code_sha256()
    return result if same and result.status == "done" else None


def skips(cell: Cell, directory: Path) -> bool:
    """Whether a sweep leaves this cell as it is: it may resume, and the cell is done."""
    return cell.config.resume and finished_before(cell, directory) is not None


def settle(cell: Cell, directory: Path) -> None:
    """Write the last status of a finished run that was killed before it could."""
    result = finished_before(cell, directory)
    if result is None:
        return
    try:
        if records.read(directory / STATUS_FILE, Status).status == result.status:
            return
    except records.InvalidRecord:
        pass
    _write_status(
        cell,
        directory,
        result.status,
        result.reason,
        result.started_at,
        finished_at=result.finished_at,
    )


def run(cell: Cell, directory: Path) -> Result:
    """Run one cell into its directory; every way it can end becomes a record.

    Only UserError (the request was wrong) and KeyboardInterrupt leave this function, and both
    leave a record first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    started_at = now()
    _write_status(cell, directory, "running", None, started_at)
    # Only now, under the status `running`, may what an earlier run left here go.
    for name in (RESULT_FILE, ERROR_FILE, LOG_FILE):
        (directory / name).unlink(missing_ok=True)
    leave: BaseException | None = None
    result: Result | None = None
    error: ErrorInfo | None = None
    try:
        outcome = tasks.load(cell.task).run(cell, directory)
        status, reason = outcome.status, outcome.reason
        made = _result(cell, outcome, status, reason, None, started_at)
        records.dump(made)  # an answer that fits no record is the task's failure
        result = made
    except UnsupportedCell as refusal:
        status, reason = "unsupported", _in_one_line(str(refusal))
    except DeadlineExceeded as late:
        status, reason = "timeout", str(late)
    except UserError as mistake:
        leave = mistake
        status, reason = "failed", _in_one_line(str(mistake))
        error = ErrorInfo(type="UserError", message=reason, file=None)
    except KeyboardInterrupt as stop:
        leave = stop
        status, reason = "interrupted", "stopped by Ctrl-C or SIGTERM"
    except WorkerCrashed as crash:
        status, reason = "failed", crash.reason
        error = _keep_error(directory, "WorkerCrashed", crash.reason, crash.log_tail)
    except WorkerFailed as failure:
        reason = _first_line(f"{failure.type_name}: {failure.message}")
        status, reason = "failed", reason + _where(cell.config.candidate.path, failure.trace)
        error = _keep_error(directory, failure.type_name, failure.message, failure.trace)
    except (Exception, SystemExit) as bug:  # noqa: BLE001 - one cell never stops a sweep
        status, reason = "failed", _first_line(f"{type(bug).__name__}: {bug}")
        error = _keep_error(directory, type(bug).__name__, str(bug), traceback.format_exc())
    if result is None:
        result = _result(cell, None, status, reason, error, started_at)
    records.write(directory / RESULT_FILE, result)
    _write_status(cell, directory, status, reason, started_at, finished_at=now())
    if leave is not None:
        raise leave
    return result


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else ""


def _where(path: str | None, trace: str) -> str:
    """Where in a user's file an exception arose, as ` (mine.py, line 3)`, or nothing."""
    if path is None:
        return ""
    file = Path(path).expanduser().absolute()
    lines = re.findall(rf'^ *File "{re.escape(str(file))}", line (\d+)', trace, re.MULTILINE)
    return f" ({file.name}, line {lines[-1]})" if lines else ""


def _keep_error(directory: Path, type_name: str, message: str, text: str) -> ErrorInfo:
    records.write_atomically(directory / ERROR_FILE, text + "\n")
    return ErrorInfo(type=type_name, message=_first_line(message), file=ERROR_FILE)


def _write_status(
    cell: Cell,
    directory: Path,
    status: StatusName,
    reason: str | None,
    started_at: str,
    finished_at: str | None = None,
) -> None:
    records.write(
        directory / STATUS_FILE,
        Status(
            schema_version=1,
            cell_id=cell.id,
            status=status,
            reason=reason,
            pid=os.getpid(),
            started_at=started_at,
            finished_at=finished_at,
        ),
    )


def _result(
    cell: Cell,
    outcome: Outcome | None,
    status: StatusName,
    reason: str | None,
    error: ErrorInfo | None,
    started_at: str,
) -> Result:
    outcome = outcome or Outcome(None, None)
    return Result.model_validate(
        dict(
            schema_version=records.SCHEMA_VERSION,
            task=cell.task,
            cell_id=cell.id,
            status=status,
            reason=reason,
            evidence=outcome.evidence,
            cell=cell.names(),
            config=cell.plain(),
            overrides=list(cell.overrides),
            seed=cell.config.seed,
            regime=outcome.regime or cell.config.regime,
            interpret=outcome.interpret,
            cache_state=outcome.cache_state,
            code_sha256=environment.code_sha256(),
            environment=environment.describe(outcome.device),
            started_at=started_at,
            finished_at=now(),
            error=error,
            **({cell.task: outcome.section} if outcome.section else {}),
        )
    )

"""Run one function in a fresh Python process, under a deadline.

Arguments and answer travel as JSON; the annotations of the function say what they are.

The parent never imports jax. Whatever does, runs here: a cell starts with cold caches, reads its
own environment flags, cannot take the sweep down with it, and can be stopped when its time is up.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, validate_call
from pydantic_core import from_json, to_json

from lab.errors import UnsupportedCell, UserError

PACKAGE_ROOT = Path(__file__).resolve().parent.parent
LOG_FILE = "worker.log"
LOG_TAIL_CHARACTERS = 4000
STOP_POLL_S = 0.05
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class DeadlineExceeded(Exception):  # noqa: N818 - the status it leads to is called timeout
    """The function did not finish within its deadline; the process and its children are gone."""


class WorkerCrashed(Exception):  # noqa: N818 - names what happened to the process
    """The process ended without an answer (killed, out of memory, exit)."""

    def __init__(self, reason: str, log_tail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = log_tail


class WorkerFailed(Exception):  # noqa: N818 - names what happened to the function
    """The function raised; `type_name`, `message` and `trace` are those of its exception."""

    def __init__(self, type_name: str, message: str, trace: str) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.trace = trace


T = TypeVar("T")

_EXPECTED: dict[str, type[Exception]] = {"UserError": UserError, "UnsupportedCell": UnsupportedCell}


def call(
    target: str,
    arguments: Mapping[str, object],
    answer: type[T],
    *,
    deadline_s: float,
    env: dict[str, str] | None = None,
    directory: Path | None = None,
    stop: threading.Event | None = None,
) -> T:
    """Run `target` ("module:function") in a new process and return its answer.

    Args:
        target: a function of the lab's models and dataclasses, or of anything else that JSON holds.
        arguments: by name.
        answer: the type that it returns.
        deadline_s: seconds until the process group is killed.
        env: environment variables added to this process's own.
        directory: where the process's output is added to `worker.log`; kept nowhere if None.
        stop: once it is set by another thread, the process group is killed.

    Raises:
        DeadlineExceeded: time is up, or `stop` is set.
        WorkerCrashed: the process ended without an answer.
        WorkerFailed: the function raised something unexpected.
        UserError, UnsupportedCell: the function raised it.
    """
    with tempfile.TemporaryDirectory(prefix="lab-worker-") as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "request.json").write_bytes(to_json({"target": target, "given": arguments}))
        log_path = (directory or scratch) / LOG_FILE
        said_before = log_path.stat().st_size if log_path.exists() else 0
        # What it leaves in the temporary directory goes when it goes, however it ends.
        own = {"TMPDIR": scratch_name, **(env or {})}
        code = _run_process(scratch, log_path, own, deadline_s, stop)
        try:
            reply = from_json((scratch / "reply.json").read_bytes())
        except (OSError, ValueError):
            log = log_path.read_bytes()[said_before:].decode(errors="replace")
            raise WorkerCrashed(_describe_exit(code), log[-LOG_TAIL_CHARACTERS:]) from None
    if "answer" in reply:
        return TypeAdapter(answer).validate_python(reply["answer"])
    if expected := _EXPECTED.get(reply["expected"]):
        raise expected(reply["message"])
    raise WorkerFailed(reply["type"], reply["message"], reply["traceback"])


def _run_process(
    scratch: Path,
    log_path: Path,
    env: dict[str, str],
    deadline_s: float,
    stop: threading.Event | None,
) -> int:
    path = os.pathsep.join(p for p in (str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")) if p)
    command = [sys.executable, "-m", "lab.worker", str(scratch), str(os.getpid())]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, **env},
            start_new_session=True,
        )
        try:
            return _wait(process, deadline_s, stop)
        except subprocess.TimeoutExpired:
            raise DeadlineExceeded(f"no answer within {deadline_s:g} s (deadline_s)") from None
        finally:
            # Also on Ctrl-C: nothing that this cell started outlives it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], deadline_s: float, stop: threading.Event | None) -> int:
    if stop is None:
        return process.wait(timeout=deadline_s)
    end = time.monotonic() + deadline_s
    while process.poll() is None:
        if stop.wait(STOP_POLL_S):
            raise DeadlineExceeded("stopped, because its result is no longer wanted")
        if time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, deadline_s)
    return process.returncode


def _describe_exit(code: int) -> str:
    if code < 0:
        return f"the worker process was killed by {signal.Signals(-code).name}"
    return f"the worker process exited with code {code} and no answer"


def _die_with_parent(parent_pid: int) -> None:
    """Ask Linux to kill this process when its parent dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # the parent went before the call
            os._exit(1)


def _answer(target: str, given: Mapping[str, object]) -> dict[str, object]:
    module_name, function_name = target.split(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        return {"answer": validate_call(function)(**given)}
    except Exception as error:  # noqa: BLE001 - every failure travels to the parent as data
        return {
            # By class, not by name: what runs here may define a UserError of its own.
            "expected": next((n for n, c in _EXPECTED.items() if isinstance(error, c)), None),
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
        }


def main() -> None:
    """The child's program: `python -m lab.worker SCRATCH PARENT_PID`."""
    scratch, parent_pid = Path(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(parent_pid)
    reply = to_json(_answer(**from_json((scratch / "request.json").read_bytes())))
    temporary = scratch / "reply.json.tmp"
    temporary.write_bytes(reply)
    temporary.rename(scratch / "reply.json")


if __name__ == "__main__":
    main()

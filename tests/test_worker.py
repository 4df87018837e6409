"""Worker processes: whatever happens in one becomes an answer or an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT

from lab import worker
from lab.errors import UnsupportedCell, UserError
from lab.worker import DeadlineExceeded, WorkerCrashed, WorkerFailed

ENV = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def call(function: str, directory: Path | None = None, **payload: object) -> dict[str, object]:
    return worker.call(
        f"workers:{function}",
        payload,
        dict[str, object],
        deadline_s=60,
        env=ENV,
        directory=directory,
    )


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # dead, and waiting for whoever adopted it


def eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_a_fresh_process_answers_and_its_output_is_kept(tmp_path: Path) -> None:
    done = worker.call(
        "workers:answer",
        {"x": [1, None, "é"]},
        dict[str, object],
        deadline_s=60,
        env={**ENV, "LAB_TEST_FLAG": "set"},
        directory=tmp_path,
    )
    assert done["given"] == [1, None, "é"]
    assert done["flag"] == "set"
    assert done["pid"] != os.getpid()
    assert "LAB_TEST_FLAG" not in os.environ
    assert (tmp_path / "worker.log").read_text() == "said on the way\n"
    call("answer", tmp_path)
    assert (tmp_path / "worker.log").read_text() == "said on the way\n" * 2, "a second call adds"


def test_a_deadline_ends_the_process_and_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(DeadlineExceeded, match=r"within 5 s \(deadline_s\)"):
        worker.call("workers:sleep_with_children", {"pids": pids}, object, deadline_s=5, env=ENV)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 3
    assert eventually(lambda: all(map(is_gone, started)))


def test_a_call_that_nobody_waits_for_any_more_is_stopped(tmp_path: Path) -> None:
    pids, stop = tmp_path / "pids", threading.Event()

    def all_started() -> bool:
        return pids.exists() and len(pids.read_text().split()) == 3

    waiting = threading.Timer(0, lambda: eventually(all_started) and stop.set())
    waiting.start()
    payload = {"pids": str(pids)}
    with pytest.raises(DeadlineExceeded, match="no longer wanted"):
        worker.call(
            "workers:sleep_with_children", payload, object, deadline_s=60, env=ENV, stop=stop
        )
    waiting.join()
    assert eventually(lambda: all(map(is_gone, map(int, pids.read_text().split()))))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("exit_quietly", "exited with code 3 and no answer"),
        ("leave", "exited with code 3 and no answer"),
        ("kill_itself", "was killed by SIGKILL"),
        ("no_json", "exited with code 1 and no answer"),
    ],
)
def test_an_end_without_an_answer_is_a_crash(function: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("of an earlier call\n")
    with pytest.raises(WorkerCrashed, match=reason) as crashed:
        call(function, tmp_path, code=3)
    assert "earlier" not in crashed.value.log_tail
    if function == "exit_quietly":
        assert crashed.value.log_tail == "last words\n"


def test_our_refusals_come_back_as_themselves() -> None:
    with pytest.raises(UserError, match=r"^seq=0: too short$"):
        call("refuse", kind="user", message="seq=0: too short")
    with pytest.raises(UnsupportedCell, match=r"^no such unit$"):
        call("refuse", kind="unsupported", message="no such unit")


def test_any_other_exception_travels_with_its_traceback() -> None:
    with pytest.raises(WorkerFailed, match="ValueError: odd") as failed:
        call("refuse", kind="bug", message="odd")
    assert failed.value.type_name == "ValueError"
    assert "in refuse" in failed.value.trace
    with pytest.raises(WorkerFailed, match="not ours"):
        call("pretend")  # an exception that only bears the name


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "from lab import worker; worker.call('workers:sleep_with_children', "
        f"{{'pids': {str(pids)!r}}}, object, deadline_s=600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **ENV})
    assert eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    child, *others = map(int, pids.read_text().split())
    try:
        parent.kill()
        parent.wait()
        assert eventually(lambda: is_gone(child))
    finally:
        for pid in others:  # of a killed parent nobody ends these
            os.kill(pid, signal.SIGKILL)

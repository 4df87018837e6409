"""The protocol of a run directory, with a task that ends in every way it can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import samples

from lab import records, tasks
from lab.cells import environment
from lab.cells.cell import Cell, Outcome
from lab.command import runs
from lab.errors import UnsupportedCell, UserError
from lab.records import BenchmarkSection, Result, Status
from lab.worker import DeadlineExceeded, WorkerCrashed, WorkerFailed

Task = Callable[[Cell, Path], Outcome]
Install = Callable[[Task], None]
SECTION = BenchmarkSection.model_validate(samples.benchmark(1.0))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(run: Task) -> None:
        monkeypatch.setattr(tasks, "load", lambda _: SimpleNamespace(run=run))

    return put


def good(_: Cell, __: Path) -> Outcome:
    return Outcome(SECTION, "interpreted", interpret=True, cache_state="cold", device=samples.CPU)


def raising(error: BaseException) -> Task:
    def run(_: Cell, __: Path) -> Outcome:
        raise error

    return run


def status_of(directory: Path) -> Status:
    return records.read(directory / "status.json", Status)


def result_of(directory: Path) -> Result:
    return records.read(directory / "result.json", Result)


def test_status_comes_first_and_last(tmp_path: Path, install: Install) -> None:
    during: list[Status] = []

    def run(cell: Cell, directory: Path) -> Outcome:
        during.append(status_of(directory))
        assert not (directory / "result.json").exists(), "an old result must not pass for this one"
        return good(cell, directory)

    (tmp_path / "result.json").write_text("of an earlier run")
    (tmp_path / "error.txt").write_text("of an earlier run")
    (tmp_path / "worker.log").write_text("of an earlier run")
    install(run)
    cell = samples.cell()
    result = runs.run(cell, tmp_path)
    assert [s.status for s in during] == ["running"]
    assert during[0].finished_at is None
    after = status_of(tmp_path)
    assert (after.status, after.cell_id) == ("done", cell.id)
    assert after.finished_at is not None
    assert result_of(tmp_path) == result
    assert sorted(p.name for p in tmp_path.iterdir()) == ["result.json", "status.json"]
    assert result.config["q_len"] == 256
    assert result.code_sha256 == environment.code_sha256()
    assert result.environment.device_kind == "cpu"


@pytest.mark.parametrize(
    ("error", "status", "reason", "kept"),
    [
        (UnsupportedCell("no\nsuch  unit"), "unsupported", "no such unit", None),
        (DeadlineExceeded("no answer within 1 s"), "timeout", "no answer within 1 s", None),
        (WorkerCrashed("killed by SIGKILL", "the log"), "failed", "killed by SIGKILL", "the log"),
        (WorkerFailed("E", "a\nb", "the trace"), "failed", "E: a", "the trace"),
        (RuntimeError("[/red] odd"), "failed", "RuntimeError: [/red] odd", "Traceback"),
        (SystemExit(3), "failed", "SystemExit: 3", "Traceback"),
        (ValueError(), "failed", "ValueError:", "Traceback"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, BaseException) else "",
)
def test_every_ending_becomes_a_record(
    tmp_path: Path, install: Install, error: BaseException, status: str, reason: str,
    kept: str | None,
) -> None:  # fmt: skip
    install(raising(error))
    result = runs.run(samples.cell(), tmp_path)
    assert (result.status, result.reason) == (status, reason)
    assert result_of(tmp_path) == result
    assert status_of(tmp_path).status == status
    assert (result.error is not None) == (status == "failed")
    if kept:
        assert result.error is not None
        assert result.error.file == "error.txt"
        assert kept in (tmp_path / "error.txt").read_text()


TRACE = """Traceback (most recent call last):
  File "{here}/mine.py", line 3, in attention
    return helper(q)
  File "{here}/mine.py", line 7, in helper
    return jnp.dot(q, k)
  File "/site-packages/jax/numpy/linalg.py", line 99, in dot
TypeError: dot got incompatible shapes
"""


@pytest.mark.parametrize(
    ("path", "where"), [("mine.py", " (mine.py, line 7)"), ("other.py", ""), (None, "")]
)
def test_a_failure_names_the_line_of_the_users_file(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch, path: str | None, where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "other.py").write_text("")
    install(raising(WorkerFailed("TypeError", "dot got", TRACE.format(here=tmp_path))))
    given = [f"candidate.path={path}", "candidate.function=f"] if path else []
    chosen = ["candidate=custom"] if path else []
    result = runs.run(samples.cell(*chosen, *given), tmp_path / "run")
    assert result.reason == f"TypeError: dot got{where}"


@pytest.mark.parametrize(
    ("error", "status"), [(UserError("seq=0"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_what_must_stop_the_command_leaves_a_record_first(
    tmp_path: Path, install: Install, error: BaseException, status: str
) -> None:
    install(raising(error))
    with pytest.raises(type(error)):
        runs.run(samples.cell(), tmp_path)
    assert result_of(tmp_path).status == status_of(tmp_path).status == status


@pytest.mark.parametrize(
    ("section", "word"),
    [
        ({**dict(SECTION), "median_ms": float("nan")}, "ValidationError"),
        ({**dict(SECTION), "colour": "blue"}, "ValidationError"),
        (SECTION.model_copy(update={"median_ms": float("nan")}), "ValueError"),
        (None, "ValidationError"),
    ],
)
def test_an_answer_that_fits_no_record_is_a_failure(
    tmp_path: Path, install: Install, section: dict[str, object], word: str
) -> None:
    install(lambda _, __: Outcome(section, "measured", device=samples.CPU))
    result = runs.run(samples.cell(), tmp_path)
    assert result.status == "failed"
    assert result.reason is not None
    assert word in result.reason
    assert result_of(tmp_path) == result


def test_a_gate_that_fails_is_a_failed_record_with_its_level(
    tmp_path: Path, install: Install
) -> None:
    outcome = Outcome(None, "measured", status="failed", reason="wrong", device=samples.CPU)
    install(lambda _, __: outcome)
    result = runs.run(samples.cell(), tmp_path)
    assert (result.status, result.reason, result.evidence) == ("failed", "wrong", "measured")


def test_only_a_done_run_of_the_same_configuration_and_code_is_skipped(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = samples.cell()
    assert not runs.skips(cell, tmp_path)
    install(raising(RuntimeError("broken")))
    runs.run(cell, tmp_path)
    assert not runs.skips(cell, tmp_path), "a failed cell is run again"
    install(good)
    runs.run(cell, tmp_path)
    assert runs.skips(cell, tmp_path)
    assert not runs.skips(samples.changed(cell, seed=1), tmp_path)
    assert not runs.skips(samples.changed(cell, resume=False), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(environment, "code_sha256", lambda: "other code")
        assert not runs.skips(cell, tmp_path)
    status = json.loads((tmp_path / "status.json").read_text())
    (tmp_path / "status.json").write_text(json.dumps({**status, "status": "running"}))
    assert runs.skips(cell, tmp_path), "killed between its whole result and its last status"
    runs.settle(cell, tmp_path)
    settled = status_of(tmp_path)
    assert (settled.status, settled.cell_id) == ("done", cell.id)
    assert settled.finished_at == result_of(tmp_path).finished_at
    result = tmp_path / "result.json"
    result.write_bytes(result.read_bytes()[:-100])
    assert not runs.skips(cell, tmp_path), "a truncated result is none"

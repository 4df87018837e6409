"""Records: what is written is read back; what does not fit is refused by name and reason."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
import samples
from pydantic import ValidationError

from lab import records
from lab.records import InvalidRecord, Result, Status, weaker


@pytest.fixture(scope="module")
def timed() -> Result:
    return samples.timed("kernel=pallas", "seq=128", ms=2.0)


def fields(result: Result) -> dict[str, Any]:
    return dict(json.loads(records.dump(result)))


def test_a_record_survives_the_disk(timed: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    records.write(path, timed)
    assert records.read(path, Result) == timed
    text = path.read_text()
    assert records.dump(records.read(path, Result)) == text
    assert "correctness" not in json.loads(text), "absent sections are left out"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"colour": "blue"}, "colour"),
        ({"seed": "many"}, "seed"),
        ({"evidence": "guessed"}, "evidence"),
        ({"status": "running"}, "never 'running'"),
        ({"schema_version": 2}, "schema_version"),
        ({"evidence": None}, "evidence None does not fit"),
        ({"task": "correctness"}, "in a record of task correctness"),
        ({"benchmark": None}, "needs its section"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_and_named(
    timed: Result, tmp_path: Path, change: dict[str, Any], where: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**fields(timed), **change}))
    with pytest.raises(InvalidRecord, match=where) as refused:
        records.read(path, Result)
    assert str(path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_time_is_a_finite_number_of_milliseconds(timed: Result, value: float) -> None:
    data = fields(timed)
    data["benchmark"]["median_ms"] = value
    with pytest.raises(ValidationError, match="median_ms"):
        Result.model_validate(data)


def test_nan_in_a_free_form_part_is_not_written(timed: Result, tmp_path: Path) -> None:
    data = fields(timed)
    data["config"]["deadline_s"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        records.write(tmp_path / "result.json", Result.model_validate(data))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kept", [0, 1, 200])
def test_a_truncated_file_is_named(timed: Result, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "result.json"
    path.write_text(records.dump(timed)[:kept])
    with pytest.raises(InvalidRecord, match=r"result\.json: the file: Invalid JSON"):
        records.read(path, Result)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecord, match=r"status\.json: No such file"):
        records.read(tmp_path / "status.json", Status)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), full)
        with pytest.raises(OSError, match="No space left") as failed:
            records.write_atomically(path, "new")
    assert failed.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"


def test_a_comparison_has_the_weaker_evidence() -> None:
    assert weaker("measured", "interpreted") == "interpreted"
    assert weaker("estimated", "measured") == "estimated"
    assert weaker("compiled", "estimated") == "compiled"

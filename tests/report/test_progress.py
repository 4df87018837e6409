"""How long a sweep will still take is said from the cells that it has done."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples

from lab.report import progress


def lines(
    directory: Path, already: int, seconds: float, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:  # fmt: skip
    """What ten cells, some done before, have printed when one more was done after `seconds`."""
    made = samples.timed("kernel=xla", ms=1.0)
    cells = [f"cell{n}" for n in range(10)]
    watcher = progress.Watcher(directory, cells, cells[:already])
    samples.keep(made, directory / cells[already])
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    watcher._began = 0.0
    watcher._look(None)
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("already", "seconds", "said"),
    [(0, 60, "about 9 min left"), (5, 60, "about 4 min left"), (0, 6, "")],
)
def test_the_rest_is_estimated_from_the_cells_of_this_sweep(
    already: int, seconds: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (line,) = lines(tmp_path, already, seconds, monkeypatch, capsys)
    assert line.split()[:3] == [f"{already + 1}/10", "done", f"cell{already}"]
    assert ("min left" in line) == bool(said)
    assert said in line

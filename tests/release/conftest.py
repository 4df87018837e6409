"""A good release of synthetic records, built once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import factory

from lab.release.build import assemble as build
from lab.release.build import profiles


def write_runs(records: list[dict[str, Any]], folder: Path) -> Path:
    """One run directory a record, as a sweep leaves them."""
    for number, record in enumerate(records):
        run = folder / f"{number:03}"
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[list[dict[str, Any]]], Path]:
    made = iter(range(1000))
    return lambda records: write_runs(records, tmp_path / f"runs-{next(made)}")


@pytest.fixture(scope="session")
def good_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three profiles, the failed first pairing of one of them included."""
    folder = tmp_path_factory.mktemp("good")
    shipped = profiles.load_all()
    for name, records in (
        ("local-cpu", factory.local_cpu()),
        ("tpu-v5e-compiled", factory.tpu_compiled()),
        ("kaggle-v5e-8", factory.kaggle()),
    ):
        built = build.update(
            folder / "dataset", shipped[name], [write_runs(records, folder / name)]
        )
        assert built.refused == ()
    return folder / "dataset"

"""The release as other programs read it: pandas, Hugging Face datasets, mlcroissant."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.release.format import rows

TABLES = tuple(rows.TABLES)


def plain(root: Path, table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / f"{table}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("table", TABLES)
def test_pandas_loads_every_table(table: str, good_release: Path) -> None:
    frame = pd.read_json(good_release / f"{table}.jsonl", lines=True)
    assert list(frame.columns) == list(rows.TABLES[table].model_fields)
    assert len(frame) == len(plain(good_release, table))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.filterwarnings("default")  # what the library warns about is its own affair
def test_datasets_loads_every_table_by_name(
    table: str,
    good_release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="pip install '.[release]'")
    loaded = datasets.load_dataset(
        str(good_release), table, split="measurements", cache_dir=str(tmp_path)
    )
    assert loaded.to_list() == plain(good_release, table)
    said = capfd.readouterr().err
    assert "Ignoring" not in said, said


@pytest.mark.filterwarnings("default")
def test_datasets_finds_the_tables_and_the_default(good_release: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install '.[release]'")
    assert datasets.get_dataset_config_names(str(good_release)) == list(TABLES)
    assert datasets.get_dataset_default_config_name(str(good_release)) == "comparisons"


@pytest.mark.filterwarnings("default")
def test_croissant_is_valid_and_its_records_are_the_rows(good_release: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        croissant = pytest.importorskip("mlcroissant", reason="pip install '.[release]'")
        described = croissant.Dataset(good_release / "croissant.json")
    assert not described.metadata.issues.errors
    assert not described.metadata.issues.warnings
    assert {r.id for r in described.metadata.record_sets} == set(TABLES)
    for table in TABLES:
        records = list(described.records(table))
        wanted = plain(good_release, table)
        assert len(records) == len(wanted)
        for record, row in zip(records, wanted, strict=True):
            for column, value in row.items():
                assert same(record[f"{table}/{column}"], value), (table, column)


def same(loaded: Any, value: Any) -> bool:
    if value is None:
        return bool(pd.isna(loaded))
    if isinstance(loaded, bytes):
        return loaded.decode() == value
    if isinstance(loaded, pd.Timestamp):
        return loaded == pd.Timestamp(value)
    if isinstance(value, float):
        return math.isclose(loaded, value, rel_tol=1e-12)  # pandas reads JSON floats in haste
    return bool(loaded == value)

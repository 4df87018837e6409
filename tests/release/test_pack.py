"""Packing records: the same bytes for the same records, and not the run that packs."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lab.release.build.pack import pack


def test_the_run_that_packs_is_left_out_and_the_bytes_repeat(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    (folder / "benchmark" / "cell").mkdir(parents=True)
    for name in ("status.json", "benchmark/cell/status.json", "benchmark/cell/result.json"):
        (folder / name).write_text("{}")
    assert pack(folder, folder / "a.zip") == 2
    with zipfile.ZipFile(folder / "a.zip") as packed:
        assert packed.namelist() == ["benchmark/cell/result.json", "benchmark/cell/status.json"]
    pack(folder, folder / "b.zip")
    assert (folder / "a.zip").read_bytes() == (folder / "b.zip").read_bytes()

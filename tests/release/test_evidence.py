"""Evidence pages say what ran, on what, by which command, and what follows; built by a command."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import factory

from lab.release.build import assemble as build
from lab.release.build import evidence, profiles
from lab.release.format import privacy
from lab.worker import PACKAGE_ROOT

Runs = Callable[[list[dict[str, Any]]], Path]
SECTIONS = ("What ran, and on what", "By which command", "What may be concluded", "What may not")


def test_pages_are_written_beside_the_release(runs: Runs, tmp_path: Path) -> None:
    profile = profiles.load_all()["local-cpu"]
    pages = tmp_path / "evidence"
    build.update(tmp_path / "d", profile, [runs(factory.local_cpu())], pages=pages)
    first = {p.relative_to(pages).as_posix(): p.read_bytes() for p in pages.rglob("*.*")}
    build.update(tmp_path / "d", profile, [], pages=pages)
    assert first == {p.relative_to(pages).as_posix(): p.read_bytes() for p in pages.rglob("*.*")}

    page = (pages / "local-cpu" / "README.md").read_text()
    assert all(f"## {section}" in page for section in SECTIONS)
    assert "no performance claim" in page
    assert "| interpreted | softmax | forward | 2048 | pallas |" in page
    assert "wrong-gqa | known-bad | rejected" in page
    assert "7 of 7" in page
    assert not [line for line in page.splitlines() if privacy.find(line)]
    with (pages / "local-cpu" / "comparisons.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 10


def test_the_published_page_credits_its_author_and_computes_only_ratios() -> None:
    files = evidence.published_pages()
    page = files["published-kaggle-v5e-8/README.md"].decode()
    assert all(f"## {section}" in page for section in SECTIONS)
    assert "Laela Zorana" in page
    assert "CC BY-NC" in page
    table = list(
        csv.DictReader(files["published-kaggle-v5e-8/comparisons.csv"].decode().splitlines())
    )
    assert len(table) == 10
    ratios = [float(row["pallas_ms"]) / float(row["xla_ms"]) for row in table]
    assert [float(row["slowdown"]) for row in table] == ratios
    assert 1.2 < min(ratios) < max(ratios) < 2.4  # as the page says


def test_a_profile_with_a_page_of_its_own_is_left_alone(runs: Runs, tmp_path: Path) -> None:
    profile = profiles.load_all()["tpu-v5e-compiled"]
    pages = tmp_path / "evidence"
    build.update(tmp_path / "d", profile, [runs(factory.tpu_compiled())], pages=pages)
    assert not (pages / "tpu-v5e-compiled").exists()


def test_the_published_page_that_is_checked_in_is_the_one_that_is_built() -> None:
    for name, data in evidence.published_pages().items():
        assert (PACKAGE_ROOT / "evidence" / name).read_bytes() == data

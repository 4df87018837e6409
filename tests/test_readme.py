"""What the README states: its figures come from the evidence it links, and what it names exists."""

from __future__ import annotations

import csv
import gzip
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import samples
from documents import DOCS, README, ROOT, RUNBOOK, without_blocks

from lab.cells.config import problem_shape
from lab.grading.correctness import checks

TEXT = " ".join(README.read_text().split())


def said(pattern: str) -> list[float]:
    """The numbers in the one place of the README that the pattern finds."""
    (found,) = re.findall(pattern, TEXT)
    return [float(number) for number in ([found] if isinstance(found, str) else found)]


@cache
def audit() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "evidence/grader-audit/summary.json").read_text())
    return found


@cache
def compiled(kernel: str, seq: int) -> dict[str, Any]:
    """What a stored record of task=compile says of a kernel at the published shape."""
    name = f"compile-{kernel}-attention-s{seq}-bf16-forward-v5e-*"
    (path, *_) = (
        *(ROOT / "evidence/tpu-v5e-compiled/sweep").glob(f"{name}/result.json*"),
        *(ROOT / "evidence/tuning/v5e").glob(f"{name}.json"),
    )
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    section: dict[str, Any] = json.loads(text)["compile"]
    return section


def longest_loop(kernel: str, seq: int) -> dict[str, Any]:
    loops: list[dict[str, Any]] = compiled(kernel, seq)["loops"]
    return max(loops, key=lambda loop: float(loop["cycles"]))


def test_the_audit_is_quoted_by_suite_and_by_trial() -> None:
    suite, trial, wrong = (audit()[k] for k in ("suite_kills", "trial_kills", "false_rejects"))
    by_suite, by_trial, false = (
        said(r"([\d]+) of ([\d]+) known-bad candidates"),
        said(r"([\d]+) of ([\d]+), ([\d.]+)%; \d+ of \d+ control trials"),
        said(r"([\d]+) of ([\d]+) control trials"),
    )
    assert by_suite == [suite["hits"], suite["n"]]
    assert by_trial == [trial["hits"], trial["n"], round(100 * trial["rate"], 1)]
    assert false == [wrong["hits"], wrong["n"]]
    assert said(r"and (\d+) faults got the right class") == [audit()["right_class"]["hits"]]


def test_the_reasons_of_the_slowdown_are_those_of_the_stored_schedules() -> None:
    idle, copies = said(r"\((\d+)% of the cycles at 512 keys\)"), said(r"at 2048 keys (\d+)% of")
    assert idle == pytest.approx([100 * longest_loop("pallas-8row", 512)["latency"]], abs=1)
    assert copies == pytest.approx([100 * longest_loop("pallas-8row", 2048)["copy_waits"]], abs=1)


@pytest.mark.parametrize("kernel", ["pallas-8row", "xla", "flash"])
def test_the_winner_is_that_of_the_stored_estimates(kernel: str) -> None:
    assert compiled(kernel, 2048)["values_proved"]
    estimate = compiled(kernel, 2048)["estimated_ms"]
    assert said(rf"([\d.]+) ms for `{kernel}`") == pytest.approx([estimate], rel=0.02)


def test_the_published_range_is_that_of_the_published_table() -> None:
    with (ROOT / "evidence/published-kaggle-v5e-8/comparisons.csv").open() as file:
        slowdowns = [float(row["slowdown"]) for row in csv.DictReader(file)]
    least, most = said(r"was ([\d.]+) to ([\d.]+) times slower than XLA")
    assert [least, most] == [round(min(slowdowns), 1), round(max(slowdowns), 1)]


def test_the_number_of_checks_is_that_of_task_correctness() -> None:
    count = len(checks(problem_shape(samples.cell("task=correctness").config), "attention"))
    assert re.findall(r"# (\d+) checks", TEXT) == [str(count)]


def test_the_pythons_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest, beyond = re.findall(r"3\.(\d+)", project["requires-python"])
    assert f"Python 3.{oldest} to 3.{int(beyond) - 1}" in TEXT


@pytest.mark.parametrize("page", [README, RUNBOOK, *DOCS], ids=lambda path: path.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", without_blocks(page))
    assert not [t for t in targets if "://" not in t and not (page.parent / t).exists()]


def house() -> dict[str, list[str]]:
    """The rows of "Where things are": the question, and the paths it names under lab/."""
    rows: dict[str, list[str]] = {}
    row = re.compile(r"^\| ([^|]+) \| (`[^|]+) \|$", re.MULTILINE)
    for question, place in row.findall(README.read_text()):
        room = ""
        for path, mark in re.findall(r"`([\w/.]+)`(:?)", place):
            if mark:  # `room/`: its files
                room = path
            else:
                rows.setdefault(question, []).append(room + path)
    return rows


def test_the_map_of_the_house_names_what_is_there() -> None:
    named = house()
    assert len(named) > 15
    generic = re.compile(r"NAME|FAMILY|GROUP")
    places = [place for paths in named.values() for place in paths if not generic.search(place)]
    assert not [p for p in places if not (ROOT / "lab" / p).exists() and not (ROOT / p).exists()]


def test_every_room_stands_on_the_map() -> None:
    named = " ".join(place for paths in house().values() for place in paths)
    rooms = {p.name for p in (ROOT / "lab").iterdir() if (p / "__init__.py").exists()}
    assert not {room for room in rooms if f"{room}/" not in named}

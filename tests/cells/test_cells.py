"""The identity of a cell: everything that says what is run, nothing that says where it is kept."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import samples
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.cells.cell import Cell
from lab.cells.config import Direction, LabConfig, from_plain


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return [path]
    return [leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))]


def with_leaf(path: tuple[str, ...], value: object) -> LabConfig:
    """The configuration with one leaf replaced, past the types: only its identity is looked at."""
    config = copy.deepcopy(samples.cell().config)
    target: Any = config
    for key in path[:-1]:
        target = target[key] if isinstance(target, dict) else getattr(target, key)
    if isinstance(target, dict):
        target[path[-1]] = value
    else:
        setattr(target, path[-1], value)
    return config


PLAIN = samples.cell().plain()
OUTPUT = {("resume",), ("release", "out"), ("release", "evidence"), ("campaign", "out")}


def test_an_id_is_a_readable_slug_and_eight_hex_digits() -> None:
    assert re.fullmatch(
        r"benchmark-pallas-attention-s256-bf16-forward-[0-9a-f]{8}", samples.cell().id
    )
    decode = samples.cell("seq=512", "q_len=1", "candidate=naive", "direction=backward")
    assert decode.id.startswith("benchmark-naive-attention-s512-t1-bf16-backward-")
    assert samples.cell("task=compile", "target=v5p").id.split("-")[-2] == "v5p"
    assert re.fullmatch(r"report-[0-9a-f]{8}", samples.cell("task=report").id)


@pytest.mark.parametrize("path", leaves(PLAIN), ids=".".join)
def test_every_key_but_output_paths_changes_the_id(path: tuple[str, ...]) -> None:
    numeric = path[-1] in ("seq", "q_len")
    other = Cell(with_leaf(path, 77 if numeric else "another value"))
    same = other.id.split("-")[-1] == samples.cell().id.split("-")[-1]
    assert same == (path in OUTPUT or path[0] == "tune")


@settings(max_examples=30)
@given(
    seq=st.integers(1, 10**6), seed=st.integers(0, 2**31), deadline=st.floats(1, 1e6),
    direction=st.sampled_from(Direction),
)  # fmt: skip
def test_ids_agree_exactly_where_configurations_do(
    seq: int, seed: int, deadline: float, direction: Direction
) -> None:
    base = samples.cell().config
    changes = {"seq": seq, "seed": seed, "deadline_s": deadline, "direction": direction}
    cell = Cell(dataclasses.replace(base, **changes))  # type: ignore[arg-type]
    assert cell.id == Cell(dataclasses.replace(cell.config, resume=False)).id
    assert cell.id != Cell(dataclasses.replace(cell.config, seed=seed + 1)).id


def test_the_default_query_length_is_the_key_length() -> None:
    assert samples.cell("seq=128").id == samples.cell("seq=128", "q_len=128").id
    assert samples.cell("seq=128").plain()["q_len"] == 128
    assert samples.cell("seq=128").id != samples.cell("seq=128", "q_len=64").id


def test_a_worker_sees_the_same_cell() -> None:
    cell = samples.cell("direction=backward", "kernel.block_rows=16")
    assert Cell(from_plain(cell.plain())).id == cell.id


def test_how_a_cell_was_asked_for_does_not_matter() -> None:
    asked = samples.cell("kernel=pallas", "seq=256", "dtype=bf16")
    assert asked.id == samples.cell().id
    assert asked.overrides == ("kernel=pallas", "seq=256", "dtype=bf16")


def test_an_input_file_counts_by_its_content(tmp_path: Path) -> None:
    def custom(path: Path) -> str:
        base = samples.cell().config
        candidate = dataclasses.replace(base.candidate, path=str(path))
        return Cell(dataclasses.replace(base, candidate=candidate)).id

    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("a = 1\n")
    two.write_text("a = 1\n")
    before = custom(one)
    assert before == custom(two)
    one.write_text("a = 2\n")
    assert custom(one) != before


def test_a_slug_names_no_directory_above() -> None:
    base = samples.cell().config
    odd = dataclasses.replace(base.candidate, name="../..//x y")
    cell = Cell(dataclasses.replace(base, candidate=odd))
    assert re.fullmatch(r"[A-Za-z0-9.-]+", cell.id)
    assert "/" not in cell.id

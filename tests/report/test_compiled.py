"""A compiled cell on a terminal: it fits, and its advice comes from its own figures."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from commands import ROOT
from rich.console import Console

from lab.records import CompileSection
from lab.report import compiled

RECORDS = sorted((ROOT / "evidence/tpu-v5e-compiled/sweep").glob("*/result.json*"))


def sections() -> list[CompileSection]:
    texts = [
        gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in RECORDS
    ]
    return [CompileSection.model_validate(json.loads(text)["compile"]) for text in texts]


def shown(section: CompileSection, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    compiled.show(section, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_every_record_of_the_evidence_fits_with_its_names_whole(width: int) -> None:
    assert len(RECORDS) >= 20
    for section in sections():
        lines = shown(section, width).splitlines()
        assert max(map(len, lines)) <= width
        firsts = "".join(line.partition("  ")[0].strip() for line in lines)
        assert all(op.name in firsts for op in section.ops)


def test_temporaries_are_named_with_the_op_that_moves_most() -> None:
    section = max(sections(), key=lambda s: s.memory.temporary_bytes)
    (line,) = [line for line in compiled.advice(section) if "temporaries" in line]
    assert f"{section.memory.temporary_bytes / 2**20:,.1f} MiB" in line
    without = section.model_copy(
        update={"memory": section.memory.model_copy(update={"temporary_bytes": 0})}
    )
    assert not [line for line in compiled.advice(without) if "temporaries" in line]


@pytest.mark.parametrize(("share", "said"), [(0.9, False), (1.2, True)])
def test_more_than_the_bandwidth_is_explained(share: float, said: bool) -> None:
    section = next(s for s in sections() if s.loops)
    loop = max(section.loops, key=lambda loop: loop.cycles)
    full = loop.model_copy(update={"use": {**loop.use, "HBM": share}, "cycles": 1})
    advice = compiled.advice(section.model_copy(update={"loops": [loop, full]}))
    assert any("HBM above 100%" in line for line in advice) is said


def test_every_bound_of_the_evidence_has_its_advice() -> None:
    bounds = {loop.bound_by for section in sections() for loop in section.loops}
    assert "copy waits" in bounds
    assert bounds <= set(compiled.MEANINGS)

"""The heat map of units: what its numbers are, and when it is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import samples
from commands import ROOT

from lab import records
from lab.records import CompileLoop, Result
from lab.report.utilisation_figure import STALLS, UNITS, shares, utilisation

SWEEP = ROOT / "evidence" / "tpu-v5e-compiled" / "sweep"


@pytest.fixture(scope="module")
def compiled() -> Result:
    (path,) = SWEEP.glob("compile-pallas-8row-softmax-s512-*/result.json")
    return records.read(path, Result)


def loop(cycles: int, *, waits: float, **use: float) -> CompileLoop:
    return CompileLoop(
        op="k", loop="0x1-0x2", trips=1, cycles=cycles, share=1.0, bound_by="MXU", dma_bytes=0,
        copy_waits=waits, latency=0.0, use=use,
    )  # fmt: skip


def test_a_loop_counts_by_its_cycles(compiled: Result) -> None:
    assert compiled.compile is not None
    loops = [loop(300, waits=0.0, MXU=1.0), loop(100, waits=0.8, MXU=0.2, HBM=1.0)]
    found = dict(
        zip((*UNITS, *STALLS), shares(compiled.compile.model_copy(update={"loops": loops})),
            strict=True)
    )  # fmt: skip
    assert found["MXU"] == pytest.approx(0.8)
    assert found["HBM"] == pytest.approx(0.25)
    assert found["waits for\ncopies"] == pytest.approx(0.2)
    assert found["EUP"] == 0


def test_the_figure_has_a_row_for_each_compiled_kernel(compiled: Result, tmp_path: Path) -> None:
    assert utilisation([compiled], tmp_path) == ["utilisation.png", "utilisation.svg"]
    first = (tmp_path / "utilisation.svg").read_text()
    assert "pallas-8row, 512: " in first
    assert "estimated by the compiler: not a measurement" in first
    utilisation([compiled], tmp_path)
    assert (tmp_path / "utilisation.svg").read_text() == first


def test_measured_times_have_no_units(tmp_path: Path) -> None:
    assert utilisation([samples.timed("kernel=xla", ms=2.0)], tmp_path) == []
    assert list(tmp_path.iterdir()) == []

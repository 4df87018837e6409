"""Public kernel timings: errors by regime, ranks, and which record is which point."""

import json
from pathlib import Path

import pytest

from lab.errors import UserError
from lab.report import kernel_timings
from lab.report.kernel_timings import KernelPoint, rank_correlations, summary, table


def point(regime: str, measured_ms: float, estimated_ms: float) -> KernelPoint:
    return KernelPoint("matmul", 8192, "bm=128", 64, regime, measured_ms, estimated_ms)


def test_errors_are_given_by_regime_and_for_all() -> None:
    frame = table([point("MXU", 2.0, 2.2), point("MXU", 4.0, 3.6), point("copies", 1.0, 1.3)])
    found = {row["regime"]: (row["points"], row["mean"], row["worst"]) for row in summary(frame)}
    assert found["MXU"] == (2, pytest.approx(0.1), pytest.approx(0.1))
    assert found["copies"] == (1, pytest.approx(0.3), pytest.approx(0.3))
    assert found["all"] == (3, pytest.approx(0.5 / 3), pytest.approx(0.3))


def test_ranks_fall_where_an_estimate_changes_the_order() -> None:
    right = [point("MXU", 1.0, 10.0), point("MXU", 2.0, 20.0), point("MXU", 3.0, 30.0)]
    wrong = [point("MXU", 1.0, 30.0), point("MXU", 2.0, 20.0), point("MXU", 3.0, 10.0)]
    assert rank_correlations(table(right)) == {"matmul 8192": pytest.approx(1.0)}
    assert rank_correlations(table(wrong)) == {"matmul 8192": pytest.approx(-1.0)}
    assert rank_correlations(table(right[:2])) == {}


def test_every_timing_has_its_source() -> None:
    data = json.loads(Path(kernel_timings.__file__).with_name("measured_v5e.json").read_text())
    assert len(data["points"]) == 45
    assert all(p["source"].startswith("AMLeng/tpu-kernels") for p in data["points"])


def test_a_sweep_of_other_cells_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no estimate of a public kernel"):
        kernel_timings.write(tmp_path, tmp_path / "out")

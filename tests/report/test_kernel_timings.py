"""Public kernel timings: errors by regime, ranks, and which record is which point."""

import json
from pathlib import Path

import pandas as pd
import pytest

from lab.errors import UserError
from lab.report import kernel_timings
from lab.report.kernel_timings import KernelPoint, Order, orders, summary, table

PUBLISHED = Path(__file__).parents[2] / "evidence/tpu-v5e-compiled/kernels.csv"


def point(regime: str, measured_ms: float, estimated_ms: float) -> KernelPoint:
    return KernelPoint("matmul", 8192, "bm=128", 64, regime, measured_ms, estimated_ms)


def test_errors_are_given_by_regime_and_for_all() -> None:
    frame = table([point("MXU", 2.0, 2.2), point("MXU", 4.0, 3.6), point("copies", 1.0, 1.3)])
    found = {row["regime"]: (row["points"], row["mean"], row["worst"]) for row in summary(frame)}
    assert found["MXU"] == (2, pytest.approx(0.1), pytest.approx(0.1))
    assert found["copies"] == (1, pytest.approx(0.3), pytest.approx(0.3))
    assert found["all"] == (3, pytest.approx(0.5 / 3), pytest.approx(0.3))


def test_an_order_falls_where_an_estimate_changes_it() -> None:
    right = [point("MXU", 1.0, 10.0), point("MXU", 2.0, 20.0), point("MXU", 3.0, 30.0)]
    wrong = [point("MXU", 1.0, 30.0), point("MXU", 2.0, 20.0), point("MXU", 3.0, 10.0)]
    assert orders(table(right)) == {"matmul 8192": Order(pytest.approx(1.0), 3, 3)}
    assert orders(table(wrong)) == {"matmul 8192": Order(pytest.approx(-1.0), 0, 3)}
    assert orders(table(right[:2])) == {}


def test_timings_that_hardly_differ_have_no_order_to_predict() -> None:
    close = [point("MXU", 1.0, 10.0), point("MXU", 1.01, 10.0), point("MXU", 1.1, 11.0)]
    found = orders(table(close))["matmul 8192"]
    assert (found.right, found.pairs) == (2, 2)
    assert found.spearman < 1


def test_the_published_page_holds_its_promises() -> None:
    frame = pd.read_csv(PUBLISHED)
    assert len(frame) == 45
    for row in summary(frame):
        assert row["mean"] <= (0.15 if row["regime"] == "all" else 0.25), row
    found = orders(frame)
    assert set(found) == {"matmul 8192", "scale 8192"}
    assert found["matmul 8192"].spearman >= 0.95
    assert all(order.right >= 0.95 * order.pairs for order in found.values()), found


def test_every_timing_has_its_source() -> None:
    data = json.loads(Path(kernel_timings.__file__).with_name("measured_v5e.json").read_text())
    assert len(data["points"]) == 45
    assert all(p["source"].startswith("AMLeng/tpu-kernels") for p in data["points"])


def test_a_sweep_of_other_cells_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no estimate of a public kernel"):
        kernel_timings.write(tmp_path, tmp_path / "out")

"""The fit of the one dispatch constant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.report.validation import Point, fit, ratios


def points(dispatch_ms: float, *estimates: float) -> list[Point]:
    return [Point("xla", "softmax", n, e + dispatch_ms, e) for n, e in enumerate(estimates, 1)]


def test_an_exact_constant_is_found_and_nothing_is_left() -> None:
    found = fit(points(0.16, 0.01, 0.1, 0.5, 1.0))
    assert found.dispatch_ms == pytest.approx(0.16)
    assert found.worst_error == pytest.approx(0.0, abs=1e-12)
    assert found.mean_left_out() == pytest.approx(0.0, abs=1e-12)


def test_leave_one_out_shows_a_point_that_only_the_constant_fits() -> None:
    # Two points pull the constant to either side; each is far off once it is left out.
    pair = [Point("xla", "softmax", 1, 0.2, 0.1), Point("xla", "softmax", 2, 0.5, 0.1)]
    found = fit(pair)
    assert found.mean_left_out() > found.mean_error()


@given(
    st.lists(st.tuples(st.floats(0.05, 2), st.floats(0.001, 2)), min_size=2, max_size=12),
    st.floats(0, 1),
)
def test_no_other_constant_does_better(pairs: list[tuple[float, float]], other: float) -> None:
    some = [Point("k", "s", n, published, est) for n, (published, est) in enumerate(pairs)]
    best = fit(some).dispatch_ms
    loss = sum(abs(p.error(best)) for p in some)
    assert loss <= sum(abs(p.error(other)) for p in some) + 1e-9


def test_a_ratio_on_the_wrong_side_of_one_is_seen() -> None:
    some = [Point("xla", "softmax", 128, 0.2, 0.10), Point("pallas", "softmax", 128, 0.3, 0.05)]
    (ratio,) = ratios(some, 0.1)
    assert ratio.published == pytest.approx(1.5)
    assert not ratio.same_side


def test_one_point_is_no_fit() -> None:
    with pytest.raises(ValueError, match="at least two points"):
        fit(points(0.1, 0.2))

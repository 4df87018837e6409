"""How far the estimates are from published measurements, with one constant for the host's dispatch.

A published time holds what the host needs to start a program; an estimate is of the device alone.
One constant, the same for every kernel, scope and length, stands between them, and nothing else is
fitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean


@dataclass(frozen=True)
class Point:
    """One published time and the estimate for it, milliseconds."""

    kernel: str
    scope: str
    seq: int
    published_ms: float
    estimated_ms: float

    def predicted_ms(self, dispatch_ms: float) -> float:
        """What a host would see: the estimate and the dispatch."""
        return self.estimated_ms + dispatch_ms

    def error(self, dispatch_ms: float) -> float:
        """Signed relative error of the prediction; above 0 it is too long."""
        return self.predicted_ms(dispatch_ms) / self.published_ms - 1


@dataclass(frozen=True)
class Fit:
    """The constant and what is left of the errors.

    `left_out` holds each point's error under the constant fitted on all the other points.
    """

    dispatch_ms: float
    points: tuple[Point, ...]
    errors: tuple[float, ...]
    left_out: tuple[float, ...]

    def mean_error(self, kernel: str | None = None) -> float:
        """Mean absolute relative error, of one kernel or of all."""
        return _mean_error(self.errors, self.points, kernel)

    def mean_left_out(self, kernel: str | None = None) -> float:
        """The same under leave-one-out."""
        return _mean_error(self.left_out, self.points, kernel)

    @property
    def worst_error(self) -> float:
        """Largest absolute relative error."""
        return max(map(abs, self.errors))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels there are points for."""
        return tuple(sorted({point.kernel for point in self.points}))


@dataclass(frozen=True)
class Ratio:
    """Slowdown of a kernel against a baseline, published and predicted (dispatch in both)."""

    kernel: str
    scope: str
    seq: int
    published: float
    predicted: float

    @property
    def same_side(self) -> bool:
        """Whether both say that the same of the two is faster."""
        return (self.published > 1) == (self.predicted > 1)


def fit(points: Sequence[Point]) -> Fit:
    """Fit the dispatch constant by least mean absolute relative error.

    Raises:
        ValueError: fewer than two points.
    """
    if len(points) < 2:
        raise ValueError(f"a fit needs at least two points, given {len(points)}")
    dispatch_ms = _best(points)
    left_out = []
    for index, point in enumerate(points):
        others = [*points[:index], *points[index + 1 :]]
        left_out.append(point.error(_best(others)))
    return Fit(
        dispatch_ms,
        tuple(points),
        tuple(point.error(dispatch_ms) for point in points),
        tuple(left_out),
    )


def ratios(points: Iterable[Point], dispatch_ms: float, baseline: str = "xla") -> tuple[Ratio, ...]:
    """Slowdowns of every kernel against the baseline, where a case has both."""
    points = tuple(points)
    base = {(p.scope, p.seq): p for p in points if p.kernel == baseline}
    return tuple(
        Ratio(
            p.kernel,
            p.scope,
            p.seq,
            p.published_ms / b.published_ms,
            p.predicted_ms(dispatch_ms) / b.predicted_ms(dispatch_ms),
        )
        for p in points
        if p.kernel != baseline and (b := base.get((p.scope, p.seq))) is not None
    )


def _best(points: Sequence[Point]) -> float:
    # The loss is convex and piecewise linear in the constant: its minimum is at a point's own gap.
    gaps = sorted(max(0.0, point.published_ms - point.estimated_ms) for point in points)
    return min(gaps, key=lambda gap: sum(abs(point.error(gap)) for point in points))


def _mean_error(errors: Sequence[float], points: Sequence[Point], kernel: str | None) -> float:
    kept = [abs(e) for e, p in zip(errors, points, strict=True) if kernel in (None, p.kernel)]
    return mean(kept)

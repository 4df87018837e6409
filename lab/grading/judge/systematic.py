"""Gate G: an error that rounding cannot make, because it points one way.

Rounding to nearest has no bias, so over a whole case a right answer y scatters about the truth x:
in y = a x + b + noise, a is 1 and b is 0. The fit is weighted least squares, over the case, over
each head and over each row position (all heads and batch entries of it); its standard errors let
the errors of a row be correlated as they please (the cluster-robust sandwich of Liang & Zeger,
Biometrika 73, 1986, with rows as clusters), and are never below those of the budgets' deviations.
A gain is rejected when it is off by more than

    COHERENT + Z standard errors + twice the noise's share of the truth's variance

COHERENT is one rounding to bfloat16 that a whole array may share (a scale, say); the last term is
second order, the attenuation by weights that noisy logits flatten. So the noise a kernel really
shows is what excuses it, not the noise its tier would allow.

What the gate leaves out: rows whose roundings are not independent (`Bound.independent`); and at a
tier that accumulates in bfloat16, rows that depend on a sum of more than `STAGNATES_FROM` terms:
there small terms are lost to a large partial sum, which is a bias, and a legal one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.judge.tiers import U16

if TYPE_CHECKING:
    from lab.grading.judge.budgets import Bound
    from lab.grading.judge.intermediates import Bool, Float
    from lab.grading.judge.tiers import Tier
    from lab.truth.problems import Array

COHERENT = U16  # twice that where sums are rounded too
COHERENT_OFFSET = U16 / 2  # in units of the truth's rms
Z = 6.0
FEWEST_ROWS = 8  # clusters without which a robust standard error means little
STAGNATES_FROM = 104
OVER = {"case": (0, 1, 2, 3), "head": (2, 3), "row": (0, 1, 3)}  # axes of [B, H, rows, D]


@dataclass(frozen=True)
class Systematic:
    """The worst systematic error of one result.

    Attributes:
        units: of its limit; 0 where there was too little to estimate.
        gain, offset: the fit of that slice.
        over: `case`, `head` or `row`.
        batch, head, row: which slice; None where it spans them all.
    """

    units: float
    gain: float = 1.0
    offset: float = 0.0
    over: str = "case"
    batch: int | None = None
    head: int | None = None
    row: int | None = None

    def describe(self) -> str:
        """In words: what was estimated and over what."""
        where = {"case": "the whole case", "head": f"batch {self.batch}, head {self.head}",
                 "row": f"all rows {self.row}"}[self.over]  # fmt: skip
        return f"is {self.gain:.4f} times the truth {self.offset:+.2g} over {where}"


def systematic(got: Array, truth: Float, bound: Bound, deviation: Float, tier: Tier) -> Systematic:
    """The worst gain or offset of one result `[B, H, rows, D]`.

    Args:
        got: the result.
        truth: what it should be.
        bound: at the tier.
        deviation: expected of an error at the tier that the policy promises: a coarser one does not
            widen the standard errors, which what was returned shows by itself.
        tier: which roundings are allowed.
    """
    y = got.astype(np.float64)
    usable = bound.independent & (bound.terms > 0)
    if tier.accumulate:
        usable = usable & (bound.longest <= STAGNATES_FROM)
    used = np.broadcast_to(usable[..., None], y.shape) & np.isfinite(y)
    y = np.where(used, y, truth)
    worst = Systematic(0.0)
    for over, axes in OVER.items():
        coherent = COHERENT * (2 if tier.accumulate else 1)
        gain, offset, units = _fit(truth, y, deviation, used, axes, coherent)
        place = np.unravel_index(int(units.argmax()), units.shape)
        if (value := float(units[place])) > worst.units:
            b, h, r, _ = (int(i) for i in place)
            where = {"case": (None, None, None), "head": (b, h, None), "row": (None, None, r)}[over]
            worst = Systematic(value, float(gain[place]), float(offset[place]), over, *where)
    return worst


@dataclass(frozen=True)
class Straightened:
    """A result without its bias, and the gain of the head that was furthest off."""

    values: Float
    gain: float


def without_bias(got: Array, truth: Float, bound: Bound) -> Straightened | None:
    """The result `[B, H, rows, D]` with the gain and offset of each head taken out of it.

    None where a head has too few rows to tell.
    """
    y = got.astype(np.float64)
    used = np.broadcast_to((bound.terms > 0)[..., None], y.shape) & np.isfinite(y)
    gain, offset, _ = _fit(truth, np.where(used, y, truth), bound.deviation, used, (2, 3), COHERENT)
    if not (np.isfinite(gain) & (gain != 0)).all():
        return None
    furthest = gain.ravel()[int(np.abs(gain - 1).argmax())]
    return Straightened(np.where(used, (y - offset) / gain, y), float(furthest))


def _fit(
    x: Float, y: Float, deviation: Float, used: Bool, axes: tuple[int, ...], coherent: float
) -> tuple[Float, Float, Float]:
    """Gain, offset and units of each slice: arrays with `axes` reduced to length 1."""

    def total(a: Float) -> Float:
        return np.asarray(a.sum(axes, keepdims=True))

    count = total(used.astype(np.float64))
    with np.errstate(all="ignore"):
        typical = total(np.where(used, deviation**2, 0)) / count
        w = np.where(used, 1 / (deviation**2 + typical), 0.0)
        weight = total(w)
        mean_x, mean_y = total(w * x) / weight, total(w * y) / weight
        centred = x - mean_x
        spread = total(w * centred**2)
        gain = total(w * centred * y) / spread
        offset = mean_y - gain * mean_x
        residual = y - gain * x - offset
        of_gain = w * centred / spread  # what an error adds to the gain, and to the offset
        of_offset = w / weight - mean_x * of_gain
        noise = total(w * residual**2) / spread
        size = np.sqrt(total(w * x**2) / weight)

        def error(influence: Float) -> Float:
            rows = (influence * residual).sum(-1, keepdims=True) ** 2
            over_rows = tuple(axis for axis in axes if axis != 3)
            seen = rows.sum(over_rows, keepdims=True)
            return np.sqrt(seen + total((influence * deviation) ** 2))

        off_gain = np.abs(gain - 1) / (coherent + Z * error(of_gain) + 2 * noise)
        off_offset = np.abs(offset) / (COHERENT_OFFSET * size + Z * error(of_offset))
        units = np.maximum(off_gain, off_offset)
    rows = used.any(-1, keepdims=True).sum(tuple(a for a in axes if a != 3), keepdims=True)
    enough = (rows >= FEWEST_ROWS) & np.isfinite(units)
    return gain, offset, np.where(enough, units, 0.0)

r"""How far rounding may carry a right answer: gate A (worst case) and gate B (expected size).

Notation: s = scale q.k the logits, p the weights, o = p v, g the cotangent, dP = g v^T, Delta =
rowsum(p dP), dS = p (dP - Delta); u the unit roundoff of a step (`tiers`), u32 = 2^-24. A sum of n
float32 terms has relative error g(n) = min(n, 6 sqrt(n)) u32 in the sum of magnitudes: Higham &
Mary, "A new approach to probabilistic rounding error analysis" (SIAM J. Sci. Comput. 41, 2019),
theorem 2.4 with lambda = 6, whichever order the terms are added in; n is the deterministic bound.

**A logit** is wrong by at most

    delta = g(D+4) scale |q||k|^T  (the dot product; operands rounded once more by a pre-scale)
          + 2 u32 (|s| + |s - max s|)  (exp by way of 2^x, and the subtraction of the maximum)
          + 4 u32 (1 + max|s|)  (exp itself, a log-sum-exp or merge in place of the maximum)
          + u_score (|s| + |s - max s| + 3 scale sqrt(q^2 k^2^T))  (tier bf16_scores)

**The weights** then move by p_j (delta_j - mean), so to first order
|do| <= sum_j p_j delta_j (|v_j| + |o|). Rounding p to the intermediate type adds u sum p|v| and,
when the rounded p are normalised, u |o|; the output type adds u_out |o|. Hence gate A:

    A_o = u_out |o| + (u + g(S) + a) (sum p|v| + |o|) + sum p delta (|v| + |o|)

with a = `low_precision_sum(keys, u_acc)` at tier bf16_accumulate, else 0.

**Backward**, by the same steps: dP is rounded once (u) after a dot product over D; Delta is either
rowsum(p dP) or g.o with the o that was returned, which is wrong by |g|.A_o at most; p may be
rounded (rho = u + a + delta); dS is rounded once (u) before the products with K and Q:

    e_dS = p ((u + rho) |dP| + rho |Delta| + g(D) |g||v|^T + e_Delta) + u |dS|
    A_dq = scale e_dS |k| + (2 u_out + g(S) + a) (scale p(|dP| + |Delta|) |k|)
    A_dk = the same with q, summed over rows and group; each head may be rounded before the sum
           over the group (plain `repeat` does that): (G + 1) u_out sum_heads |dk|
    A_dv = sum p rho |g| + (G + 1) u_out sum_heads |dv| + (g(T G) + a) sum p |g|

(one rounding a head, and one of each of the G partial sums, which are at most sum_heads large).

Gate A is what no correct implementation exceeds, but a row of n keys has errors sqrt(n) smaller
than its worst case. **Gate B** therefore compares the rms error of a row with its standard
deviation, a rounding being uniform with variance at most u^2/3, and independent but for two things
that are added in full: Delta's error is common to a row (and a single draw, not an average over
the row: `ONE_DRAW`), and in a row whose weights are all equal the roundings of p are equal too.
The ratio's threshold is calibrated (`calibration`).

Products of errors are covered by the factor `SECOND_ORDER`; underflow by `TINY`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.judge.intermediates import over_groups
from lab.grading.judge.tiers import U32, UNIT_ROUNDOFF

if TYPE_CHECKING:
    from lab.grading.judge.intermediates import Bool, Float, Intermediates
    from lab.grading.judge.tiers import Tier

LAMBDA = 6.0
ONE_DRAW = 6.0
TURNS = 0.25  # errors of logits from which on the weights move together, not at random
SECOND_ORDER = 1 + 2.0**-6
TINY = 2.0**-120  # weights below float32's smallest normal number (2^-126) may be flushed to 0


@dataclass(frozen=True)
class Bound:
    """The budget of one result, element by element in the result's shape.

    Attributes:
        worst: the largest error a correct implementation can make.
        deviation: the standard deviation expected of its error.
        terms: how many products a row sums, broadcastable to the rows `[B, H, rows]`.
        longest: the number of terms in the longest sum it depends on, likewise.
        independent: rows whose roundings are independent of one another, likewise: not those of
            equal weights, nor those whose weights rounding may turn over (`TURNS`).
    """

    worst: Float
    deviation: Float
    terms: Float
    longest: Float
    independent: Bool


def growth(n: int) -> float:
    """Relative error of a float32 sum of n terms, in the sum of their magnitudes."""
    return min(n, LAMBDA * math.sqrt(n)) * U32


def low_precision_sum(terms: Float, u: float) -> Float:
    """Relative error of a sum of n positive terms rounded to unit u after each.

    The k-th partial sum, about k/n of the whole, is wrong by u of itself: n u / 2 in all. Dividing
    by such a sum gives x / (1 - x), without bound from n = 2 / u on (512 terms in bfloat16), where
    the sum has stopped growing; such a row can be anything at this tier, and proves nothing.
    """
    x = terms * u / 2
    return x / np.maximum(1 - x, 2.0**-10)


def budgets(
    x: Intermediates, truth: dict[str, Float], tier: Tier, policy_input: str, policy_output: str
) -> dict[str, Bound]:
    """Bounds of `out`, `dq`, `dk`, `dv` at a tier.

    Args:
        x: intermediates of the call.
        truth: the oracle's four results, in float64.
        tier: which roundings are allowed inside.
        policy_input: dtype name of q, k, v (and so of their gradients).
        policy_output: dtype name of the result.
    """
    u, u_acc = tier.intermediate, tier.accumulate
    u_out, u_in = UNIT_ROUNDOFF[policy_output], UNIT_ROUNDOFF[policy_input]
    # float32 inputs computed at a bf16 tier are rounded on the way into a matrix product.
    u_operand = u if policy_input == "float32" else 0.0
    T, S, D = x.q.shape[2], x.k.shape[2], x.q.shape[3]
    abs_v, abs_k, abs_q, abs_g = np.abs(x.v), np.abs(x.k), np.abs(x.q), np.abs(x.cotangent)
    o = truth["out"]
    delta = _logit_error(x, tier, u_operand)
    flat = _flat_rows(x)

    # Forward.
    keys = x.mask.sum(-1, keepdims=True).astype(np.float64)
    pv, p_delta = x.p @ abs_v, _weight_error(x, delta)
    spread = p_delta @ abs_v + np.abs(o) * p_delta.sum(-1, keepdims=True)
    normaliser = low_precision_sum(keys, u_acc)
    summed = growth(S) + normaliser
    out_worst = u_out * np.abs(o) + (u + u_operand + summed) * (pv + np.abs(o)) + spread
    p2 = x.p**2
    u2, out2, in2 = (u**2 + u_operand**2) / 3, u_out**2 / 3, u_in**2 / 3
    out_var = (
        (out2 + u2 * p2.sum(-1, keepdims=True) + u2 * 3 * flat) * o**2
        + u2 * (p2 @ x.v**2)
        + ((spread + summed * (pv + np.abs(o))) / 3) ** 2
    )

    # dS and Delta.
    rho = x.p * (u + u_operand + normaliser) + p_delta
    gv = growth(D) * (abs_g @ abs_v.swapaxes(-1, -2)) * x.mask
    abs_dp, abs_delta, abs_ds = np.abs(x.dp), np.abs(x.delta), np.abs(x.ds)
    via_out = (abs_g * out_worst).sum(-1, keepdims=True)
    via_dp = (x.p * (u * abs_dp + gv) + rho * abs_dp).sum(-1, keepdims=True)
    delta_worst = via_out + via_dp
    ds_worst = x.p * (u * abs_dp + gv + delta_worst) + u * abs_ds
    ds_worst += rho * (abs_dp + abs_delta)
    ds_var = (
        u2 * (p2 * x.dp**2 + x.ds**2 + p2 * (x.dp - x.delta) ** 2)
        + (((p_delta + x.p * normaliser) * (abs_dp + abs_delta) + x.p * gv) / 3) ** 2
    )
    # One number shifts the whole row along p k, and of thousands of rows some draw 4 deviations.
    delta_var = ONE_DRAW * (
        out2 * (x.cotangent**2 * o**2).sum(-1, keepdims=True)
        + 2 * u2 * (p2 * x.dp**2).sum(-1, keepdims=True)
        + u2 * 3 * flat * x.delta**2
    )

    # dQ.
    p_grad = x.p * (abs_dp + abs_delta)
    dq_size = x.scale * (p_grad @ abs_k)
    dq_worst = x.scale * (ds_worst @ abs_k) + 2 * u_in * np.abs(truth["dq"]) + summed * dq_size
    dq_var = (
        x.scale**2 * (ds_var @ x.k**2 + delta_var * (x.p @ x.k) ** 2)
        + (2 * in2 + u2 * 3 * flat) * truth["dq"] ** 2
        + (summed * dq_size / 3) ** 2
    )

    # dK and dV: sums over the rows, then over the group.
    seeing = x.mask.sum(-2)[..., None] * float(x.group)
    rows = growth(T * x.group) + low_precision_sum(seeing, u_acc)
    over = (x.group + 1) * u_in
    ds_t, p_t = x.ds.swapaxes(-1, -2), x.p.swapaxes(-1, -2)
    dk_heads, dv_heads = x.scale * (ds_t @ x.q), p_t @ x.cotangent
    dk_flat, dv_flat = _flat_part(x, flat)

    def transposed(weights: Float, values: Float) -> Float:
        return over_groups(weights.swapaxes(-1, -2) @ values, x.group)

    dk_size = x.scale * transposed(p_grad, abs_q)
    dk_worst = (
        x.scale * transposed(ds_worst, abs_q)
        + over * over_groups(np.abs(dk_heads), x.group)
        + rows * dk_size
    )
    dk_var = (
        x.scale**2 * transposed(ds_var + p2 * delta_var, x.q**2)
        + in2 * _by_head(dk_heads, x.group)
        + u2 * 3 * dk_flat**2
        + (rows * dk_size / 3) ** 2
    )
    dv_size = transposed(x.p, abs_g)
    dv_worst = (
        transposed(rho, abs_g) + over * over_groups(np.abs(dv_heads), x.group) + rows * dv_size
    )
    dv_var = (
        u2 * transposed(p2, x.cotangent**2)
        + in2 * _by_head(dv_heads, x.group)
        + u2 * 3 * dv_flat**2
        + ((rows * dv_size + transposed(p_delta + x.p * normaliser, abs_g)) / 3) ** 2
    )
    steady, steady_heads = _independent(x, delta, flat, keys, sums=bool(u_acc))
    longest = np.maximum(seeing, keys.max(-2, keepdims=True))
    return {
        "out": _bound(out_worst, out_var, keys, keys, steady),
        "dq": _bound(dq_worst, dq_var, keys, keys, steady),
        "dk": _bound(dk_worst, dk_var, seeing, longest, steady_heads),
        "dv": _bound(dv_worst, dv_var, seeing, longest, steady_heads),
    }


def _logit_error(x: Intermediates, tier: Tier, u_operand: float) -> Float:
    D = x.q.shape[-1]
    k_t = x.k.swapaxes(-1, -2)
    size = np.abs(x.s)
    top = np.max(x.s, axis=-1, keepdims=True, where=x.mask, initial=-np.inf)
    below = np.abs(x.s - np.where(np.isfinite(top), top, 0.0))
    largest = np.max(size, axis=-1, keepdims=True, where=x.mask, initial=0.0)
    delta = growth(D + 4) * x.scale * (np.abs(x.q) @ np.abs(k_t))
    delta += 2 * U32 * (size + below) + 4 * U32 * (1 + largest)
    if tier.score or u_operand:
        operands = 3 * x.scale * np.sqrt(x.q**2 @ k_t**2)
        delta += tier.score * (size + below + operands) + 1.5 * u_operand * operands
    return np.where(x.mask, delta, 0.0)


def _weight_error(x: Intermediates, delta: Float) -> Float:
    """How far a weight moves: p delta to first order.

    Where logits are wrong by more than 1/2, another key may become the largest: a weight is then
    anything up to p exp(2 max delta), or 1.
    """
    worst = delta.max(-1, keepdims=True)
    if worst.max() < 0.5:
        return x.p * delta
    top = np.max(x.s, axis=-1, keepdims=True, where=x.mask, initial=-np.inf)
    below = np.where(x.mask, x.s - np.where(np.isfinite(top), top, 0.0), -np.inf)
    anything = np.exp(np.minimum(below + 2 * worst, 0.0))
    return np.where(worst < 0.5, x.p * delta, anything)


def _flat_rows(x: Intermediates) -> Float:
    """1 for rows of several keys with equal weights, whose roundings are equal; `[B, Hq, T, 1]`."""
    high = np.max(x.s, axis=-1, keepdims=True, where=x.mask, initial=-np.inf)
    low = np.min(x.s, axis=-1, keepdims=True, where=x.mask, initial=np.inf)
    several = x.mask.sum(-1, keepdims=True) > 1
    return (several & (high - low < 2.0**-9)).astype(np.float64)


def _flat_part(x: Intermediates, flat: Float) -> tuple[Float, Float]:
    ds, p = (x.ds * flat).swapaxes(-1, -2), (x.p * flat).swapaxes(-1, -2)
    return x.scale * over_groups(ds @ x.q, x.group), over_groups(p @ x.cotangent, x.group)


def _independent(
    x: Intermediates, delta: Float, flat: Float, keys: Float, *, sums: bool
) -> tuple[Bool, Bool]:
    """Rows `[B, Hq, T, 1]`, and key heads `[B, Hkv, 1, 1]`, whose roundings are independent.

    A key head gets gradients from every row of its group. Where sums are rounded too, nearly equal
    terms round alike: there the weights must spread, by half their mean at least.
    """
    steady = (flat == 0) & (delta.max(-1, keepdims=True) < TURNS)
    if sums:
        steady &= keys * (x.p**2).sum(-1, keepdims=True) > 1.25
    unsteady = over_groups((~steady).any(-2, keepdims=True).astype(np.float64), x.group)
    return steady, unsteady == 0


def _by_head(heads: Float, group: int) -> Float:
    """Squares of what is rounded where each head is, `[B, Hq, S, D]` -> `[B, Hkv, S, D]`.

    Each head, each partial sum over the group in their order, and as much again for another order.
    """
    squares = over_groups(heads**2, group)
    if group == 1:
        return 2 * squares
    B, Hq, S, D = heads.shape
    partial = heads.reshape(B, Hq // group, group, S, D).cumsum(2)
    return (group + 1) * squares + np.asarray((partial**2).sum(2))


def _bound(worst: Float, variance: Float, terms: Float, longest: Float, independent: Bool) -> Bound:
    return Bound(
        SECOND_ORDER * worst + TINY,
        np.sqrt(variance) + TINY,
        terms[..., 0],
        longest[..., 0],
        independent[..., 0],
    )

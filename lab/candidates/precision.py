"""Low precision: the meaning is right, a step is rounded to bfloat16 that the policy keeps in fp32.

Under a float64 policy nothing is rounded, and each is the plain attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import (
    Attention,
    Build,
    Parts,
    assemble,
    einsum,
    factor,
    logits,
    softmax,
    with_backward,
)
from lab.candidates.gradients import Terms

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy

Round = Callable[[Array], Array]


def _bf16(x: Array) -> Array:
    # Not a pair of casts: XLA may leave those out (xla_allow_excess_precision).
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


def _rounding(parts: Callable[[Round], Parts]) -> Build:
    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        exact = policy.accumulation == "float64"
        return assemble(parts((lambda x: x) if exact else _bf16))(policy, interpret)

    return build


def _exponent_rounded(r: Round) -> Callable[[Array, Array], Array]:
    def weights(scores: Array, mask: Array) -> Array:
        peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
        peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
        return softmax(r(jnp.where(mask, scores - peak, 0)), mask)

    return weights


def _exponentials(scores: Array, mask: Array) -> Array:
    peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
    return jnp.where(mask, jnp.exp(jnp.where(mask, scores, peak) - peak), 0)


def _all_rounded(r: Round) -> Callable[[Array, Array], Array]:
    def weights(scores: Array, mask: Array) -> Array:
        exponentials = r(_exponentials(r(scores), mask))
        total = r(jnp.sum(exponentials, axis=-1, keepdims=True))
        return r(exponentials / jnp.where(total > 0, total, 1))

    return weights


def _running_sum(r: Round, x: Array, axis: int) -> Array:
    """A sum one term at a time, rounded after each."""
    terms = jnp.moveaxis(x, axis, 0)
    return lax.scan(lambda total, term: (r(total + term), None), jnp.zeros_like(terms[0]), terms)[0]


def _denominator_rounded(r: Round) -> Callable[[Array, Array], Array]:
    def weights(scores: Array, mask: Array) -> Array:
        exponentials = _exponentials(scores, mask)
        total = _running_sum(r, exponentials, axis=-1)[..., None]
        return exponentials / jnp.where(total > 0, total, 1)

    return weights


def _output_by_blocks(r: Round, block: int) -> Callable[[Array, Array], Array]:
    def output(weights: Array, v: Array) -> Array:
        fill = -v.shape[2] % block
        weights = jnp.pad(weights, ((0, 0), (0, 0), (0, 0), (0, fill)))
        v = jnp.pad(v, ((0, 0), (0, 0), (0, fill), (0, 0)))
        weights = weights.reshape(*weights.shape[:3], -1, block)
        v = v.reshape(*v.shape[:2], -1, block, v.shape[3])
        return _running_sum(r, einsum("bhtns,bhnsd->nbhtd", weights, v), axis=0)

    return output


def _gradients_by_rows(policy: DtypePolicy, interpret: bool) -> Attention:
    r: Round = (lambda x: x) if policy.accumulation == "float64" else _bf16

    def by_rows(weights: Array, rows: Array) -> Array:
        # [B, Hq, T, S], [B, Hq, T, D] -> [B, Hq, S, D], one query at a time.
        terms = (jnp.moveaxis(weights, 2, 0), jnp.moveaxis(rows, 2, 0))
        start = jnp.zeros((*weights.shape[:2], weights.shape[3], rows.shape[3]), rows.dtype)
        step = lambda total, x: (r(total + x[0][..., None] * x[1][:, :, None]), None)  # noqa: E731
        return lax.scan(step, start, terms)[0]

    terms = Terms(dk=lambda ds, q, f: by_rows(ds, q) * f, dv=by_rows)
    return assemble(with_backward(Parts(), terms))(policy, interpret)


low_precision = _rounding(lambda r: Parts(logits=lambda q, k, scale: r(logits(q, k, scale))))
bf16_products = _rounding(
    lambda r: Parts(logits=lambda q, k, scale: r(logits(q, k, 1.0)) * factor(scale, q.shape[-1]))
)
bf16_scaled_queries = _rounding(
    lambda r: Parts(logits=lambda q, k, scale: logits(r(q * factor(scale, q.shape[-1])), k, 1.0))
)
bf16_exponent = _rounding(lambda r: Parts(weights=_exponent_rounded(r)))
bf16_softmax = _rounding(lambda r: Parts(weights=_all_rounded(r)))
bf16_denominator = _rounding(lambda r: Parts(weights=_denominator_rounded(r)))
bf16_accumulate = _rounding(lambda r: Parts(output=_output_by_blocks(r, 1)))
bf16_accumulate_blocks = _rounding(lambda r: Parts(output=_output_by_blocks(r, 16)))
bf16_gradient_accumulate = _gradients_by_rows

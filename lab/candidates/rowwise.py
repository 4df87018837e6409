"""A masked softmax over blocks of rows as two Pallas kernels, with switches for its faults.

Kept for the known-bad candidates: the same cut as the lab's softmax kernel (a block holds whole
rows, lanes padded to 128, an explicit backward kernel), written to be broken in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from lab.candidates.assembly import Attention, Build, Parts, assemble
from lab.candidates.fused_layout import Index, Ref

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy

ROWS = 16  # rows in a block
LANES = 128


def right_weights(scores: Array, mask: Array) -> Array:
    """Weights of one block of whole rows; a row without a visible key gives zeros."""
    peak = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=-1, keepdims=True)
    weights = jnp.where(mask, jnp.exp(scores - jnp.maximum(peak, -1e30)), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def right_gradient(p: Array, dp: Array) -> Array:
    """Gradient of the scores of one block of whole rows."""
    return p * (dp - jnp.sum(p * dp, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Rowwise:
    """The kernels; each field is one replaceable step.

    weights, gradient: what is computed in a block, forward and backward. backward_weights: how the
    backward kernel recomputes the weights. mask_block: (batch entry, row block) of the mask for a
    program. lanes_visible: whether the lanes that pad a row count as visible. row_blocks: how many
    blocks cover T rows.
    """

    weights: Callable[[Array, Array], Array] = right_weights
    gradient: Callable[[Array, Array], Array] = right_gradient
    backward_weights: Callable[[Array, Array], Array] = right_weights
    mask_block: Callable[[Index, Index], tuple[Index, Index]] = lambda b, i: (b, i)
    lanes_visible: bool = False
    row_blocks: Callable[[int], int] = lambda rows: -(-rows // ROWS)

    def softmax(self, interpret: bool) -> Callable[[Array, Array], Array]:
        """Weights [B, H, T, S] of scores [B, H, T, S] and mask Bool [B or 1, 1, T, S]."""

        def forward(mask: Ref, scores: Ref, out: Ref) -> None:
            out[...] = self.weights(scores[...], mask[...] != 0)

        def backward(mask: Ref, scores: Ref, dp: Ref, out: Ref) -> None:
            out[...] = self.gradient(self.backward_weights(scores[...], mask[...] != 0), dp[...])

        def call(kernel: Callable[..., None], mask: Array, *rows: Array) -> Array:
            shape, dtype = rows[0].shape, rows[0].dtype
            mask = self._padded(mask.astype(jnp.int32), int(self.lanes_visible))
            rows = tuple(self._padded(x, 0) for x in rows)
            batch, heads, length, lanes = rows[0].shape
            cut = pl.BlockSpec((1, 1, ROWS, lanes), lambda b, h, i: (b, h, i, 0))
            return pl.pallas_call(
                kernel,
                grid=(batch, heads, self.row_blocks(shape[2])),
                in_specs=[self._mask_spec(mask, lanes), *[cut] * len(rows)],
                out_specs=cut,
                out_shape=jax.ShapeDtypeStruct((batch, heads, length, lanes), dtype),
                interpret=interpret,
            )(mask, *rows)[:, :, : shape[2], : shape[3]]

        @jax.custom_vjp
        def softmax(scores: Array, mask: Array) -> Array:
            return call(forward, mask, scores)

        softmax.defvjp(
            lambda scores, mask: (softmax(scores, mask), (scores, mask)),
            lambda saved, dp: (call(backward, saved[1], saved[0], dp), None),
        )
        return softmax

    def _mask_spec(self, mask: Array, lanes: int) -> pl.BlockSpec:
        def index(b: Index, _h: Index, i: Index) -> tuple[Index, ...]:
            entry, block = self.mask_block(b, i)
            return (entry if mask.shape[0] > 1 else 0, 0, block, 0)

        return pl.BlockSpec((1, 1, ROWS, lanes), index)

    def _padded(self, x: Array, lanes_value: int) -> Array:
        x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % ROWS), (0, 0)))
        lanes = (0, -x.shape[3] % LANES)
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), lanes), constant_values=lanes_value)


def rowwise(kernels: Rowwise) -> Build:
    """Attention around these kernels; XLA owns the matrix products."""

    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        return assemble(Parts(weights=kernels.softmax(interpret)))(policy, interpret)

    return build


def _no_max(scores: Array, mask: Array) -> Array:
    weights = jnp.where(mask, jnp.exp(scores), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _undefined_on_empty_row(scores: Array, mask: Array) -> Array:
    hidden = jnp.where(mask, scores, -jnp.inf)
    weights = jnp.exp(hidden - jnp.max(hidden, axis=-1, keepdims=True))
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def _sentinel(scores: Array, mask: Array) -> Array:
    hidden = jnp.where(mask, scores, -1e4)
    weights = jnp.exp(hidden - jnp.max(hidden, axis=-1, keepdims=True))
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.where(jnp.any(mask, axis=-1, keepdims=True), weights, 0)


def _hidden_in_denominator(scores: Array, mask: Array) -> Array:
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    return jnp.where(mask, weights / jnp.sum(weights, axis=-1, keepdims=True), 0)


pallas_rowwise = rowwise(Rowwise())

# ---- known-bad: forward (the backward kernel keeps the right weights where that is possible) ---
pallas_softmax_no_max = rowwise(Rowwise(weights=_no_max))
pallas_softmax_empty_row = rowwise(Rowwise(weights=_undefined_on_empty_row))
pallas_softmax_sentinel = rowwise(Rowwise(weights=_sentinel))
pallas_softmax_hidden_in_sum = rowwise(Rowwise(weights=_hidden_in_denominator))
pallas_softmax_lanes = rowwise(Rowwise(lanes_visible=True))
pallas_softmax_first_mask = rowwise(Rowwise(mask_block=lambda _b, i: (0, i)))
pallas_softmax_mask_index = rowwise(Rowwise(mask_block=lambda b, i: (b, i * ROWS)))
pallas_softmax_unwritten_rows = rowwise(Rowwise(row_blocks=lambda rows: max(rows // ROWS, 1)))

# ---- known-bad: the backward kernel alone -------------------------------------------------------
pallas_softmax_missing_delta = rowwise(Rowwise(gradient=lambda p, dp: p * dp))
pallas_softmax_mean_delta = rowwise(
    Rowwise(gradient=lambda p, dp: p * (dp - jnp.mean(dp, axis=-1, keepdims=True)))
)
pallas_softmax_missing_weights = rowwise(
    Rowwise(gradient=lambda p, dp: dp - jnp.sum(p * dp, axis=-1, keepdims=True))
)
pallas_softmax_empty_row_gradient = rowwise(Rowwise(backward_weights=_undefined_on_empty_row))

"""Masked softmax as Pallas TPU kernels over row blocks, forward and backward.

A block holds whole rows, so the maximum, the sum and the division need one read and one write of
HBM; in the attention scope XLA owns the two products around it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from lab.kernels import Kernel
from lab.kernels.attention import Softmax, attention_around
from lab.kernels.options import OneTile
from lab.kernels.row_blocks import map_rows
from lab.kernels.softmax import masked_softmax_around

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Interpret
    from lab.kernels.options import RowBlocks
    from lab.truth.problems import DtypePolicy


def build(options: RowBlocks, *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel around row blocks of `options.block_rows`.

    The published kernel (`OneTile`) reads causality from a mask in HBM; others make it inside, from
    the numbers of rows and keys.
    """
    rows = None if options.block_rows == "auto" else options.block_rows
    run = functools.partial(map_rows, block_rows=rows, interpret=interpret)

    def forward(
        logits: jax.Array, mask: jax.Array | None, dtype: DTypeLike, *, causal: bool = False
    ) -> jax.Array:
        return run(masked_softmax_rows, (logits,), mask, dtype, causal=causal)

    def backward(
        logits: jax.Array,
        mask: jax.Array | None,
        dp: jax.Array,
        dtype: DTypeLike,
        *,
        causal: bool = False,
        delta: jax.Array | None = None,  # noqa: ARG001 - the block holds the rows to sum
    ) -> jax.Array:
        return run(masked_softmax_gradient_rows, (logits, dp), mask, dtype, causal=causal)

    published = isinstance(options, OneTile)
    softmax = Softmax(forward, backward, makes_causality=not published)
    return Kernel(
        "pallas", masked_softmax_around(softmax, policy), attention_around(softmax, policy)
    )


def masked_softmax_rows(visible: jax.Array | None, x: jax.Array) -> jax.Array:
    """Softmax of the visible elements of each row of x, fp32 [heads, rows, width]; 0 elsewhere."""
    if visible is not None:
        x = jnp.where(visible, x, -jnp.inf)
    row_max = jnp.max(x, axis=-1, keepdims=True)
    # An empty row has maximum -inf: subtract 0 there, so that exp gives 0 and not NaN.
    weights = jnp.exp(x - jnp.where(row_max == -jnp.inf, 0.0, row_max))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total == 0.0, 1.0, total)


def masked_softmax_gradient_rows(
    visible: jax.Array | None, x: jax.Array, dp: jax.Array
) -> jax.Array:
    """Gradient of x, p * (dp - sum(p * dp)); p is made again from x, which is cheaper to keep."""
    p = masked_softmax_rows(visible, x)
    if visible is not None:
        dp = jnp.where(visible, dp, 0.0)
    return p * (dp - jnp.sum(p * dp, axis=-1, keepdims=True))

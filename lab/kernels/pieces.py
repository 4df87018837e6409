"""Run a function of large arrays on one piece of its leading axes at a time.

Pallas's interpret mode carries whole arrays through its loop over the grid and copies them at
every step: an 8-row kernel over [8, 2048, 2048] takes most of a minute. The same kernel over
pieces of the same grid computes the same values in a second.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

Call = Callable[[tuple[jax.Array, ...], jax.Array | None], jax.Array]
"""(operands [B, H, T, S], mask of rank 4 with axes of size 1 where broadcast) -> [B, H, T, S]."""


def in_pieces(call: Call, sizes: tuple[int, ...]) -> Call:
    """Return `call` applied, in turn, to pieces of `sizes[axis]` along each leading axis."""
    for axis, size in enumerate(sizes):
        call = _along(call, axis, size)
    return call


def _along(call: Call, axis: int, size: int) -> Call:
    def split(x: jax.Array) -> jax.Array:
        pieces = -(-x.shape[axis] // size)
        padding = [(0, 0)] * x.ndim
        padding[axis] = (0, pieces * size - x.shape[axis])
        x = jnp.pad(x, padding)
        return jnp.moveaxis(x.reshape(*x.shape[:axis], pieces, size, *x.shape[axis + 1 :]), axis, 0)

    def piecewise(operands: tuple[jax.Array, ...], mask: jax.Array | None) -> jax.Array:
        length = operands[0].shape[axis]
        if length <= size:
            return call(operands, mask)
        pieces = tuple(split(x) for x in operands)
        if mask is None or mask.shape[axis] == 1:
            out = jax.lax.map(lambda xs: call(xs, mask), pieces)
        else:
            out = jax.lax.map(lambda xs: call(xs[0], xs[1]), (pieces, split(mask)))
        out = jnp.moveaxis(out, 0, axis)
        out = out.reshape(*out.shape[:axis], -1, *out.shape[axis + 2 :])
        return jax.lax.slice_in_dim(out, 0, length, axis=axis)

    return piecewise

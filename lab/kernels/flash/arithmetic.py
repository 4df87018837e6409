"""What the fused kernels share: products in fp32, base-2 exponentials, padding."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

LOG2_E = math.log2(math.e)
"""exp(x) = exp2(x * LOG2_E)."""


def dot(x: jax.Array, y: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Product over one axis of each, in fp32; fp32 operands take all the passes they need."""
    return lax.dot_general(
        x,
        y,
        (((axes[0],), (axes[1],)), ((), ())),
        precision=lax.Precision.HIGHEST if x.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )


def pad(x: jax.Array, axis: int, before: int, after: int, value: float = 0.0) -> jax.Array:
    """More of an axis; nothing at all where there is nothing to add."""
    if not before and not after:
        return x
    fill = [(0, 0)] * x.ndim
    fill[axis] = (before, after)
    return jnp.pad(x, fill, constant_values=value)

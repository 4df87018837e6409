"""A custom candidate that is no attention: an XLA loop of known length."""

from typing import Any

import jax
import jax.numpy as jnp


def attention(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """Seven rounds of a loop."""
    return jax.lax.fori_loop(0, 7, lambda _, x: x * jnp.asarray(1.5, x.dtype) + q, q)

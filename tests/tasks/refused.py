"""Custom candidates that run in interpret mode, and that the TPU compiler refuses."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _rowwise(q: jax.Array, rows: int, dtype: Any, *, interpret: bool) -> jax.Array:
    """Softmax of q over its last axis, `rows` rows of one head a block, in `dtype`."""
    x = q.astype(dtype)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        weights = jnp.exp(x_ref[...] - x_ref[...].max(-1, keepdims=True))
        o_ref[...] = weights / weights.sum(-1, keepdims=True)

    block = pl.BlockSpec((None, None, rows, q.shape[3]), lambda b, h, i: (b, h, i, 0))
    grid = (*q.shape[:2], pl.cdiv(q.shape[2], rows))
    return pl.pallas_call(
        kernel, out_shape=x, grid=grid, in_specs=[block], out_specs=block, interpret=interpret
    )(x).astype(q.dtype)


def _chosen() -> bool:
    """Interpret off TPU, as many a kernel chooses for itself."""
    return jax.default_backend() != "tpu"


def large_block(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """One head a block: seq rows of 128 in fp32, twice buffered, in and out."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[:8] = x_ref[:8]  # a short program, so that the test is short

    x = q.astype(jnp.float32)
    block = pl.BlockSpec((None, None, *q.shape[2:]), lambda b, h: (b, h, 0, 0))
    return pl.pallas_call(
        kernel, x, grid=q.shape[:2], in_specs=[block], out_specs=block, interpret=_chosen()
    )(x).astype(q.dtype)


def half_precision(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return _rowwise(q, 128, jnp.float16, interpret=_chosen())


def odd_block(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return _rowwise(q, 12, jnp.float32, interpret=_chosen())


def interpreted(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return _rowwise(q, 128, jnp.float32, interpret=True)


def too_little_work(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return q * 2


def mistaken(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return no_such_name  # type: ignore[name-defined]  # noqa: F821

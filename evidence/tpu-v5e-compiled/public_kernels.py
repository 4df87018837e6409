# ruff: noqa: INP001, ANN401 - a user's file, not part of a package; refs have no public type
"""Two plain Pallas kernels that others have timed on a v5e, rebuilt from their description.

The timings are in lab/report/measured_v5e.json with their source; README.md has the command that
compiles these kernels over the same block sizes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def matmul(a: jax.Array, b: jax.Array, *, bm: int, bn: int, bk: int) -> jax.Array:
    """Multiply a [m, k] by b [k, n] in tiles; the sum over k stays in VMEM in float32."""
    (m, k), n = a.shape, b.shape[1]

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        step = pl.program_id(2)

        @pl.when(step == 0)
        def _() -> None:
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)

        @pl.when(step == pl.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = sum_ref[...].astype(o_ref.dtype)

    return pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // bm, n // bn, k // bk),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, _, step: (i, step)),
            pl.BlockSpec((bk, bn), lambda _, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, _: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        name="matmul",
    )(a, b)


def scale(x: jax.Array, *, bm: int, bn: int) -> jax.Array:
    """Multiply x [m, n] by 2, in blocks."""
    (m, n), block = x.shape, pl.BlockSpec((bm, bn), lambda i, j: (i, j))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(
        kernel, x, grid=(m // bm, n // bn), in_specs=[block], out_specs=block, name="scale"
    )(x)

"""Custom candidates for the tests of task=compile: refused, wrong, or no attention at all."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend import backend


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
    interpret = backend.get_default_device().platform != "tpu"  # asked as some libraries do
    return _rowwise(q, 12, jnp.float32, interpret=interpret)


def interpreted(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return _rowwise(q, 128, jnp.float32, interpret=True)


def too_little_work(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return q * 2


def mistaken(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    return no_such_name  # type: ignore[name-defined]  # noqa: F821


def matmul(a: jax.Array, b: jax.Array, *, block: int) -> jax.Array:
    """A tiled product, no attention at all."""

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            sum_ref[...] = jnp.zeros_like(sum_ref)

        sum_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)
        o_ref[...] = sum_ref[...].astype(o_ref.dtype)

    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // block, n // block, k // block),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, _, l: (i, l)),
            pl.BlockSpec((block, block), lambda _, j, l: (l, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, _: (i, j)),
        scratch_shapes=[pltpu.VMEM((block, block), jnp.float32)],
        name="matmul",
    )(a, b)


def ragged_sum(lengths: jax.Array, x: jax.Array) -> jax.Array:
    """The sum of as many groups of 8 rows of x as the first length says."""

    def kernel(lengths_ref: Any, x_ref: Any, o_ref: Any) -> None:
        def add(i: Any, total: Any) -> Any:
            return total + x_ref[pl.ds(i * 8, 8)]

        o_ref[...] = jax.lax.fori_loop(0, lengths_ref[0], add, jnp.zeros((8, 128), x.dtype))

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(1,),
        in_specs=[pl.BlockSpec(x.shape, lambda *_: (0, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda *_: (0, 0)),
    )
    return pl.pallas_call(
        kernel, jax.ShapeDtypeStruct((8, 128), x.dtype), grid_spec=grid, name="ragged_sum"
    )(lengths, x)


def _seeing(q: jax.Array, k: jax.Array, v: jax.Array, first: int) -> jax.Array:
    """Causal attention over the keys from `first` on, one head a grid step."""
    heads, length, width = q.shape[1:]

    def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        s = jnp.dot(q_ref[0, 0], k_ref[0, 0, first:].T, preferred_element_type=jnp.float32)
        s = s * width**-0.5
        row = jax.lax.broadcasted_iota(jnp.int32, s.shape, 0)
        column = first + jax.lax.broadcasted_iota(jnp.int32, s.shape, 1)
        s = jnp.where(column <= row, s, -1e30)
        p = jnp.exp(s - s.max(-1, keepdims=True))
        p = p / p.sum(-1, keepdims=True)
        out = jnp.dot(p.astype(v.dtype), v_ref[0, 0, first:], preferred_element_type=jnp.float32)
        o_ref[0, 0] = out.astype(o_ref.dtype)

    head = pl.BlockSpec((1, 1, length, width), lambda h: (0, h, 0, 0))
    return pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads,),
        in_specs=[head, head, head],
        out_specs=head,
        name="seeing",
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=2**26),
    )(q, k, v)


def _skips(q: jax.Array, length: int) -> bool:
    return jax.default_backend() == "tpu" and q.shape[2] >= length


def half_the_keys_on_a_tpu(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """Still more arithmetic than causality leaves visible, so that only its values show it."""
    return _seeing(q, k, v, 384 if _skips(q, 1024) else 0)


def one_block_on_a_tpu(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    """Less arithmetic than the visible work."""
    return _seeing(q, k, v, 896 if _skips(q, 1024) else 0)


def _in_kernel(kernel: Any, q: jax.Array, *scalars: Any) -> jax.Array:
    """One block of q's rows in fp32 through a kernel, with scalars in SMEM."""
    x = q[0, 0].astype(jnp.float32)
    specs = [pl.BlockSpec(memory_space=pltpu.SMEM) for _ in scalars]
    call = pl.pallas_call(
        kernel, x, in_specs=[*specs, pl.BlockSpec(memory_space=pltpu.VMEM)], interpret=_chosen()
    )
    return jnp.broadcast_to(call(*scalars, x), q.shape).astype(q.dtype)


def gathered(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        rows = jax.lax.broadcasted_iota(jnp.int32, x_ref.shape, 0)[:, 0]
        o_ref[...] = jnp.take(x_ref[...], rows, axis=0)  # by an array

    return _in_kernel(kernel, q)


def unaligned(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    def kernel(start_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[:, :64] = x_ref[:, pl.ds(start_ref[0], 64)]  # from anywhere

    return _in_kernel(kernel, q, jnp.zeros(1, jnp.int32))


def halved(q: jax.Array, k: jax.Array, v: jax.Array, **_: Any) -> jax.Array:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        half = x_ref[...].astype(jnp.float16)  # inside the kernel
        o_ref[...] = (half * half).astype(jnp.float32)

    return _in_kernel(kernel, q)

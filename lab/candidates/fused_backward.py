"""The backward kernels of the simple fused attention: dQ over blocks of keys, dK, dV over rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from lab.candidates.fused_layout import Index, Layout, Ref, div, dot, rem

if TYPE_CHECKING:
    from lab.candidates.fused_steps import Fused


def backward(
    fused: Fused,
    at: Layout,
    shown: Array,
    qkv: tuple[Array, Array, Array],
    saved: tuple[Array, Array],
    cotangent: Array,
    causal: bool,
    scale: float,
) -> tuple[Array, Array, Array]:
    """dq, dk and dv from the inputs, the saved output and log-sum-exp, and the cotangent."""
    (q, k, v), (out, lse) = qkv, saved
    delta = jnp.sum(out * cotangent, axis=-1, keepdims=True)
    q, cotangent, lse, delta = (at.pad_queries(x) for x in (q, cotangent, lse, delta))
    arrays = (shown, q, at.pad_keys(k), at.pad_keys(v), lse, delta, cotangent)
    masked = causal and fused.backward_causal
    offset = fused.backward_offset(at.q_len, at.kv_len) if masked else None
    dq = _query_gradient(fused, at, arrays, offset, scale)
    dk, dv = _key_value_gradient(fused, at, arrays, offset, scale)
    return dq[:, :, : at.q_len], dk[:, :, : at.kv_len], dv[:, :, : at.kv_len]


Arrays = tuple[Array, Array, Array, Array, Array, Array, Array]


def _pair(
    fused: Fused,
    at: Layout,
    i: Index,
    j: Index,
    refs: tuple[Ref, ...],
    offset: int | None,
    scale: float,
) -> tuple[Array, Array]:
    """P and dS between query block i and key block j."""
    shown, q, k, v, lse, delta, cotangent = refs
    exponent = dot(q[0, 0], k[0, 0], (1, 1)) * scale - lse[0, 0]
    weights = jnp.exp(exponent if fused.base is None else exponent * math.log(fused.base))
    p = jnp.where(at.visible(i, j, shown[0], offset), weights, 0)
    return p, fused.score_gradient(p, dot(cotangent[0, 0], v[0, 0], (1, 1)), delta[0, 0])


def _query_gradient(
    fused: Fused, at: Layout, arrays: Arrays, offset: int | None, scale: float
) -> Array:
    def kernel(*refs: Ref) -> None:
        *inputs, dq, acc = refs
        i, j = pl.program_id(2), pl.program_id(3)

        @pl.when(j == 0)
        def _start() -> None:
            acc[...] = jnp.zeros_like(acc)

        _, ds = _pair(fused, at, i, j, tuple(inputs), offset, scale)
        acc[...] = fused.add_dq(acc[...], dot(ds, inputs[2][0, 0], (1, 0)))

        @pl.when(j == at.k_blocks - 1)
        def _finish() -> None:
            dq[0, 0] = acc[...] * scale

    def query_index(b: Index, h: Index, i: Index, _j: Index) -> tuple[Index, ...]:
        return b, h, i

    def key_index(b: Index, h: Index, _i: Index, j: Index) -> tuple[Index, ...]:
        return b, fused.kv_head(h, at.group, at.kv_heads), j

    rows, column, keys = at.rows(query_index), at.rows(query_index, 1), at.keys(key_index)
    specs = (at.mask(key_index), rows, keys, keys, column, column, rows)
    (dq,) = at.call(
        kernel,
        (at.batch, at.q_heads, at.q_blocks, at.k_blocks),
        list(zip(arrays, specs, strict=True)),
        [(arrays[1].shape, rows)],
        [(at.block_q, at.width)],
    )
    return dq


def _key_value_gradient(
    fused: Fused, at: Layout, arrays: Arrays, offset: int | None, scale: float
) -> tuple[Array, Array]:
    # A program owns a block of keys and walks over the query blocks of every head of its group.
    steps = fused.group(at.group) * at.q_blocks

    def kernel(*refs: Ref) -> None:
        *inputs, dk, dv, acc_k, acc_v = refs
        j, step = pl.program_id(2), pl.program_id(3)

        @pl.when(step == 0)
        def _start() -> None:
            acc_k[...] = jnp.zeros_like(acc_k)
            acc_v[...] = jnp.zeros_like(acc_v)

        p, ds = _pair(fused, at, rem(step, at.q_blocks), j, tuple(inputs), offset, scale)
        acc_k[...] = fused.add_dkv(acc_k[...], dot(ds, inputs[1][0, 0], (0, 0)))
        acc_v[...] = fused.add_dkv(acc_v[...], dot(p, inputs[6][0, 0], (0, 0)))

        @pl.when(step == steps - 1)
        def _finish() -> None:
            dk[0, 0] = acc_k[...] * fused.dk_scale(scale)
            dv[0, 0] = acc_v[...]

    def query_index(b: Index, n: Index, _j: Index, step: Index) -> tuple[Index, ...]:
        head = n * at.group + div(step, at.q_blocks)
        return b, head, rem(step, at.q_blocks)

    def key_index(b: Index, n: Index, j: Index, _step: Index) -> tuple[Index, ...]:
        return b, n, j

    rows, column, keys = at.rows(query_index), at.rows(query_index, 1), at.keys(key_index)
    specs = (at.mask(key_index), rows, keys, keys, column, column, rows)
    dk, dv = at.call(
        kernel,
        (at.batch, at.kv_heads, at.k_blocks, steps),
        list(zip(arrays, specs, strict=True)),
        [(arrays[2].shape, keys), (arrays[3].shape, keys)],
        [(at.block_k, at.width), (at.block_k, at.width)],
    )
    return dk, dv

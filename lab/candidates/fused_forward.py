"""The forward kernel of the simple fused attention: an online softmax over blocks of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from lab.candidates.fused_layout import Index, Layout, Ref, div, dot

if TYPE_CHECKING:
    from lab.candidates.fused_steps import Fused


def forward(
    fused: Fused, at: Layout, shown: Array, q: Array, k: Array, v: Array, causal: bool, scale: float
) -> tuple[Array, Array]:
    """Output [B, Hq, T, D] and log-sum-exp [B, Hq, T, 1], -inf where no key is visible."""
    offset = fused.offset(at.q_len, at.kv_len)

    def kernel(
        shown: Ref, q: Ref, k: Ref, v: Ref, out: Ref, lse: Ref, peak: Ref, total: Ref, acc: Ref
    ) -> None:
        i, j = pl.program_id(2), pl.program_id(3)
        last_query = (i + 1) * at.block_q - 1 + offset

        @pl.when((j == 0) & fused.starts(i))
        def _start() -> None:
            acc[...] = jnp.zeros_like(acc)
            peak[...] = jnp.full_like(peak, -jnp.inf)
            total[...] = jnp.zeros_like(total)

        @pl.when(fused.live(j * at.block_k, last_query) if causal else j >= 0)
        def _gather() -> None:
            mask = at.visible(i, j, shown[0], offset if causal else None)
            scores = dot(q[0, 0], k[0, 0], (1, 1)) * scale
            top = jnp.max(jnp.where(mask, scores, -jnp.inf), axis=1, keepdims=True)
            top = jnp.maximum(peak[...], top)
            base = jnp.maximum(top, -1e30)
            weights = jnp.where(mask, jnp.exp(scores - base), 0)
            correction = jnp.exp(peak[...] - base)
            peak[...] = top
            total[...] = total[...] * correction + jnp.sum(weights, axis=1, keepdims=True)
            acc[...] = fused.rescale(acc[...], correction) + dot(weights, v[0, 0], (1, 0))

        @pl.when(j == _final_block(fused, at, last_query, causal))
        def _finish() -> None:
            some = total[...] > 0
            safe = jnp.where(some, total[...], 1)
            out[0, 0] = acc[...] / safe
            lse[0, 0] = jnp.where(some, peak[...] + jnp.log(safe), -jnp.inf)

    def query_index(b: Index, h: Index, i: Index, _j: Index) -> tuple[Index, ...]:
        return b, h, i

    def key_index(b: Index, h: Index, _i: Index, j: Index) -> tuple[Index, ...]:
        return b, fused.kv_head(h, at.group, at.kv_heads), fused.kv_block(j)

    def mask_index(b: Index, h: Index, _i: Index, j: Index) -> tuple[Index, ...]:
        return b, h, j

    q, k, v = at.pad_queries(q), at.pad_keys(k), at.pad_keys(v)
    rows, column, keys = at.rows(query_index), at.rows(query_index, 1), at.keys(key_index)
    out, lse = at.call(
        kernel,
        (at.batch, at.q_heads, at.q_blocks, at.k_blocks),
        [(shown, at.mask(mask_index)), (q, rows), (k, keys), (v, keys)],
        [(q.shape, rows), ((*q.shape[:3], 1), column)],
        [(at.block_q, 1), (at.block_q, 1), (at.block_q, at.width)],
    )
    return out[:, :, : at.q_len], lse[:, :, : at.q_len]


def _final_block(fused: Fused, at: Layout, last_query: Index, causal: bool) -> Index:
    """The step in which a program writes its output."""
    final = at.k_blocks - 1
    if not (causal and fused.finishes_when_live):
        return final
    return jnp.where(last_query < 0, -1, jnp.minimum(div(last_query, at.block_k), final))

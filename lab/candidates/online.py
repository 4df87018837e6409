"""Attention block by block over the keys (the online softmax), right and with one fault each.

Every block updates a row's running maximum, sum and output; when the maximum moves, what was
gathered before is rescaled. The fields of `Online` are what kernels get wrong there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from lab.candidates.assembly import assemble, einsum, factor, heads, visible

Rule = Callable[[int, int, int], NDArray[np.bool_]]
"""Bool [T, blocks] from T, the number of blocks and S - T."""


def padded(x: Array, block: int, axis: int) -> Array:
    """Fill the axis with zeros (False) up to a multiple of the block."""
    fill = [(0, 0)] * x.ndim
    fill[axis] = (0, -x.shape[axis] % block)
    return jnp.pad(x, fill)


def dropped(x: Array, block: int, axis: int) -> Array:
    """Only whole blocks; an axis shorter than one is filled up."""
    if x.shape[axis] < block:
        return padded(x, block, axis)
    return lax.slice_in_dim(x, 0, x.shape[axis] // block * block, axis=axis)


def clamped(x: Array, block: int, axis: int) -> Array:
    """The last block starts where it still fits, as `lax.dynamic_slice` does: keys come twice."""
    length = x.shape[axis]
    if length % block == 0 or length < block:
        return padded(x, block, axis)
    whole = lax.slice_in_dim(x, 0, length // block * block, axis=axis)
    last = lax.slice_in_dim(x, length - block, length, axis=axis)
    return jnp.concatenate([whole, last], axis=axis)


def _rescaled(gathered: Array, correction: Array) -> Array:
    return gathered * correction


def _all_blocks(q_len: int, blocks: int, _offset: int) -> NDArray[np.bool_]:
    return np.ones((q_len, blocks), bool)


@dataclass(frozen=True)
class Online:
    """The online softmax.

    block: keys in a block. order: the blocks visited, given how many there are. tail: how lengths
    are made a multiple of the block. tail_visible: whether keys that fill the last block count.
    rescale_sum, rescale_output: what becomes of what was gathered when the maximum moves. visits:
    which blocks a causal row reads. masks: in which blocks it applies the causal mask.
    """

    block: int = 16
    order: Callable[[int], Sequence[int]] = range
    tail: Callable[[Array, int, int], Array] = padded
    tail_visible: bool = False
    rescale_sum: Callable[[Array, Array], Array] = _rescaled
    rescale_output: Callable[[Array, Array], Array] = _rescaled
    visits: Rule = _all_blocks
    masks: Rule = _all_blocks

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        causal: bool,
        key_mask: Array | None,
        scale: float | None,
    ) -> Array:
        """Attention [B, Hq, T, D] in the dtype of q, k and v."""
        q_len, kv_len = q.shape[2], k.shape[2]
        keys, values = (
            self._blocks(heads(x, key_mask, q.shape[1]), axis=2) for x in (k, v)
        )  # [N, B, Hq, block, D]
        mask = self._blocks(visible(q_len, kv_len, causal, key_mask), axis=3)
        blocks = keys.shape[0]
        if self.tail_visible:
            real = jnp.arange(blocks * self.block).reshape(blocks, 1, 1, 1, self.block) < kv_len
            mask |= ~real
        if causal:
            reads, hides = (
                jnp.asarray(rule(q_len, blocks, kv_len - q_len)).T[:, None, None, :, None]
                for rule in (self.visits, self.masks)
            )
            mask = (mask | (~hides & self._unmasked(key_mask, kv_len))) & reads
        q = q * factor(scale, q.shape[-1])

        def step(
            state: tuple[Array, Array, Array], block: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array, Array], None]:
            peak, total, out = state
            k, v, mask = block
            scores = einsum("bhtd,bhsd->bhts", q, k)
            hidden = jnp.where(mask, scores, -jnp.inf)
            new_peak = lax.stop_gradient(jnp.maximum(peak, jnp.max(hidden, axis=-1, keepdims=True)))
            base = jnp.where(jnp.isfinite(new_peak), new_peak, 0)
            weights = jnp.where(mask, jnp.exp(jnp.where(mask, scores, base) - base), 0)
            correction = jnp.exp(peak - base)
            total = self.rescale_sum(total, correction) + jnp.sum(weights, axis=-1, keepdims=True)
            out = self.rescale_output(out, correction) + einsum("bhts,bhsd->bhtd", weights, v)
            return (new_peak, total, out), None

        rows = jnp.zeros((*q.shape[:3], 1), q.dtype)
        order = np.asarray(self.order(blocks), np.int32)
        start = (rows - jnp.inf, rows, jnp.zeros_like(q))
        (_, total, out), _ = lax.scan(step, start, (keys[order], values[order], mask[order]))
        return out / jnp.where(total > 0, total, 1)

    def _unmasked(self, key_mask: Array | None, kv_len: int) -> Array:
        """Visibility by the key mask alone, in blocks."""
        return self._blocks(visible(1, kv_len, False, key_mask), axis=3)

    def _blocks(self, x: Array, axis: int) -> Array:
        """Cut an axis into blocks, stacked in front."""
        x = self.tail(x, self.block, axis)
        parts = (*x.shape[:axis], x.shape[axis] // self.block, self.block, *x.shape[axis + 1 :])
        return jnp.moveaxis(x.reshape(parts), axis, 0)


online_8 = assemble(Online(block=8))
online_32 = assemble(Online(block=32))
online_128 = assemble(Online(block=128))
online_reversed = assemble(Online(order=lambda n: range(n - 1, -1, -1)))
online_inside_out = assemble(Online(order=lambda n: [*range(n // 2, n), *range(n // 2)]))

# ---- known-bad -----------------------------------------------------------------------------

stale_rescale = assemble(Online(rescale_output=lambda out, _: out))
stale_sum = assemble(Online(rescale_sum=lambda total, _: total))
inverted_rescale = assemble(
    Online(rescale_output=lambda out, c: out * jnp.where(c > 0, 1 / jnp.where(c > 0, c, 1), 0))
)
tail_counts_zero_keys = assemble(Online(tail_visible=True))
tail_dropped = assemble(Online(tail=dropped))
tail_read_twice = assemble(Online(tail=clamped))
skips_first_block = assemble(Online(order=lambda n: range(1, n) if n > 1 else [0]))
skips_last_block = assemble(Online(order=lambda n: range(max(n - 1, 1))))

BLOCK_Q = 64  # query rows of a program, where the fault needs block_q > block_k


def _last_row(q_len: int, offset: int) -> NDArray[np.int64]:
    """For each row the position of the last query of its program."""
    return np.minimum((np.arange(q_len) // BLOCK_Q + 1) * BLOCK_Q, q_len) - 1 + offset


def _as_many_as_query_blocks(q_len: int, blocks: int, offset: int) -> NDArray[np.bool_]:
    # The loop ends at the query block's number, as if key blocks were as long as query blocks.
    last = np.arange(q_len) // BLOCK_Q + -(-offset // 16)
    return np.arange(blocks)[None] <= last[:, None]


def _one_short(q_len: int, blocks: int, offset: int) -> NDArray[np.bool_]:
    return np.arange(blocks)[None] < (_last_row(q_len, offset) // 16)[:, None]


def _last_visited(q_len: int, blocks: int, offset: int) -> NDArray[np.bool_]:
    return np.arange(blocks)[None] >= (_last_row(q_len, offset) // 16)[:, None]


block_bound = assemble(Online(visits=_as_many_as_query_blocks))
diagonal_block_skipped = assemble(Online(visits=_one_short))
masks_last_block_only = assemble(Online(masks=_last_visited))

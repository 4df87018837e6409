"""Known-bad: the wrong keys are visible. Each replaces the mask of the right attention."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import Build, Parts, assemble, causal_mask, softmax, visible

BLOCK = 16  # keys in a block, for faults at a block's edge


def _masked(mask: Callable[[int, int, bool, Array | None], Array]) -> Build:
    return assemble(Parts(mask=mask))


def _causal_rule(rule: Callable[[int, int], Array]) -> Build:
    """A candidate whose causal mask is `rule(T, S)`, Bool [T, S]; the key mask is right."""

    def mask(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
        keys = visible(q_len, kv_len, False, key_mask)
        return keys & rule(q_len, kv_len) if causal else keys

    return _masked(mask)


def _key_rule(rule: Callable[[Array], Array]) -> Build:
    """A candidate that reads `rule(key_mask)`, Bool [B, S], where it should read the key mask."""

    def mask(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
        return visible(q_len, kv_len, causal, None if key_mask is None else rule(key_mask))

    return _masked(mask)


def _offset(offset: Callable[[int, int], int]) -> Build:
    return _causal_rule(lambda T, S: jnp.tril(jnp.ones((T, S), bool), offset(T, S)))


def _narrow_positions(dtype: str) -> Build:
    def rule(q_len: int, kv_len: int) -> Array:
        queries = (jnp.arange(q_len) + (kv_len - q_len)).astype(dtype)
        return jnp.arange(kv_len).astype(dtype)[None, :] <= queries[:, None]

    return _causal_rule(rule)


def _block_causal(q_len: int, kv_len: int) -> Array:
    queries = jnp.arange(q_len) + (kv_len - q_len)
    return lax.div(jnp.arange(kv_len), BLOCK)[None, :] <= jnp.floor_divide(queries, BLOCK)[:, None]


def _prefix_of_same_length(key_mask: Array) -> Array:
    lengths = jnp.sum(key_mask, axis=1, keepdims=True)
    return jnp.arange(key_mask.shape[1])[None, :] < lengths


def _rounded_up_to_blocks(key_mask: Array) -> Array:
    batch, kv_len = key_mask.shape
    blocks = jnp.pad(key_mask, ((0, 0), (0, -kv_len % BLOCK))).reshape(batch, -1, BLOCK)
    live = jnp.broadcast_to(jnp.any(blocks, axis=2, keepdims=True), blocks.shape)
    return live.reshape(batch, -1)[:, :kv_len]


def _either(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
    return visible(q_len, kv_len, causal and key_mask is None, key_mask)


def _hides_queries(q_len: int, kv_len: int, causal: bool, key_mask: Array | None) -> Array:
    mask = visible(q_len, kv_len, causal, None)
    if key_mask is None:
        return mask
    rows = jnp.pad(key_mask, ((0, 0), (0, max(q_len - kv_len, 0))), constant_values=True)
    return mask & rows[:, None, :q_len, None]


def _across_heads(scores: Array, mask: Array) -> Array:
    # [B, 1, T, S] read as one mask a head, as broadcasting [B, T, S] against [B, H, T, S] does.
    pick = lax.rem(jnp.arange(scores.shape[1]), mask.shape[0])
    return softmax(scores, mask[pick, 0][None])


ignores_causal = _causal_rule(lambda T, S: jnp.ones((T, S), bool))
top_left_causal = _offset(lambda _T, _S: 0)
reversed_causal_offset = _offset(lambda T, S: T - S)
strict_causal = _offset(lambda T, S: S - T - 1)
peeks_one_ahead = _offset(lambda T, S: S - T + 1)
inverted_causal = _causal_rule(lambda T, S: ~causal_mask(T, S))
block_causal = _causal_rule(_block_causal)
int8_positions = _narrow_positions("int8")
int16_positions = _narrow_positions("int16")
ignores_padding = _key_rule(jnp.ones_like)
inverted_key_mask = _key_rule(jnp.logical_not)
prefix_padding = _key_rule(_prefix_of_same_length)
shifted_key_mask = _key_rule(lambda m: jnp.roll(m, 1, axis=1))
block_padding = _key_rule(_rounded_up_to_blocks)
first_batch_mask = _key_rule(lambda m: jnp.broadcast_to(m[:1], m.shape))
mask_replaces_causal = _masked(_either)
masks_queries = _masked(_hides_queries)
mask_across_heads = assemble(Parts(weights=_across_heads))

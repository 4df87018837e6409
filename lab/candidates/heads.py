"""Known-bad: heads, batch entries or axes are mixed up, in the keys, the values or the output."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from lab.candidates.assembly import Build, Parts, assemble, clean, heads, output, repeat


def _both(read: Callable[[Array, Array | None, int], Array]) -> Build:
    return assemble(Parts(keys=read, values=read))


def _mapped(
    head: Callable[[Array, int, int], Array],
) -> Callable[[Array, Array | None, int], Array]:
    """Query head h reads key/value head `head(h, Hq, Hkv)`."""

    def read(x: Array, key_mask: Array | None, q_heads: int) -> Array:
        return clean(x, key_mask)[:, head(jnp.arange(q_heads), q_heads, x.shape[1])]

    return read


_tiled = _mapped(lambda h, _q_heads, kv_heads: lax.rem(h, kv_heads))


def _sequence_before_heads(x: Array, key_mask: Array | None, q_heads: int) -> Array:
    batch, kv_heads, kv_len, width = x.shape
    misread = clean(x, key_mask).reshape(batch, kv_len, kv_heads, width)
    return repeat(jnp.swapaxes(misread, 1, 2), q_heads)


def _output_not_transposed(weights: Array, v: Array) -> Array:
    out = output(weights, v)
    return jnp.swapaxes(out, 1, 2).reshape(out.shape)


def _previous_batch(x: Array, key_mask: Array | None, q_heads: int) -> Array:
    return jnp.roll(heads(x, key_mask, q_heads), 1, axis=0)


def _first_batch(x: Array, key_mask: Array | None, q_heads: int) -> Array:
    rows = heads(x, key_mask, q_heads)
    return jnp.broadcast_to(rows[:1], rows.shape)


wrong_gqa = _both(_tiled)
first_kv_head = _both(_mapped(lambda h, _q_heads, _kv_heads: jnp.zeros_like(h)))
clamped_kv_head = _both(_mapped(lambda h, _q_heads, kv_heads: jnp.minimum(h, kv_heads - 1)))
tiled_values = assemble(Parts(values=_tiled))
keys_sequence_first = assemble(Parts(keys=_sequence_before_heads))
output_not_transposed = assemble(Parts(output=_output_not_transposed))
values_of_previous_batch = assemble(Parts(values=_previous_batch))
keys_of_first_batch = assemble(Parts(keys=_first_batch))

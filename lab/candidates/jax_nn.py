"""`jax.nn.dot_product_attention` behind this lab's signature: adapted (a control) and raw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from lab.candidates.assembly import Attention, Parts, assemble, clean, repeat, visible
from lab.candidates.softmaxes import mean_on_empty_row

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy


def _library(policy: DtypePolicy, *, cleaned: bool, empty_rows: bool) -> Attention:
    """An explicit mask always; on request cleaned padding and zeros for rows without a key."""

    def attention(
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool,
        key_mask: Array | None = None,
        scale: float | None = None,
    ) -> Array:
        mask = visible(q.shape[2], k.shape[2], causal, key_mask)
        if cleaned:
            k, v = clean(k, key_mask), clean(v, key_mask if empty_rows else _some_shown(key_mask))
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
        with jax.default_matmul_precision("highest"):
            out = jax.nn.dot_product_attention(q, k, v, mask=mask, scale=scale)
        out = jnp.swapaxes(out, 1, 2).astype(policy.output)
        return jnp.where(jnp.any(mask, axis=-1)[..., None], out, 0) if empty_rows else out

    return attention


def _some_shown(key_mask: Array | None) -> Array | None:
    """The key mask, but where it hides every key: there the values are left as they are."""
    return None if key_mask is None else key_mask | ~jnp.any(key_mask, axis=1, keepdims=True)


def adapted(policy: DtypePolicy, interpret: bool) -> Attention:  # noqa: ARG001 - no Pallas here
    """With what it leaves to its caller: clean padding, and zeros on empty rows."""
    return _library(policy, cleaned=True, empty_rows=True)


def uncleaned(policy: DtypePolicy, interpret: bool) -> Attention:
    """NaN in a hidden value spreads: 0 x NaN."""
    if policy.accumulation == "float64":  # The library computes its softmax in float32.
        raw = lambda x, _key_mask, q_heads: repeat(x, q_heads)  # noqa: E731
        return assemble(Parts(keys=raw, values=raw))(policy, interpret)
    return _library(policy, cleaned=False, empty_rows=True)


def mean_on_empty_rows(policy: DtypePolicy, interpret: bool) -> Attention:
    """A row without a visible key gets the mean of all values."""
    if policy.accumulation == "float64":
        return mean_on_empty_row(policy, interpret)
    return _library(policy, cleaned=True, empty_rows=False)

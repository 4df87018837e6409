"""The softmax scope around a `Softmax`: input-dtype logits in, fp32 probabilities out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from lab.kernels.attention import Softmax
from lab.kernels.support import check_policy, check_softmax

if TYPE_CHECKING:
    from lab.kernels import MaskedSoftmax
    from lab.truth.problems import DtypePolicy


def masked_softmax_around(softmax: Softmax, policy: DtypePolicy) -> MaskedSoftmax:
    """Build a masked softmax, in the form of `lab.kernels.MaskedSoftmax`, with its gradient."""
    check_policy(policy)

    def masked_softmax(logits: jax.Array, mask: jax.Array) -> jax.Array:
        return _masked_softmax(softmax, logits, check_softmax(logits, mask, policy))

    return masked_softmax


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _masked_softmax(softmax: Softmax, logits: jax.Array, mask: jax.Array) -> jax.Array:
    return softmax.forward(logits, mask, jnp.float32)


def _forward(
    softmax: Softmax, logits: jax.Array, mask: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    # The logits are kept rather than the probabilities: half the bytes in bf16.
    return _masked_softmax(softmax, logits, mask), (logits, mask)


def _backward(
    softmax: Softmax, residuals: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, None]:
    logits, mask = residuals
    return softmax.backward(logits, mask, cotangent, logits.dtype), None


_masked_softmax.defvjp(_forward, _backward)

"""The baseline: masked softmax in plain JAX, left to XLA to fuse, around XLA's products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from lab.kernels import Kernel
from lab.kernels.attention import Softmax, attention_around
from lab.kernels.softmax import masked_softmax_around

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Interpret
    from lab.kernels.options import Options
    from lab.truth.problems import DtypePolicy


def build(
    options: Options,  # noqa: ARG001 - the registry's form; XLA has no options
    *,
    policy: DtypePolicy,
    interpret: Interpret,  # noqa: ARG001 - nothing here is Pallas
) -> Kernel:
    """Build the kernel; the same program runs on every backend."""
    softmax = Softmax(forward=softmax_forward, backward=softmax_backward)
    return Kernel("xla", masked_softmax_around(softmax, policy), attention_around(softmax, policy))


def softmax_forward(
    logits: jax.Array,
    mask: jax.Array | None,
    dtype: DTypeLike,
    *,
    causal: bool = False,  # noqa: ARG001 - it is in the mask
) -> jax.Array:
    """Masked softmax of logits [B, H, T, S], computed in fp32, returned as `dtype`."""
    # XLA:TPU knows this form: it takes maximum and sum in the pass that makes the scores. With a
    # test for empty rows between the two, the same softmax costs one more pass over the logits.
    return jax.nn.softmax(logits.astype(jnp.float32), axis=-1, where=mask).astype(dtype)


def softmax_backward(
    logits: jax.Array,
    mask: jax.Array | None,
    dp: jax.Array,
    dtype: DTypeLike,
    *,
    causal: bool = False,  # noqa: ARG001 - it is in the mask
    delta: jax.Array | None = None,
) -> jax.Array:
    """Gradient of the logits, p * (dp - sum(p * dp)), from dp [B, H, T, S]."""
    p = softmax_forward(logits, mask, jnp.float32)
    if mask is not None:
        dp = jnp.where(mask, dp, 0)
    if delta is None:
        delta = jnp.sum(p * dp, axis=-1, keepdims=True)
    return (p * (dp - delta)).astype(dtype)

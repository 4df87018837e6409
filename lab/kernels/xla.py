"""The baseline: masked softmax in plain JAX, left to XLA to fuse, around XLA's products."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from lab.kernels import Kernel
from lab.kernels.attention import Softmax, attention_around
from lab.kernels.softmax import masked_softmax_around

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from lab.kernels import Interpret
    from lab.problems import DtypePolicy


def build(
    options: Mapping[str, object],  # noqa: ARG001 - the registry's form; XLA has no options
    *,
    policy: "DtypePolicy",
    interpret: "Interpret",  # noqa: ARG001 - nothing here is Pallas
) -> Kernel:
    """Build the kernel; the same program runs on every backend."""
    softmax = Softmax(forward=softmax_forward, backward=softmax_backward)
    return Kernel(
        "xla", masked_softmax_around(softmax, policy), attention_around(softmax, policy)
    )


def softmax_forward(logits: jax.Array, mask: jax.Array | None, dtype: "DTypeLike") -> jax.Array:
    """Masked softmax of logits [B, H, T, S], computed in fp32, returned as `dtype`."""
    return _probabilities(logits, mask).astype(dtype)


def softmax_backward(
    logits: jax.Array, mask: jax.Array | None, dp: jax.Array, dtype: "DTypeLike"
) -> jax.Array:
    """Gradient of the logits, p * (dp - sum(p * dp)), from dp [B, H, T, S] in fp32."""
    p = _probabilities(logits, mask)
    if mask is not None:
        dp = jnp.where(mask, dp, 0)
    delta = jnp.sum(p * dp, axis=-1, keepdims=True)
    return (p * (dp - delta)).astype(dtype)


def _probabilities(logits: jax.Array, mask: jax.Array | None) -> jax.Array:
    x = logits.astype(jnp.float32)
    if mask is None:
        return jax.nn.softmax(x, axis=-1)
    x = jnp.where(mask, x, -jnp.inf)
    row_max = jnp.max(x, axis=-1, keepdims=True)
    # An empty row has maximum -inf: subtract 0 there, so that exp gives 0 and not NaN.
    weights = jnp.exp(x - jnp.where(row_max == -jnp.inf, 0, row_max))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total)

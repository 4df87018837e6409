"""What the kernels here support, refused with a reason where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import jax.numpy as jnp

from lab.errors import UnsupportedCell

if TYPE_CHECKING:
    import jax

    from lab.kernels import MaskedSoftmax
    from lab.truth.problems import DtypePolicy

_INPUTS = ("bfloat16", "float32")


def check_policy(policy: DtypePolicy) -> None:
    """Refuse a dtype policy outside bf16 or f32 inputs with fp32 logits and accumulation."""
    if policy.input not in _INPUTS:
        raise UnsupportedCell(f"input dtype {policy.input}: supported are {', '.join(_INPUTS)}")
    for what, dtype in (("logits", policy.logits), ("accumulation", policy.accumulation)):
        if dtype != "float32":
            raise UnsupportedCell(f"{what} dtype {dtype}: this kernel computes float32 only")


def check_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
    policy: DtypePolicy,
) -> None:
    """Refuse dtypes other than the policy's; raise ValueError for shapes that do not fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_dtype(name, x, policy)
    if (
        q.ndim != 4
        or k.ndim != 4
        or k.shape != v.shape
        or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3])
        or q.shape[1] % k.shape[1]
    ):
        raise ValueError(
            "attention takes q [B, Hq, T, D] and k, v [B, Hkv, S, D], Hq a multiple of Hkv; "
            f"given q {q.shape}, k {k.shape}, v {v.shape}"
        )
    if key_mask is not None and (
        key_mask.dtype != jnp.bool_ or key_mask.shape != (k.shape[0], k.shape[2])
    ):
        raise ValueError(
            f"key_mask is Bool[B, S]; given {key_mask.dtype} {key_mask.shape} for k {k.shape}"
        )


def check_softmax(logits: jax.Array, mask: jax.Array, policy: DtypePolicy) -> jax.Array:
    """Refuse logits of another dtype than the policy's, and return the mask with rank 4.

    Raises ValueError unless logits are [B, H, T, S] and the mask is Bool, broadcastable to them.
    """
    _check_dtype("logits", logits, policy)
    padded = (1,) * (4 - mask.ndim) + tuple(mask.shape)
    fits = len(padded) == 4 and all(m in (1, n) for m, n in zip(padded, logits.shape, strict=False))
    if logits.ndim != 4 or mask.dtype != jnp.bool_ or not fits:
        raise ValueError(
            "masked_softmax takes logits [B, H, T, S] and a Bool mask broadcastable to them; "
            f"given logits {logits.shape}, mask {mask.dtype} {mask.shape}"
        )
    return mask.reshape(padded)


def _check_dtype(name: str, x: jax.Array, policy: DtypePolicy) -> None:
    if x.dtype != jnp.dtype(policy.input):
        raise UnsupportedCell(
            f"{name} is {x.dtype}: the dtype policy {policy.name} takes {policy.input}"
        )


def no_softmax(name: str) -> MaskedSoftmax:
    """The softmax scope of a fused kernel, which has none."""

    def masked_softmax(logits: jax.Array, mask: jax.Array) -> NoReturn:  # noqa: ARG001
        raise UnsupportedCell(
            f"kernel {name} is a fused attention, it has no softmax of its own; use scope=attention"
        )

    return masked_softmax

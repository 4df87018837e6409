"""What adapters of public kernels refuse, each with a reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from lab.errors import UnsupportedCell
from lab.kernels.sizes import LANES
from lab.kernels.support import check_attention, check_policy

if TYPE_CHECKING:
    import jax

    from lab.kernels import Attention
    from lab.truth.problems import DtypePolicy


def require(holds: bool, name: str, limit: str, given: str) -> None:
    """Refuse a cell outside of what an implementation declares."""
    if not holds:
        raise UnsupportedCell(f"kernel {name} {limit}; given {given}")


class Call(Protocol):
    """An implementation on arrays as the lab has them, with no key mask and a scale that is set."""

    def __call__(
        self, q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool, scale: float
    ) -> jax.Array:
        """Map q [B, Hq, T, D], k and v [B, Hkv, S, D] to [B, Hq, T, D]."""
        ...


def tpu_kernel(
    name: str, call: Call, policy: DtypePolicy, *, block: int, most_q_len_is_kv_len: bool
) -> Attention:
    """An attention that keeps the limits JAX's TPU kernels share.

    They take bf16 products as they come, know no mask over keys, need lengths of whole blocks and
    rows of whole lanes.

    Args:
        name: of the kernel, for the reasons.
        call: the implementation, without key_mask.
        policy: only bf16 is taken: float32 products would be rounded without being asked for.
        block: what lengths must be multiples of, where they are longer than one block.
        most_q_len_is_kv_len: whether causality is right for T <= S, or else for T = S alone.
    """
    check_policy(policy)

    def attention(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        causal: bool,
        key_mask: jax.Array | None = None,
        scale: float | None = None,
    ) -> jax.Array:
        check_attention(q, k, v, key_mask, policy)
        (T, D), S = q.shape[2:], k.shape[2]
        require(policy.name == "bf16", name, "is run in bf16 only", policy.name)
        require(key_mask is None, name, "takes no key mask here", "shape.padding")
        require(D % LANES == 0, name, "takes head_dim in multiples of 128", f"head_dim {D}")
        for axis, length in (("q_len", T), ("seq", S)):
            step = LANES if length <= block else block
            require(length % step == 0, name, f"takes multiples of {step}", f"{axis} {length}")
        aligned = T == S or (most_q_len_is_kv_len and T < S) or not causal
        limit = "q_len up to seq" if most_q_len_is_kv_len else "q_len equal to seq"
        require(aligned, name, f"is causal for {limit}", f"q_len {T}, seq {S}")
        return call(q, k, v, causal=causal, scale=1 / math.sqrt(D) if scale is None else scale)

    return attention

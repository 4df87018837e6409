"""Fused attention for a few queries against many keys: one pass over K and V, bound by memory.

The queries of a group are the rows of one small tile; K and V stream past them in blocks, with an
online softmax in scratch memory. (Dao 2023, FlashAttention-2, algorithm 1.)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.kernels.flash.arithmetic import LOG2_E, dot
from lab.kernels.sizes import LANES, round_up

if TYPE_CHECKING:
    from lab.kernels import Interpret

BLOCK_BYTES = 1 << 20
"""Of K, or of V, in a step: long enough that copies, and not steps, take the time."""

VMEM_LIMIT_BYTES = 32 << 20

Ref = Any


def decode(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None = None,
    *,
    causal: bool,
    scale: float,
    block_k: int | None = None,
    interpret: Interpret = False,
    with_lse: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Attention of up to MAX_QUERIES queries by one kernel; arrays as they are, with no padding.

    Args:
        q: [B, Hq, T, D], bf16 or fp32; so are k and v.
        k: [B, Hkv, S, D].
        v: [B, Hkv, S, D].
        key_mask: Bool [B, S], True where a key may be attended; None for all.
        causal: query i sees key j only where j <= i + S - T.
        scale: factor of the logits, above 0.
        block_k: keys of a step, a multiple of 128; None takes BLOCK_BYTES.
        interpret: as `pallas_call` takes it.
        with_lse: return the log-sum-exp as well.

    Returns:
        [B, Hq, T, D] in q's dtype, and fp32 [B, Hq, T], -inf where a row sees no key, or None.
    """
    batch, q_heads, q_len, width = q.shape
    kv_heads, kv_len = k.shape[1:3]
    group = q_heads // kv_heads
    block_k = min(
        block_k or default_block(kv_len, width, k.dtype.itemsize), round_up(kv_len, LANES)
    )
    steps = pl.cdiv(kv_len, block_k)
    block = (1, group, q_len, width)

    def queries(b: Any, h: Any, _: Any) -> tuple[Any, ...]:  # noqa: ANN401 - grid indices
        return b, h, 0, 0

    def keys(b: Any, h: Any, j: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return b, h, j, 0

    key_spec = pl.BlockSpec((1, 1, block_k, width), keys)
    inputs = [(q, pl.BlockSpec(block, queries)), (k, key_spec), (v, key_spec)]
    if key_mask is not None:
        shown = key_mask[:, None].astype(jnp.float32)
        inputs.append((shown, pl.BlockSpec((1, 1, block_k), lambda b, _, j: (b, 0, j))))
    outputs = [(jax.ShapeDtypeStruct(q.shape, q.dtype), pl.BlockSpec(block, queries))]
    if with_lse:
        shape = jax.ShapeDtypeStruct((*q.shape[:3], 1), jnp.float32)
        outputs.append((shape, pl.BlockSpec((*block[:3], 1), queries)))
    rows = group * q_len
    out, *rest = pl.pallas_call(
        functools.partial(
            _kernel, scale, causal and q_len > 1, kv_len, key_mask is not None, with_lse
        ),
        grid=(batch, kv_heads, steps),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        scratch_shapes=[
            pltpu.VMEM((rows, 1), jnp.float32),
            pltpu.VMEM((rows, 1), jnp.float32),
            pltpu.VMEM((rows, width), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",) * 3, vmem_limit_bytes=VMEM_LIMIT_BYTES
        ),
        interpret=interpret,
        name="flash_decode",
    )(*[x for x, _ in inputs])
    return out, rest[0][..., 0] if with_lse else None


def default_block(kv_len: int, head_dim: int, element_bytes: int) -> int:
    """Keys of a step; where it can be, a divisor of their number, so that no step has a tail."""
    most = max(LANES, BLOCK_BYTES // (round_up(head_dim, LANES) * element_bytes) // LANES * LANES)
    even = [n for n in range(most // 2, most + 1, LANES) if kv_len % n == 0]
    return max(even, default=most)


def _kernel(
    scale: float, causal: bool, kv_len: int, masked: bool, with_lse: bool, *refs: Ref
) -> None:
    q_ref, k_ref, v_ref, *others = refs
    mask_ref = others.pop(0) if masked else None
    out = others.pop(0)
    lse = others.pop(0) if with_lse else None
    peak, total, acc = others
    group, q_len = out.shape[1:3]
    block_k = k_ref.shape[2]
    step = pl.program_id(2)
    left = kv_len - step * block_k  # keys from the start of this block on

    @pl.when(step == 0)
    def _start() -> None:
        peak[...] = jnp.full_like(peak, -jnp.inf)
        total[...] = jnp.zeros_like(total)
        acc[...] = jnp.zeros_like(acc)

    # Rows of a tile are moved in fp32: a bf16 tile holds two of them in each sublane.
    q = jnp.concatenate([q_ref[0, head].astype(jnp.float32) for head in range(group)])
    v = v_ref[0, 0]
    scores = dot(q.astype(v.dtype), k_ref[0, 0], (1, 1))
    visible = None
    keys = lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    if causal:
        queries = jnp.concatenate([lax.broadcasted_iota(jnp.int32, (q_len, block_k), 0)] * group)
        visible = keys - queries <= left - q_len
    if kv_len % block_k:
        visible = keys < left if visible is None else visible & (keys < left)
        # What lies behind the keys' end in the last block was never copied.
        v = _select(lax.broadcasted_iota(jnp.int32, v.shape, 0) < left, v)
    if mask_ref is not None:
        shown = mask_ref[0] > 0
        visible = shown if visible is None else visible & shown
        v = _select(_along_sublanes(mask_ref, v.shape) > 0, v)
    if visible is not None:
        scores = jnp.where(visible, scores, -jnp.inf)
    before = peak[...]
    peak[...] = jnp.maximum(before, jnp.max(scores, axis=1, keepdims=True))
    # Where nothing has been visible yet, subtract 0: exp gives 0 there, and not NaN.
    base = jnp.where(peak[...] == -jnp.inf, 0.0, peak[...])
    weights = jnp.exp2((scores - base) * (scale * LOG2_E))
    correction = jnp.exp2((before - base) * (scale * LOG2_E))
    total[...] = total[...] * correction + jnp.sum(weights, axis=1, keepdims=True)
    acc[...] = acc[...] * correction + dot(weights.astype(v.dtype), v, (1, 0))

    @pl.when(step == pl.num_programs(2) - 1)
    def _finish() -> None:
        seen = total[...] > 0
        divisor = jnp.where(seen, total[...], 1.0)
        result = acc[...] / divisor
        for head in range(group):
            place = slice(head * q_len, (head + 1) * q_len)
            out[0, head] = result[place].astype(out.dtype)
            if lse is not None:
                value = peak[place] * scale + jnp.log(divisor[place])
                lse[0, head] = jnp.where(seen[place], value, -jnp.inf)


def _select(shown: jax.Array, v: jax.Array) -> jax.Array:
    """V [keys, D] with 0 where it is hidden."""
    return jnp.where(shown, v.astype(jnp.float32), 0.0).astype(v.dtype)


def _along_sublanes(mask: Ref, shape: tuple[int, ...]) -> jax.Array:
    """The mask [1, 1, keys] turned to [keys, D]."""
    block_k, width = shape
    turned = [
        jnp.broadcast_to(mask[0, :, first : first + LANES], (width, LANES)).T
        for first in range(0, block_k, LANES)
    ]
    return jnp.concatenate(turned)

"""Known-bad Pallas kernels: the simple fused attention with one fault each; and the right one."""

from __future__ import annotations

import jax.numpy as jnp

from lab.candidates.fused import fused
from lab.candidates.fused_layout import div, rem
from lab.candidates.fused_steps import Fused

pallas_fused = fused(Fused())
pallas_fused_wide_queries = fused(Fused(block_q=64, block_k=16))

# ---- forward (the backward kernels read its statistics, so gradients suffer with it) ---------
pallas_fused_top_left = fused(Fused(offset=lambda _T, _S: 0, backward_offset=lambda _T, _S: 0))
pallas_fused_off_by_one = fused(
    Fused(offset=lambda T, S: S - T - 1, backward_offset=lambda T, S: S - T - 1)
)
pallas_fused_tiled_heads = fused(Fused(kv_head=lambda h, _group, kv_heads: rem(h, kv_heads)))
pallas_fused_element_index = fused(Fused(kv_block=lambda j: j * 32))
pallas_fused_block_bound = fused(
    # Query and key blocks are counted alike, though a query block is four key blocks long.
    Fused(block_q=64, block_k=16, live=lambda key, query: div(key, 16) <= div(query, 64))
)
pallas_fused_diagonal_skipped = fused(Fused(live=lambda key, query: key + 31 <= query))
pallas_fused_zero_keys = fused(Fused(tail_visible=True))
pallas_fused_poison = fused(Fused(cleaned=False))
pallas_fused_stale_rescale = fused(Fused(rescale=lambda out, _: out))
pallas_fused_uninitialised = fused(Fused(starts=lambda _i: False))
pallas_fused_carried_over = fused(Fused(starts=lambda i: i == 0))
pallas_fused_unwritten = fused(Fused(finishes_when_live=True))

# ---- the backward kernels alone --------------------------------------------------------------
pallas_fused_backward_causal = fused(Fused(backward_causal=False))
pallas_fused_backward_top_left = fused(Fused(backward_offset=lambda _T, _S: 0))
pallas_fused_missing_delta = fused(Fused(score_gradient=lambda p, dp, _delta: p * dp))
pallas_fused_base_two = fused(Fused(base=2.0))
pallas_fused_last_dq = fused(Fused(add_dq=lambda _total, term: term))
pallas_fused_last_dkv = fused(Fused(add_dkv=lambda _total, term: term))
pallas_fused_first_head = fused(Fused(group=lambda _group: 1))
pallas_fused_unscaled_dk = fused(Fused(dk_scale=lambda _scale: 1.0))
pallas_fused_missing_weights = fused(
    Fused(score_gradient=lambda p, dp, delta: jnp.where(p > 0, dp - delta, 0))
)

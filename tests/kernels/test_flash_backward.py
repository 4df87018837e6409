"""The fused backward kernel against the float64 oracle, interpreted on small shapes."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from lab import oracle
from lab.kernels.flash.backward import BackwardBlocks, backward, default_blocks
from lab.problems import POLICIES, AttentionProblem, Shape, attention_problem

Gradients = tuple[jax.Array, jax.Array, jax.Array]

# Relative to the largest magnitude of a gradient; bf16 rounds P, dS and the result.
TOLERANCES = {"bf16": 2.0**-6, "f32": 2.0**-17}
SMALL = BackwardBlocks(block_q=128, block_k=128, heads=1, chunk=128)


def forward(problem: AttentionProblem) -> tuple[jax.Array, jax.Array]:
    """The output, in its dtype, and log-sum-exp that a forward kernel would have saved."""
    group = problem.q.shape[1] // problem.k.shape[1]
    q, k, v = (jnp.asarray(x, jnp.float32) for x in (problem.q, problem.k, problem.v))
    if problem.key_mask is not None:
        k, v = (jnp.where(problem.key_mask[:, None, :, None], x, 0) for x in (k, v))
    k, v = (jnp.repeat(x, group, axis=1) for x in (k, v))
    scale = problem.scale or 1 / math.sqrt(q.shape[-1])
    high = jax.lax.Precision.HIGHEST
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k, precision=high) * scale
    scores = jnp.where(problem.visible, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    p = jnp.exp(scores - jnp.where(lse == -jnp.inf, 0, lse)[..., None])
    out = jnp.einsum("bhts,bhsd->bhtd", p, v, precision=high)
    return out.astype(problem.policy.output), lse


def gradients(
    problem: AttentionProblem, blocks: BackwardBlocks | None, *, interpret: Any = True
) -> Gradients:
    out, lse = forward(problem)
    mask = problem.key_mask
    return backward(
        jnp.asarray(problem.q),
        jnp.asarray(problem.k),
        jnp.asarray(problem.v),
        None if mask is None else jnp.asarray(mask),
        out,
        lse,
        jnp.asarray(problem.cotangent),
        causal=problem.causal,
        scale=problem.scale or 1 / math.sqrt(problem.q.shape[-1]),
        blocks=blocks,
        interpret=interpret,
    )


def assert_right(problem: AttentionProblem, got: Gradients) -> None:
    want = oracle.backward(
        problem.q,
        problem.k,
        problem.v,
        problem.cotangent,
        causal=problem.causal,
        key_mask=problem.key_mask,
        scale=problem.scale,
    )
    for name, ours, truth in zip(("dq", "dk", "dv"), got, (want.dq, want.dk, want.dv), strict=True):
        assert ours.dtype == problem.policy.input
        assert ours.shape == truth.shape
        array = np.asarray(ours).astype(np.float64)
        assert np.isfinite(array).all(), name
        bound = TOLERANCES[problem.policy.name] * max(np.abs(truth).max(), 2.0**-20)
        assert np.abs(array - truth).max() <= bound, name
    seen = np.broadcast_to(problem.visible, (problem.q.shape[0], 1, *problem.visible.shape[-2:]))
    empty, unseen = ~seen[:, 0].any(axis=2), ~seen[:, 0].any(axis=1)
    assert not np.asarray(got[0], np.float32).swapaxes(1, 2)[empty].any()
    assert not np.asarray(got[1], np.float32).swapaxes(1, 2)[unseen].any()
    assert not np.asarray(got[2], np.float32).swapaxes(1, 2)[unseen].any()


def check(shape: Shape, policy: str, blocks: BackwardBlocks | None, **options: Any) -> None:
    problem = attention_problem(shape, POLICIES[policy], **options)
    assert_right(problem, gradients(problem, blocks))


@pytest.mark.parametrize("policy", ["bf16", "f32"])
@pytest.mark.parametrize(
    ("q_len", "kv_len"), [(384, 384), (300, 417), (417, 300), (1, 385), (385, 1), (129, 640)]
)
@pytest.mark.parametrize("causal", [True, False])
def test_lengths(policy: str, q_len: int, kv_len: int, causal: bool) -> None:
    check(Shape(1, 4, 2, q_len, kv_len, 64, causal, "none"), policy, SMALL)


@pytest.mark.parametrize(("block_q", "block_k"), [(256, 128), (128, 256), (384, 128), (128, 384)])
@pytest.mark.parametrize(("q_len", "kv_len"), [(768, 768), (500, 900), (900, 500)])
def test_unequal_blocks(block_q: int, block_k: int, q_len: int, kv_len: int) -> None:
    blocks = BackwardBlocks(block_q=block_q, block_k=block_k, heads=2, chunk=128)
    check(Shape(1, 4, 2, q_len, kv_len, 64, True, "none"), "bf16", blocks)


@pytest.mark.parametrize("padding", ["tail", "random", "empty"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("regime", ["poisoned", "negative_logits", "large_logits"])
def test_padding(padding: str, causal: bool, regime: str) -> None:
    check(Shape(2, 4, 2, 300, 417, 64, causal, padding), "f32", SMALL, regime=regime)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 192, 256])
def test_head_dims(head_dim: int) -> None:
    check(Shape(1, 2, 1, 200, 264, head_dim, True, "none"), "bf16", None)


def test_keys_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.kernels.flash.backward.KEY_BYTES", 1)
    for q_len, kv_len in ((384, 640), (700, 400)):
        for causal in (True, False):
            check(Shape(1, 4, 2, q_len, kv_len, 64, causal, "none"), "f32", SMALL)


@pytest.mark.parametrize("heads", [1, 3])
def test_groups_and_batch(heads: int) -> None:
    blocks = BackwardBlocks(block_q=256, block_k=128, heads=heads, chunk=128)
    check(Shape(2, 9, 3, 520, 610, 64, True, "none"), "bf16", blocks, scale=0.3)

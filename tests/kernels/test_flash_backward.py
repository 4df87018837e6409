"""The fused backward kernel against the float64 oracle, interpreted on small shapes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from lab import truth
from lab.kernels.flash.backward import backward
from lab.kernels.flash.backward_plan import BackwardBlocks
from lab.truth.problems import POLICIES, AttentionProblem, Shape, attention_problem, poison

Gradients = tuple[jax.Array, jax.Array, jax.Array]

# Relative to the largest magnitude of a gradient; bf16 rounds P, dS and the result.
TOLERANCES = {"bf16": 2.0**-6, "f32": 2.0**-15}
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
    p = jnp.where(problem.visible, jax.nn.softmax(scores, axis=-1), 0)
    out = jnp.einsum("bhts,bhsd->bhtd", p, v, precision=high)
    return out.astype(problem.policy.output), lse


def gradients(
    problem: AttentionProblem,
    blocks: BackwardBlocks | None,
    *,
    interpret: Any = True,
    saved: tuple[jax.Array, jax.Array] | None = None,
) -> Gradients:
    out, lse = saved or forward(problem)
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


def assert_right(problem: AttentionProblem, got: Gradients, tolerance: float | None = None) -> None:
    tolerance = tolerance or TOLERANCES[problem.policy.name]
    want = truth.backward(
        problem.q,
        problem.k,
        problem.v,
        problem.cotangent,
        causal=problem.causal,
        key_mask=problem.key_mask,
        scale=problem.scale,
    )
    for name, ours, right in zip(("dq", "dk", "dv"), got, (want.dq, want.dk, want.dv), strict=True):
        assert ours.dtype == problem.policy.input
        assert ours.shape == right.shape
        array = np.asarray(ours).astype(np.float64)
        assert np.isfinite(array).all(), name
        # Where one key is all that a row sees, its logit's gradient is 0, and rounding is left.
        bound = tolerance * max(np.abs(right).max(), 1.0)
        assert np.abs(array - right).max() <= bound, name
    seen = np.broadcast_to(problem.visible, (problem.q.shape[0], 1, *problem.visible.shape[-2:]))
    empty, unseen = ~seen[:, 0].any(axis=2), ~seen[:, 0].any(axis=1)
    assert not np.asarray(got[0], np.float32).swapaxes(1, 2)[empty].any()
    assert not np.asarray(got[1], np.float32).swapaxes(1, 2)[unseen].any()
    assert not np.asarray(got[2], np.float32).swapaxes(1, 2)[unseen].any()


def check(shape: Shape, policy: str, blocks: BackwardBlocks | None, **options: Any) -> None:
    problem = attention_problem(shape, POLICIES[policy], **options)
    assert_right(problem, gradients(problem, blocks))


@pytest.mark.parametrize(
    ("q_len", "kv_len", "causal", "policy"),
    [
        (384, 384, True, "bf16"),
        (300, 417, True, "f32"),
        (417, 300, True, "f32"),
        (130, 300, False, "bf16"),
        (1, 385, True, "bf16"),
        (385, 1, True, "f32"),
    ],
)
def test_lengths(q_len: int, kv_len: int, causal: bool, policy: str) -> None:
    check(Shape(1, 2, 1, q_len, kv_len, 64, causal, "none"), policy, SMALL)


@pytest.mark.parametrize(("block_q", "block_k"), [(256, 128), (128, 256)])
def test_unequal_blocks(block_q: int, block_k: int) -> None:
    blocks = BackwardBlocks(block_q=block_q, block_k=block_k, heads=2, chunk=128)
    check(Shape(1, 2, 1, 600, 900, 64, True, "none"), "bf16", blocks)


@pytest.mark.parametrize(("padding", "causal"), [("empty", True), ("random", False)])
def test_padding_and_poison(padding: str, causal: bool) -> None:
    check(Shape(2, 2, 1, 300, 417, 64, causal, padding), "bf16", SMALL, regime="poisoned")


def test_hidden_logits_far_above_the_others() -> None:
    # A hidden key's logit is 0 here, and exp(6.5e4) is no number.
    shape = Shape(1, 2, 1, 200, 300, 64, True, "tail")
    problem = attention_problem(shape, POLICIES["f32"], regime="below_sentinel")
    assert_right(problem, gradients(problem, SMALL), tolerance=2.0**-8)


def test_groups_and_batch() -> None:
    blocks = BackwardBlocks(block_q=128, block_k=128, heads=1, chunk=128)
    check(Shape(2, 6, 2, 290, 310, 32, True, "none"), "f32", blocks, scale=0.3)


@pytest.mark.parametrize("causal", [True, False])
def test_keys_in_parts(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.kernels.flash.backward_plan.KEY_BYTES", 1)
    check(Shape(1, 2, 1, 200, 300, 64, causal, "none"), "f32", SMALL)


def test_repeats_and_hidden_keys_change_no_bit() -> None:
    shape = Shape(1, 2, 1, 140, 300, 64, True, "random")
    problem = attention_problem(shape, POLICIES["bf16"])
    run = jax.jit(lambda k, v: gradients(replace(problem, k=k, v=v), SMALL, saved=saved))
    saved = forward(problem)
    first, again = run(problem.k, problem.v), run(problem.k, problem.v)
    poisoned = poison(problem)
    hidden = run(poisoned.k, poisoned.v)
    for a, b, c in zip(first, again, hidden, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes() == np.asarray(c).tobytes()


def test_memory_is_read_where_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    params = pltpu.InterpretParams(
        out_of_bounds_reads="raise", detect_races=True, uninitialized_memory="nan"
    )
    problem = attention_problem(Shape(1, 2, 1, 130, 258, 64, True, "none"), POLICIES["bf16"])
    assert_right(problem, gradients(problem, SMALL, interpret=params))
    assert "RACE DETECTED" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"block_q": 100, "chunk": 100}, "multiples of 128"),
        ({"block_q": 256, "block_k": 384}, "one must divide the other"),
        ({"block_q": 384, "block_k": 384, "chunk": 256}, "must divide block_q=384"),
    ],
)
def test_bad_blocks(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BackwardBlocks(**sizes)

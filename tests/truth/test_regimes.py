"""Each regime puts the values where its name promises, under both policies."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.truth.problems import (
    PADDINGS,
    POLICIES,
    AttentionProblem,
    Shape,
    attention_problem,
    poison,
    softmax_problem,
)
from lab.truth.regimes import REGIMES

SHAPE = Shape(2, 6, 2, 40, 56, 24, causal=True, padding="tail")
POLICY = pytest.mark.parametrize("policy", list(POLICIES.values()), ids=list(POLICIES))


def logits_of(problem: AttentionProblem) -> np.ndarray:
    """Scaled logits [B, Hq, T, S] in float64; NaN in a hidden key stays NaN."""
    q, k = (np.asarray(x, np.float64) for x in (problem.q, problem.k))
    scale = problem.scale or q.shape[-1] ** -0.5
    return scale * np.einsum("bhtd,bhsd->bhts", q, k.repeat(q.shape[1] // k.shape[1], axis=1))


@POLICY
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("head_dim", [1, 2, 64, 128])
def test_regimes_put_the_logits_where_they_promise(
    policy: Any, scale: float | None, head_dim: int
) -> None:
    shape = Shape(2, 4, 2, 40, 56, head_dim, causal=False, padding="none")

    def logits(regime: str) -> np.ndarray:
        return logits_of(attention_problem(shape, policy, regime=regime, scale=scale))

    large = logits("large_logits")
    assert (np.abs(np.abs(large) - 1e4) < 300).all()
    assert (large > 0).any(axis=-1).all()
    assert (large < 0).any(axis=-1).all()
    assert (logits("below_sentinel") < -6e4).all()
    assert (logits("below_sentinel") > -7e4).all()
    if scale is None:
        assert (logits("negative_logits") < 0).all()
    assert np.ptp(logits("equal_logits"), axis=-1).max() == 0
    assert logits("peaky").std() / logits("normal").std() == pytest.approx(6, rel=0.2)


def test_noise_survives_beside_a_level() -> None:
    """The rows are no plain means: their weights still vary as those of `normal` do."""
    shape = Shape(1, 4, 2, 40, 56, 128, causal=False, padding="none")
    for policy in POLICIES.values():
        below = logits_of(attention_problem(shape, policy, regime="below_sentinel"))
        assert below.std(axis=-1).mean() == pytest.approx(1, rel=0.1)


@POLICY
def test_a_level_costs_float32_no_digits_in_any_order(policy: Any) -> None:
    shape = Shape(1, 2, 2, 30, 40, 128, causal=False, padding="none")
    for regime in ("large_logits", "below_sentinel"):
        problem = attention_problem(shape, policy, regime=regime)
        q, k = (np.asarray(x, np.float32)[0, 0] for x in (problem.q, problem.k))
        exact = q.astype(np.float64) @ k.astype(np.float64).T
        rng = np.random.default_rng(0)
        for _ in range(5):
            order = rng.permutation(128)
            total = np.zeros((30, 40), np.float32)
            for d in order:
                total += np.outer(q[:, d], k[:, d])
            assert (total == exact).all()


@POLICY
def test_the_maximum_moves_to_the_last_keys(policy: Any) -> None:
    shape = Shape(2, 4, 2, 128, 512, 64, causal=True, padding="none")
    problem = attention_problem(shape, policy, regime="moving_max")
    logits = np.where(problem.visible, logits_of(problem), -np.inf)
    last_key = np.arange(128) + 512 - 128
    late = logits.argmax(axis=-1) > last_key - 512 / 3
    assert late.mean() > 0.95
    # The blocks before weigh enough that a rescale left out shows.
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    before = weights[..., :256].sum(axis=-1) / weights.sum(axis=-1)
    assert np.median(before) > 1e-3


@POLICY
def test_values_of_the_v_regimes(policy: Any) -> None:
    positive = attention_problem(SHAPE, policy, regime="positive_v").v.astype(np.float64)
    assert (positive >= 0).all()
    assert positive.mean() > 0.5
    hot = attention_problem(SHAPE, policy, regime="one_hot_v").v.astype(np.float64)
    assert (np.sort(hot, axis=-1)[..., -1] == 1).all()
    assert (np.abs(hot).sum(axis=-1) == 1).all()
    # Consecutive keys read out to consecutive columns, at an offset of the head's own.
    column = hot.argmax(axis=-1)
    assert (np.diff(column, axis=-1) % 24 == 1).all()


@POLICY
def test_poison_fills_hidden_keys_and_touches_nothing_else(policy: Any) -> None:
    clean = attention_problem(SHAPE, policy)
    poisoned = poison(clean)
    assert clean.key_mask is not None
    for name in ("k", "v"):
        before, after = (getattr(p, name).astype(np.float64) for p in (clean, poisoned))
        hidden = np.broadcast_to(~clean.key_mask[:, None, :], before.shape[:3])
        assert before[~hidden].tobytes() == after[~hidden].tobytes()
        assert np.isnan(after[hidden]).any(axis=-1).all()
        assert np.isposinf(after).any()
        assert np.isneginf(after).any()
        assert np.isfinite(before).all()
    assert poisoned.q is clean.q
    assert np.isnan(attention_problem(SHAPE, policy, regime="poisoned").k.astype(float)).any()
    soft = softmax_problem(SHAPE, policy, regime="poisoned")
    logits = soft.logits.astype(np.float64)
    hidden = np.broadcast_to(~clean_mask(soft.mask), logits.shape)
    assert np.isnan(logits[hidden]).any()
    assert np.isfinite(logits[~hidden]).all()


def clean_mask(mask: np.ndarray) -> np.ndarray:
    """The key mask alone: the last query of a causal mask sees every key that is not padded."""
    return mask[:, :, -1:, :]


def test_a_mixture_is_a_point_of_a_continuum() -> None:
    recipes = [REGIMES["mixture"](np.random.default_rng(seed)) for seed in range(200)]
    assert len(set(recipes)) == 200
    levels = np.abs([recipe.level for recipe in recipes])
    assert levels.min() < 1
    assert levels.max() > 2e4
    assert {np.sign(recipe.level) for recipe in recipes} == {-1.0, 1.0}
    gains = np.array([recipe.query_gain for recipe in recipes])
    assert gains.min() >= 1
    assert gains.max() <= 6
    assert gains.max() / gains.min() > 5


@settings(max_examples=120)
@given(
    sizes=st.tuples(*[st.integers(1, n) for n in (2, 2, 9, 9, 5)]),
    group=st.integers(1, 2),
    causal=st.booleans(),
    padding=st.sampled_from(PADDINGS),
    regime=st.sampled_from(sorted(set(REGIMES) - {"poisoned"})),
    policy=st.sampled_from(list(POLICIES.values())),
    seed=st.integers(0, 10**30),
)
def test_every_unpoisoned_value_is_finite(
    sizes: Any, group: int, causal: bool, padding: str, regime: str, policy: Any, seed: int
) -> None:
    batch, kv_heads, q_len, kv_len, head_dim = sizes
    shape = Shape(batch, kv_heads * group, kv_heads, q_len, kv_len, head_dim, causal, padding)
    problem = attention_problem(shape, policy, regime=regime, seed=seed)
    for array in (problem.q, problem.k, problem.v, problem.cotangent):
        assert np.isfinite(array.astype(np.float64)).all()
    soft = softmax_problem(shape, policy, regime=regime, seed=seed)
    assert np.isfinite(soft.logits.astype(np.float64)).all()


@POLICY
def test_softmax_logits_follow_the_regime(policy: Any) -> None:
    shape = replace(SHAPE, causal=False, padding="none")

    def logits(regime: str) -> np.ndarray:
        return softmax_problem(shape, policy, regime=regime).logits.astype(np.float64)

    assert (np.abs(np.abs(logits("large_logits")) - 1e4) < 100).all()
    assert (logits("below_sentinel") < -6e4).all()
    assert (logits("negative_logits") < 0).all()
    assert np.ptp(logits("equal_logits"), axis=-1).max() == 0
    assert logits("peaky").std() / logits("normal").std() == pytest.approx(6, rel=0.1)
    assert (logits("moving_max").argmax(axis=-1) > 28).mean() > 0.95

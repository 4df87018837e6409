"""Inputs follow from shape, policy, regime and seed, and are what their names promise."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import UserError
from lab.truth.problems import (
    POLICIES,
    REGIMES,
    Shape,
    attention_problem,
    poison,
    softmax_problem,
    visible,
)

SHAPE = Shape(2, 6, 2, 40, 56, 24, causal=True, padding="tail")
BF16, F32 = POLICIES["bf16"], POLICIES["f32"]
POLICY = pytest.mark.parametrize("policy", [BF16, F32], ids=["bf16", "f32"])


# --- what follows from the arguments


@POLICY
def test_arrays_have_the_shapes_and_dtypes_of_the_policy(policy: Any) -> None:
    problem = attention_problem(SHAPE, policy)
    assert problem.q.shape == problem.cotangent.shape == (2, 6, 40, 24)
    assert problem.k.shape == problem.v.shape == (2, 2, 56, 24)
    assert {x.dtype.name for x in (problem.q, problem.k, problem.v)} == {policy.input}
    assert problem.cotangent.dtype.name == policy.output
    assert problem.key_mask is not None
    assert (problem.key_mask.dtype, problem.key_mask.shape) == (bool, (2, 56))
    assert problem.visible.shape == (2, 1, 40, 56)
    soft = softmax_problem(SHAPE, policy)
    assert soft.logits.shape == soft.cotangent.shape == (2, 6, 40, 56)
    assert (soft.logits.dtype.name, soft.cotangent.dtype.name) == (policy.input, "float32")
    assert soft.mask.tobytes() == problem.visible.tobytes()
    assert softmax_problem(replace(SHAPE, padding="none"), policy).mask.shape == (40, 56)


@pytest.mark.parametrize("regime", sorted(REGIMES))
@POLICY
def test_the_same_arguments_give_the_same_bytes(regime: str, policy: Any) -> None:
    once, again = (attention_problem(SHAPE, policy, regime=regime, seed=7) for _ in range(2))
    for name in ("q", "k", "v", "key_mask", "cotangent"):
        assert getattr(once, name).tobytes() == getattr(again, name).tobytes()
    once, again = (softmax_problem(SHAPE, policy, regime=regime, seed=7) for _ in range(2))
    for name in ("logits", "mask", "cotangent"):
        assert getattr(once, name).tobytes() == getattr(again, name).tobytes()


def test_every_seed_and_regime_gives_values_of_its_own() -> None:
    drawn = [
        attention_problem(SHAPE, F32, regime=regime, seed=seed)
        for regime in REGIMES
        for seed in (0, 1, 2**40)
    ]
    for name in ("q", "k", "v", "cotangent"):
        assert len({getattr(problem, name).tobytes() for problem in drawn}) == len(drawn)
    assert len({p.key_mask.tobytes() for p in drawn if p.key_mask is not None}) > len(drawn) // 2


def test_streams_within_a_problem_are_independent() -> None:
    shape = Shape(2, 2, 2, 64, 64, 64, causal=False, padding="none")
    problem = attention_problem(shape, F32)
    parts = [x[b, h].ravel() for x in (problem.q, problem.k, problem.v, problem.cotangent)
             for b in range(2) for h in range(2)]  # fmt: skip
    correlation = np.corrcoef(parts) - np.eye(len(parts))
    assert np.abs(correlation).max() < 5 / 64  # 5 sigma for 4096 samples


def test_values_are_pinned() -> None:
    """A NumPy or a change here that draws other values must be noticed: records depend on them."""
    digest = hashlib.sha256()
    for regime in sorted(REGIMES):
        problem = attention_problem(SHAPE, BF16, regime=regime, seed=1)
        soft = softmax_problem(SHAPE, BF16, regime=regime, seed=1)
        for array in (problem.q, problem.k, problem.v, problem.cotangent, problem.key_mask):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(soft.logits.tobytes())
    assert digest.hexdigest()[:16] == "aa2e6cc61bef9af8"


def test_cases_that_differ_in_masks_or_policy_alone_share_their_values() -> None:
    base = attention_problem(SHAPE, F32)
    other = attention_problem(replace(SHAPE, causal=False, padding="random"), F32)
    assert base.q.tobytes() == other.q.tobytes()
    assert base.k.tobytes() == other.k.tobytes()
    rounded = attention_problem(SHAPE, BF16)
    assert base.q.astype("bfloat16").tobytes() == rounded.q.tobytes()


def test_arrays_are_read_only() -> None:
    problem, soft = attention_problem(SHAPE, BF16), softmax_problem(SHAPE, BF16)
    poisoned = poison(problem)
    arrays = [problem.q, problem.k, problem.v, problem.key_mask, problem.cotangent]
    for array in [*arrays, soft.logits, soft.mask, soft.cotangent, poisoned.k, poisoned.v]:
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


# --- masks


def test_causal_is_aligned_bottom_right() -> None:
    cached = [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert visible(2, 4, causal=True).tolist() == np.array(cached, bool).tolist()
    longer = [[0, 0], [0, 0], [1, 0], [1, 1]]
    assert visible(4, 2, causal=True).tolist() == np.array(longer, bool).tolist()
    assert visible(2, 3, causal=False).all()


def test_a_key_mask_hides_its_keys_from_every_query() -> None:
    key_mask = np.array([[True, True, False], [False, True, True]])
    seen = visible(3, 3, causal=True, key_mask=key_mask)
    assert seen.shape == (2, 1, 3, 3)
    assert seen[0, 0].tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    assert seen[1, 0].tolist() == [[False, False, False], [False, True, False], [False, True, True]]


@settings(max_examples=60)
@given(batch=st.integers(1, 5), kv_len=st.integers(2, 70), seed=st.integers(0, 99))
def test_paddings_are_what_their_names_say(batch: int, kv_len: int, seed: int) -> None:
    def mask(padding: str) -> np.ndarray:
        shape = Shape(batch, 2, 1, 3, kv_len, 2, causal=False, padding=padding)
        key_mask = attention_problem(shape, F32, seed=seed).key_mask
        assert key_mask is not None
        return key_mask

    lengths = mask("tail").sum(axis=1)
    assert (mask("tail") == (np.arange(kv_len) < lengths[:, None])).all()
    assert (lengths >= 1).all()
    assert (lengths < kv_len).all()
    if kv_len - max(1, kv_len // 4) >= batch:
        assert len(set(lengths)) == batch
    assert (mask("random").any(axis=1) & ~mask("random").all(axis=1)).all()
    assert (~mask("empty").any(axis=1)).sum() == 1


def test_random_padding_is_scattered_and_none_is_none() -> None:
    scattered = attention_problem(replace(SHAPE, padding="random"), F32).key_mask
    assert scattered is not None
    assert (np.abs(np.diff(scattered.astype(int), axis=1)).sum(axis=1) > 4).all()
    assert attention_problem(replace(SHAPE, padding="none"), F32).key_mask is None


@pytest.mark.parametrize("padding", ["tail", "head", "hole", "random", "mixed", "empty"])
def test_a_single_key_can_be_padded(padding: str) -> None:
    shape = Shape(2, 1, 1, 2, 1, 4, causal=False, padding=padding)
    key_mask = attention_problem(shape, F32).key_mask
    assert key_mask is not None
    assert sorted(key_mask.ravel()) == ([False, True] if padding == "empty" else [True, True])


# --- refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 0}, r"head_dim=0 .*integer of at least 1"),
        ({"batch": -1}, r"batch=-1 .*integer of at least 1"),
        ({"q_len": 2.0}, r"q_len=2.0 .*integer of at least 1"),
        ({"kv_heads": True}, r"kv_heads=True .*integer of at least 1"),
        ({"q_heads": 6, "kv_heads": 4}, r"q_heads=6 is not a multiple of kv_heads=4.*change"),
        ({"kv_len": 10**9}, r"seq=1000000000 .*at most 1048576.*shorter seq"),
        ({"q_len": 2**20 + 1}, r"q_len=1048577 .*at most 1048576.*shorter q_len"),
        (
            {"padding": "left"},
            r"padding='left' .*choose none, tail, head, hole, random, mixed, empty",
        ),
    ],
)
def test_a_bad_shape_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(SHAPE, **change)


@pytest.mark.parametrize("make", [attention_problem, softmax_problem])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"regime": "pekay"}, r"regime='pekay' .*choose normal, peaky,"),
        ({"seed": -1}, r"seed=-1 .*integer of at least 0"),
        ({"seed": 0.5}, r"seed=0.5 .*integer of at least 0"),
    ],
)
def test_a_bad_regime_or_seed_is_refused(make: Any, arguments: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(SHAPE, BF16, **arguments)


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf")])
def test_a_bad_scale_is_refused(scale: float) -> None:
    with pytest.raises(UserError, match=r"scale=.*finite number above 0"):
        attention_problem(SHAPE, BF16, scale=scale)


def test_a_problem_too_large_for_memory_is_refused_before_it_is_drawn() -> None:
    long = replace(SHAPE, q_len=2**20, kv_len=2**20)
    with pytest.raises(UserError, match=r"q_len=1048576.* GiB .*at most 8 GiB.*smaller seq"):
        softmax_problem(long, BF16)
    with pytest.raises(UserError, match=r"batch=64 .*at most 8 GiB"):
        attention_problem(replace(long, batch=64, head_dim=128), BF16)


@pytest.mark.parametrize("make", [attention_problem, softmax_problem])
@pytest.mark.parametrize(
    "change", [{"padding": "none"}, {"padding": "tail", "kv_len": 1}], ids=["none", "one key"]
)
def test_poison_without_a_hidden_key_is_refused(make: Any, change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"no hidden key.*choose any padding but none"):
        make(replace(SHAPE, **change), BF16, regime="poisoned")

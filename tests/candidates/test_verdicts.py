"""Each control agrees with the oracle; each known-bad differs where its fault class shows.

Whether a grader finds all this out is tested with the grader; here the candidates are what they
claim to be. In float32 an agreement is close (1e-4 of the largest value) and a fault is far off.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab import candidates
from lab import truth as oracle
from lab.candidates import catalogue
from lab.truth.problems import (
    POLICIES,
    AttentionProblem,
    DtypePolicy,
    Shape,
    attention_problem,
    poison,
)

CONFIGS = {name: asdict(entry) for name, entry in catalogue.entries().items()}

BOTH = Shape(2, 6, 2, 40, 40, 24, causal=True, padding="random")
EVERYTHING = Shape(2, 6, 2, 40, 40, 24, causal=True, padding="empty")
FULL = Shape(2, 6, 2, 40, 40, 24, causal=False, padding="none")
PADDED = Shape(2, 6, 2, 40, 40, 24, causal=False, padding="tail")
EMPTY = Shape(2, 6, 2, 40, 40, 24, causal=False, padding="empty")
CACHED = Shape(2, 6, 2, 9, 40, 24, causal=True, padding="none")
LONGER = Shape(2, 6, 2, 40, 9, 24, causal=True, padding="none")
BLOCKS = Shape(1, 2, 1, 150, 150, 24, causal=True, padding="none")
WIDE = Shape(1, 2, 1, 9, 40, 200, causal=False, padding="none")
ONE = Shape(4, 6, 2, 1, 1040, 24, causal=True, padding="mixed")
FOUR = Shape(4, 6, 2, 4, 1040, 24, causal=True, padding="mixed")
SIXTEEN = Shape(2, 6, 2, 16, 40, 24, causal=True, padding="none")
LEFT = Shape(2, 2, 1, 9, 400, 24, causal=False, padding="head")
PREFILL = Shape(1, 2, 1, 20, 1040, 24, causal=True, padding="none")
BROAD = Shape(1, 2, 1, 9, 40, 256, causal=False, padding="none")
POSITIONS = Shape(1, 1, 1, 2, 33000, 8, causal=True, padding="none")

# Where a class shows: shape and regime; anything else shows in (BOTH, normal).
BY_CLASS = {
    "block_bound": (BLOCKS, "normal"),
    "causal_alignment": (CACHED, "normal"),
    "empty_row": (EMPTY, "normal"),
    "finite_sentinel": (PADDED, "below_sentinel"),
    "head_dim": (WIDE, "normal"),
    "index_map": (BLOCKS, "normal"),
    "length_divisibility": (FULL, "normal"),
    "overflow": (FULL, "large_logits"),
    "poison_leak": (BOTH, "poisoned"),
    "position_overflow": (POSITIONS, "normal"),
    "stale_rescale": (FULL, "moving_max"),
    "tail_block": (FULL, "normal"),
}
BY_NAME = {
    "decode-ignores-padding": (ONE, "normal"),
    "decode-key-gradient-unscaled": (ONE, "normal"),
    "decode-tiles-heads": (ONE, "normal"),
    "few-queries-ignore-causal": (FOUR, "normal"),
    "few-queries-ignore-padding": (FOUR, "normal"),
    "four-queries-tile-heads": (FOUR, "normal"),
    "hidden-first-block": (LEFT, "normal"),
    "keys-up-to-queries": (CACHED, "normal"),
    "long-keys-ignore-padding": (FOUR, "normal"),
    "long-prefill-ignores-causal": (PREFILL, "normal"),
    "sixteen-queries-top-left": (SIXTEEN, "normal"),
    "width-of-200": (BROAD, "normal"),
    "window-of-4096": (POSITIONS, "normal"),
    "pallas-fused-unwritten": (LONGER, "normal"),
    "prefix-padding": (BOTH, "normal"),
    "sentinel-5e4": (BOTH, "below_sentinel"),
}
SCALES = {"ignores-custom-scale": 0.7}


@cache
def problem(shape: Shape, regime: str, policy: str, scale: float | None) -> AttentionProblem:
    made = attention_problem(shape, POLICIES[policy], regime=regime, seed=3, scale=scale)
    hides = made.key_mask is not None and not made.key_mask.all()
    return poison(made) if hides else made


@cache
def truth(shape: Shape, regime: str, policy: str, scale: float | None) -> tuple[np.ndarray, ...]:
    it = problem(shape, regime, policy, scale)
    options = {"causal": it.causal, "key_mask": it.key_mask, "scale": it.scale}
    grads = oracle.backward(it.q, it.k, it.v, it.cotangent, **options)
    return oracle.forward(it.q, it.k, it.v, **options).out, grads.dq, grads.dk, grads.dv


def answer(name: str, it: AttentionProblem, *, backward: bool) -> tuple[np.ndarray, ...]:
    """Output and, on request, gradients."""
    attention = candidates.load(CONFIGS[name], policy=it.policy, interpret=True)

    def call(
        q: jax.Array, k: jax.Array, v: jax.Array, key_mask: jax.Array | None, cotangent: jax.Array
    ) -> tuple[jax.Array, ...]:
        function = partial(attention, causal=it.causal, key_mask=key_mask, scale=it.scale)
        if not backward:
            return (function(q, k, v),)
        out, vjp = jax.vjp(function, q, k, v)
        return (out, *vjp(cotangent))

    # Most known-bad ones run op by op: what is compiled once serves them all.
    alone = CONFIGS[name]["kind"] == "control" or CONFIGS[name]["module"].endswith(COMPILED)
    run = jax.jit(call) if alone else call
    key_mask = None if it.key_mask is None else jnp.asarray(it.key_mask)
    results = run(
        *(jnp.asarray(x) for x in (it.q, it.k, it.v)), key_mask, jnp.asarray(it.cotangent)
    )
    assert [x.dtype for x in results] == [it.cotangent.dtype, *[it.q.dtype] * 3][: len(results)]
    return tuple(np.asarray(x, np.float64) for x in results)


def error(got: np.ndarray, true: np.ndarray) -> float:
    """Largest difference over the largest true value; NaN is infinitely wrong."""
    worst = np.max(np.abs(got - true)) / np.max(np.abs(true))
    return float(worst) if np.isfinite(worst) else float("inf")


def errors(name: str, where: tuple[Shape, str], policy: str, *, backward: bool) -> list[float]:
    at = (*where, policy, SCALES.get(name))
    given = answer(name, problem(*at), backward=backward)
    return [error(x, y) for x, y in zip(given, truth(*at), strict=False)]


def names(kind: str) -> list[str]:
    return [name for name, it in CONFIGS.items() if it["kind"] == kind]


def backward_only(name: str) -> bool:
    it = CONFIGS[name]
    own = it["module"].endswith("backwards") or it["caught_by"].startswith("grad_")
    return own or name == "pallas-softmax-empty-row-gradient"


# Loops and Pallas kernels are compiled one by one, which costs more than all the others together.
COMPILED = ("online", "splits", "rowwise", "fused_faults")
FAST = {
    "pallas-fused", "lab-pallas", "online-8", "online-reversed", "split-3", "vmapped", "eager",
    "jax-nn", "plain-bf16", "flash-backward", "naive", "exp2-softmax", "padded-layout",
    "pallas-softmax-no-max", "pallas-softmax-missing-delta", "pallas-fused-first-head",
    "stale-rescale", "tail-dropped", "block-bound", "split-merged-evenly",
}  # fmt: skip


def fast_first(kind: str) -> list[Any]:
    """All of a kind; of those that are compiled alone, only some are run by the fast suite."""
    return [
        pytest.param(name, marks=pytest.mark.slow)
        if name not in FAST and (kind == "control" or CONFIGS[name]["module"].endswith(COMPILED))
        else name
        for name in names(kind)
    ]


def check_hidden_is_exactly_zero(it: AttentionProblem, given: tuple[np.ndarray, ...]) -> None:
    out, dq, dk, dv = given
    blind = np.broadcast_to(~it.visible.any(-1), out.shape[:3])
    hidden = np.broadcast_to(~it.key_mask[:, None], dk.shape[:3])
    assert blind.any()
    assert hidden.any()
    assert not out[blind].any()
    assert not dq[blind].any()
    assert not dk[hidden].any()
    assert not dv[hidden].any()


@pytest.mark.parametrize("name", fast_first("control"))
def test_control_agrees_with_the_oracle(name: str) -> None:
    # Poisoned padding, causality, grouped heads, rows without a key, all at once.
    at = (EVERYTHING, "normal", "f32", None)
    given = answer(name, problem(*at), backward=True)
    assert max(error(x, y) for x, y in zip(given, truth(*at), strict=True)) < 1e-4
    check_hidden_is_exactly_zero(problem(*at), given)


@pytest.mark.slow
@pytest.mark.parametrize("where", [EMPTY, CACHED, LONGER, BLOCKS, WIDE])
@pytest.mark.parametrize("name", names("control"))
def test_control_agrees_on_every_shape(name: str, where: Shape) -> None:
    assert max(errors(name, (where, "normal"), "bf16", backward=True)) < 2e-2


@pytest.mark.parametrize("name", fast_first("known-bad"))
def test_known_bad_is_wrong_where_its_class_shows(name: str) -> None:
    fault = CONFIGS[name]["fault_class"]
    where = BY_NAME.get(name) or BY_CLASS.get(fault, (BOTH, "normal"))
    least = 2e-3 if fault == "gain" else 1e-2
    out, *grads = errors(name, where, "f32", backward=backward_only(name))
    if backward_only(name):
        assert out < 1e-3  # large logits carry large roundings
        assert max(grads) > least
    elif name == "poison-in-query-gradient":
        assert out < 1e-4
    else:
        assert out > least


def test_enough_are_wrong_in_the_backward_alone() -> None:
    assert sum(backward_only(name) for name in names("known-bad")) >= 15


@pytest.mark.parametrize("name", names("low-precision"))
def test_low_precision_is_near_but_not_at_float32(name: str) -> None:
    worst = max(errors(name, (BOTH, "normal"), "f32", backward=True))
    assert 2e-4 < worst < 5e-2


def test_sum_in_bfloat16_saturates() -> None:
    # 600 equal keys: a running bfloat16 sum of ones stops at 256.
    many = Shape(1, 1, 1, 4, 600, 8, causal=False, padding="none")
    assert errors("bf16-denominator", (many, "equal_logits"), "f32", backward=False)[0] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, it in CONFIGS.items() if it.get("module")])
def test_float64_model_is_float64_throughout(name: str) -> None:
    if CONFIGS[name]["module"].endswith("candidates.kernels"):
        pytest.skip("the lab's own kernels serve the lab's policies")
    policy = DtypePolicy("f64", "float64", "float64", "float64", "float64")
    with jax.enable_x64(True):
        attention = candidates.load(CONFIGS[name], policy=policy, interpret=True)
        x = jax.ShapeDtypeStruct((2, 4, 20, 8), jnp.float64)

        def call(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
            return attention(q, k, v, causal=True, key_mask=mask, scale=None)

        mask = jax.ShapeDtypeStruct((2, 20), jnp.bool_)
        program = jax.make_jaxpr(call)(x, x, x, mask)
    assert [a.dtype for a in program.out_avals] == [jnp.float64]
    narrow = [str(e) for e in program.jaxpr.eqns if "f32" in str(e) or "bf16" in str(e)]
    assert name == "jax-nn" or not narrow

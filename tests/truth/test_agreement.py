"""The two routes agree to 1e-12 of the size of the terms that each number sums."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.truth import direct, online
from lab.truth.problems import (
    PADDINGS,
    POLICIES,
    REGIMES,
    AttentionProblem,
    Shape,
    SoftmaxProblem,
    attention_problem,
    softmax_problem,
)

TOLERANCE = 1e-12
TINY = 1e-290  # weights down here are subnormal and have no digits to compare


def units(a: np.ndarray, b: np.ndarray, size: np.ndarray) -> float:
    """Worst difference in units of the tolerance; where the size is 0, both must be exactly 0."""
    assert a.shape == b.shape
    exact = size == 0
    if (a[exact] != 0).any() or (b[exact] != 0).any() or not np.isfinite([a, b]).all():
        return np.inf
    return float((np.abs(a - b) / (TOLERANCE * size + TINY))[~exact].max(initial=0.0))


def term_sizes(problem: AttentionProblem) -> dict[str, np.ndarray]:
    """What each result would be if no terms cancelled: sums of the terms' absolute values.

    Written once more from the definition, whole arrays at a time and heads repeated.
    """
    seen = np.broadcast_to(problem.visible, (len(problem.q), 1, *problem.visible.shape[-2:]))
    group = problem.q.shape[1] // problem.k.shape[1]
    hidden = False if problem.key_mask is None else ~problem.key_mask[:, None, :, None]
    q, k, v, dout = (
        np.asarray(x, np.float64) for x in (problem.q, problem.k, problem.v, problem.cotangent)
    )
    k, v = (np.where(hidden, 0.0, x).repeat(group, axis=1) for x in (k, v))
    scale = problem.scale or q.shape[-1] ** -0.5
    s = np.where(seen, q @ k.swapaxes(-1, -2), -np.inf)
    top = s.max(axis=-1, keepdims=True)
    p = np.exp(scale * (s - np.where(np.isfinite(top), top, 0.0)))
    p /= np.maximum(p.sum(axis=-1, keepdims=True), 1.0)
    q, k, v, dout = (np.abs(x) for x in (q, k, v, dout))
    dp = dout @ v.swapaxes(-1, -2)
    ds = scale * p * (dp + (p * dp).sum(axis=-1, keepdims=True))

    def of_group(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), -1, group, *x.shape[2:]).sum(axis=2)

    return {
        "out": p @ v,
        "dq": ds @ k,
        "dk": of_group(ds.swapaxes(-1, -2) @ q),
        "dv": of_group(p.swapaxes(-1, -2) @ dout),
    }


def attention_disagreement(problem: AttentionProblem, block: int) -> dict[str, float]:
    """Units of tolerance by which the routes differ in out, lse, dq, dk and dv."""
    qkv = problem.q, problem.k, problem.v
    how = {"causal": problem.causal, "key_mask": problem.key_mask, "scale": problem.scale}
    one = direct.forward(*qkv, **how)
    two = online.forward(*qkv, **how, block=block)
    grad_one = direct.backward(*qkv, problem.cotangent, **how)
    grad_two = online.backward(*qkv, problem.cotangent, **how, block=block)
    empty = np.isneginf(one.lse)
    if not (empty == np.isneginf(two.lse)).all():
        return dict.fromkeys(("out", "lse", "dq", "dk", "dv"), np.inf)
    a, b = one.lse[~empty], two.lse[~empty]
    result = {"lse": units(a, b, 1.0 + np.abs(a))}
    for name, size in term_sizes(problem).items():
        left, right = (one, two) if name == "out" else (grad_one, grad_two)
        result[name] = units(getattr(left, name), getattr(right, name), size)
    return result


def softmax_disagreement(problem: SoftmaxProblem, block: int) -> dict[str, float]:
    """The same for the probabilities and the gradient of the logits."""
    args = problem.logits, problem.mask
    p, other = direct.softmax_forward(*args), online.softmax_forward(*args, block=block)
    dp = np.abs(problem.cotangent.astype(np.float64))
    return {
        "p": units(p, other, p),
        "dlogits": units(
            direct.softmax_backward(*args, problem.cotangent),
            online.softmax_backward(*args, problem.cotangent, block=block),
            p * (dp + (p * dp).sum(axis=-1, keepdims=True)),
        ),
    }


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads = draw(st.integers(1, 3))
    return Shape(
        batch=draw(st.integers(1, 3)),
        q_heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(1, 40)),
        kv_len=draw(st.integers(1, 60)),
        head_dim=draw(st.integers(1, 20)),
        causal=draw(st.booleans()),
        padding=draw(st.sampled_from(PADDINGS)),
    )


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(shapes())
    can_poison = shape.padding == "empty" or (shape.padding != "none" and shape.kv_len > 1)
    regimes = [name for name in REGIMES if name != "poisoned" or can_poison]
    return {
        "shape": shape,
        "policy": POLICIES[draw(st.sampled_from(sorted(POLICIES)))],
        "regime": draw(st.sampled_from(regimes)),
        "seed": draw(st.integers(0, 2**32)),
    }


@settings(max_examples=250)
@given(case=cases(), block=st.integers(1, 64), scale=st.none() | st.floats(0.01, 2.0))
def test_attention_routes_agree(case: dict[str, Any], block: int, scale: float | None) -> None:
    problem = attention_problem(**case, scale=scale)
    assert max(attention_disagreement(problem, block).values()) <= 1


@settings(max_examples=150)
@given(case=cases(), block=st.integers(1, 64))
def test_softmax_routes_agree(case: dict[str, Any], block: int) -> None:
    assert max(softmax_disagreement(softmax_problem(**case), block).values()) <= 1


@pytest.mark.parametrize("regime", ["moving_max", "below_sentinel", "poisoned"])
def test_routes_agree_at_kernel_sizes(regime: str) -> None:
    shape = Shape(2, 4, 2, 70, 200, 128, causal=True, padding="tail")
    problem = attention_problem(shape, POLICIES["bf16"], regime=regime)
    assert max(attention_disagreement(problem, online.BLOCK).values()) <= 1


def top_left(q: Any, kv_len: int, kv_heads: int, *, causal: bool) -> Any:
    last = np.arange(q.shape[2]) if causal else np.full(q.shape[2], kv_len)
    return np.tile(last.astype(float), q.shape[1] // kv_heads)


def also_the_next_key(q: Any, kv_len: int, kv_heads: int, *, causal: bool) -> Any:
    return ORIGINAL["_last_key"](q, kv_len, kv_heads, causal=causal) + 1


def tiled_heads(x: Any, kv_heads: int) -> Any:
    """Query head h reads key head h % Hkv."""
    B, Hq, T, D = x.shape
    split = x.reshape(B, Hq // kv_heads, kv_heads, T, D).swapaxes(1, 2)
    return split.reshape(B, kv_heads, -1, D)


def every_key(key_mask: Any, b: int, kv_len: int) -> Any:
    return np.arange(kv_len)


def hidden_keys(key_mask: Any, b: int, kv_len: int) -> Any:
    return np.flatnonzero(~key_mask[b])


def stale_rescale(self: Any, scores: Any, factor: float) -> Any:
    state, rescale, terms = ORIGINAL["meet"](self, scores, factor)
    return state, np.ones_like(rescale), terms


def finite_sentinel(scores: Any, visible: Any, factor: float = 1.0) -> Any:
    hidden = np.where(visible, scores, -1e4)
    return ORIGINAL["_softmax"](hidden, np.ones_like(visible), factor)


def no_softmax_mean(weights: Any, dweights: Any) -> Any:
    return weights * dweights


def no_root(q: Any, scale: float | None) -> float:
    return 1 / q.shape[-1] if scale is None else scale


ORIGINAL: dict[str, Callable[..., Any]] = {
    "_last_key": online._last_key,
    "meet": online._RowState.meet,
    "_softmax": direct._softmax,
}

FAULTS: list[tuple[ModuleType | type, str, Callable[..., Any], set[str]]] = [
    (online, "_last_key", top_left, {"out", "dq", "dk", "dv"}),
    (online, "_last_key", also_the_next_key, {"out", "dq", "dk", "dv"}),
    (online, "_stack", tiled_heads, {"out", "dq", "dk", "dv"}),
    (online, "_kept", every_key, {"out", "dk", "dv"}),
    (online, "_kept", hidden_keys, {"out", "dk", "dv"}),
    (online._RowState, "meet", stale_rescale, {"out"}),
    (direct, "_softmax", finite_sentinel, {"out", "dq", "dk", "dv"}),
    (direct, "_softmax_vjp", no_softmax_mean, {"dq", "dk"}),
    (direct, "_factor", no_root, {"out", "dq", "dk", "dv"}),
]


def planted(
    regime: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Callable[..., Any]
) -> set[str]:
    """The results in which the routes disagree once the fault is in place."""
    shape = Shape(2, 6, 2, 9, 14, 8, causal=True, padding="random")
    problem = attention_problem(shape, POLICIES["f32"], regime=regime)
    assert max(attention_disagreement(problem, 4).values()) <= 1
    monkeypatch.setattr(owner, name, fault)
    return {key for key, value in attention_disagreement(problem, 4).items() if value > 1}


@pytest.mark.parametrize(
    ("owner", "name", "fault", "caught_in"),
    FAULTS,
    ids=[f"{name}={fault.__name__}" for _, name, fault, _ in FAULTS],
)
def test_a_fault_planted_in_one_route_breaks_the_agreement(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    fault: Callable[..., Any],
    caught_in: set[str],
) -> None:
    found = planted("below_sentinel", monkeypatch, owner, name, fault)
    assert found >= caught_in


def test_a_finite_sentinel_shows_only_in_logits_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not planted("normal", monkeypatch, direct, "_softmax", finite_sentinel)

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lab import truth as oracle
from lab.errors import UnsupportedCell
from lab.grading import gate
from lab.truth.problems import POLICIES, AttentionProblem, Shape, attention_problem, poison

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.kernels import Kernel

# `pallas` is the code of `pallas-8row` with larger blocks: fewer of them on shapes this small.
KERNELS = ("xla", "pallas-8row")
SHAPES = {
    # batch, q_heads, kv_heads, q_len, kv_len, head_dim, causal, padding
    "square": Shape(1, 4, 2, 24, 24, 16, causal=True, padding="none"),
    "cached-decode": Shape(2, 6, 2, 5, 37, 8, causal=True, padding="tail"),
    "query-longer": Shape(1, 2, 1, 37, 11, 8, causal=True, padding="none"),
    "odd-width": Shape(1, 4, 4, 17, 201, 32, causal=False, padding="random"),
    "no-mask": Shape(2, 2, 1, 9, 130, 8, causal=False, padding="none"),
    "empty": Shape(3, 2, 2, 12, 20, 8, causal=True, padding="empty"),
    "one-token": Shape(2, 4, 2, 1, 16, 8, causal=True, padding="tail"),
}
BF16_SHAPES = ("cached-decode", "odd-width", "no-mask")


def gradients(kernel: Kernel, problem: AttentionProblem) -> tuple[Any, ...]:
    """Out, dq, dk, dv, as one jitted program."""
    import jax

    @jax.jit
    def run(q: Any, k: Any, v: Any, key_mask: Any, cotangent: Any) -> tuple[Any, ...]:
        def attention(q: Any, k: Any, v: Any) -> Any:
            return kernel.attention(
                q, k, v, causal=problem.causal, key_mask=key_mask, scale=problem.scale
            )

        out, pullback = jax.vjp(attention, q, k, v)
        return (out, *pullback(cotangent))

    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        return run(problem.q, problem.k, problem.v, problem.key_mask, problem.cotangent)


def truth(problem: AttentionProblem) -> tuple[Any, ...]:
    inputs = (problem.q, problem.k, problem.v)
    how: dict[str, Any] = {
        "causal": problem.causal,
        "key_mask": problem.key_mask,
        "scale": problem.scale,
    }
    grads = oracle.backward(*inputs, problem.cotangent, **how)
    return oracle.forward(*inputs, **how).out, grads.dq, grads.dk, grads.dv


@pytest.mark.parametrize(
    ("policy", "shape"),
    [
        *(pytest.param("f32", shape, id=f"f32-{name}") for name, shape in SHAPES.items()),
        *(pytest.param("bf16", SHAPES[name], id=f"bf16-{name}") for name in BF16_SHAPES),
    ],
)
@pytest.mark.parametrize("name", KERNELS)
def test_output_and_gradients_are_the_oracle_s(
    name: str, policy: str, shape: Shape, load: Callable[..., Kernel], assert_close: Any
) -> None:
    problem = attention_problem(shape, POLICIES[policy], seed=3)
    results = gradients(load(name, policy), problem)
    for got, want, like in zip(
        results, truth(problem), (problem.cotangent, problem.q, problem.k, problem.v), strict=True
    ):
        assert got.dtype == like.dtype
        assert_close(got, want, policy)


@pytest.mark.parametrize("regime", ["large_logits", "below_sentinel", "moving_max"])
@pytest.mark.parametrize("name", KERNELS)
def test_extreme_inputs_stay_within_the_rounding_budget(
    name: str, regime: str, load: Callable[..., Kernel]
) -> None:
    # Here true gradients cancel to nearly 0, so an error is to be held against what was summed.
    shape = Shape(1, 2, 1, 16, 40, 32, causal=True, padding="tail")
    problem = attention_problem(shape, POLICIES["bf16"], regime=regime, seed=1)
    results = map(np.asarray, gradients(load(name, "bf16"), problem))
    checked = gate.check(problem, dict(zip(("out", "dq", "dk", "dv"), results, strict=True)))
    assert checked.passed, checked.describe()


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_padded_key_holds_changes_no_bit(name: str, load: Callable[..., Kernel]) -> None:
    shape = Shape(2, 4, 2, 10, 21, 8, causal=True, padding="random")
    clean = attention_problem(shape, POLICIES["bf16"])
    kernel = load(name, "bf16")
    poisoned = gradients(kernel, poison(clean))
    for with_poison, without in zip(poisoned, gradients(kernel, clean), strict=True):
        np.testing.assert_array_equal(with_poison, without)
    hidden = ~clean.key_mask
    for grad in poisoned[2:]:
        assert not np.asarray(grad).swapaxes(1, 2)[hidden].any()


@pytest.mark.parametrize("name", KERNELS)
def test_rows_that_see_nothing_give_zero_and_get_zero(
    name: str, load: Callable[..., Kernel]
) -> None:
    problem = attention_problem(
        Shape(1, 2, 1, 9, 4, 8, causal=True, padding="none"), POLICIES["bf16"]
    )
    out, dq, *_ = map(np.asarray, gradients(load(name, "bf16"), problem))
    assert not out[:, :, :5].any()
    assert not dq[:, :, :5].any()
    assert out[:, :, 5:].all()


@pytest.mark.parametrize("name", KERNELS)
def test_scale_is_applied_once(name: str, load: Callable[..., Kernel], assert_close: Any) -> None:
    shape = Shape(1, 2, 1, 6, 6, 8, causal=True, padding="none")
    problem = replace(attention_problem(shape, POLICIES["f32"]), scale=0.75)
    for got, want in zip(gradients(load(name, "f32"), problem), truth(problem), strict=True):
        assert_close(got, want, "f32")


def test_inputs_of_another_dtype_are_refused_not_converted(load: Callable[..., Kernel]) -> None:
    import jax.numpy as jnp

    x = jnp.ones((1, 1, 4, 4), jnp.float16)
    with pytest.raises(UnsupportedCell, match="q is float16: the dtype policy bf16 takes bfloat16"):
        load("pallas", "bf16").attention(x, x, x, causal=True)


@pytest.mark.parametrize(
    ("q", "k", "mask"),
    [
        ((1, 3, 4, 8), (1, 2, 4, 8), None),
        ((1, 2, 4, 8), (1, 2, 4, 4), None),
        ((2, 2, 4, 8), (1, 2, 4, 8), None),
        ((2, 4, 8), (2, 4, 8), None),
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 5)),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    q: Any, k: Any, mask: Any, load: Callable[..., Kernel]
) -> None:
    import jax.numpy as jnp

    key_mask = None if mask is None else jnp.ones(mask, bool)
    with pytest.raises(ValueError, match=r"\[B, Hq, T, D\]|Bool\[B, S\]"):
        load("xla", "f32").attention(
            jnp.ones(q), jnp.ones(k), jnp.ones(k), causal=True, key_mask=key_mask
        )

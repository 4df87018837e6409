from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import truth as oracle
from lab.errors import UnsupportedCell
from lab.kernels.options import RowBlocks
from lab.truth.problems import POLICIES, Shape, softmax_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.kernels import Kernel

# `pallas` is the code of `pallas-8row` with larger blocks: fewer of them on shapes this small.
KERNELS = ("xla", "pallas-8row")


def both(kernel: Kernel, logits: Any, mask: Any, cotangent: Any) -> tuple[Any, Any]:
    """Probabilities and the gradient of the logits."""
    import jax

    @jax.jit
    def run(logits: Any, mask: Any, cotangent: Any) -> tuple[Any, Any]:
        p, pullback = jax.vjp(lambda x: kernel.masked_softmax(x, mask), logits)
        return p, pullback(cotangent)[0]

    with jax.numpy_dtype_promotion("strict"):
        return run(logits, mask, cotangent)


@pytest.mark.parametrize(
    ("q_len", "kv_len", "padding"),
    [(20, 20, "none"), (7, 150, "random"), (33, 12, "empty"), (1, 128, "tail")],
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", KERNELS)
def test_probabilities_and_gradient_are_the_oracle_s(
    name: str,
    policy: str,
    q_len: int,
    kv_len: int,
    padding: str,
    load: Callable[..., Kernel],
    assert_close: Any,
) -> None:
    shape = Shape(2, 3, 3, q_len, kv_len, 8, causal=True, padding=padding)
    x = softmax_problem(shape, POLICIES[policy], seed=5)
    p, dlogits = both(load(name, policy), x.logits, x.mask, x.cotangent)
    assert p.dtype == np.float32
    assert dlogits.dtype == x.logits.dtype
    assert_close(p, oracle.softmax_forward(x.logits, x.mask), "f32")
    want = oracle.softmax_backward(x.logits, x.mask, x.cotangent)
    assert_close(dlogits, want, policy)
    hidden = ~np.broadcast_to(x.mask, p.shape)
    assert not np.asarray(p)[hidden].any()
    assert not np.asarray(dlogits)[hidden].any()


@pytest.mark.parametrize("regime", ["large_logits", "below_sentinel", "poisoned"])
@pytest.mark.parametrize("name", KERNELS)
def test_extreme_logits(
    name: str, regime: str, load: Callable[..., Kernel], assert_close: Any
) -> None:
    shape = Shape(2, 1, 1, 9, 140, 8, causal=True, padding="tail")
    x = softmax_problem(shape, POLICIES["bf16"], regime=regime)
    p, dlogits = both(load(name, "bf16"), x.logits, x.mask, x.cotangent)
    assert_close(p, oracle.softmax_forward(x.logits, x.mask), "f32")
    assert_close(dlogits, oracle.softmax_backward(x.logits, x.mask, x.cotangent), "bf16")


@pytest.mark.parametrize("name", KERNELS)
def test_a_gradient_planted_on_a_hidden_key_goes_nowhere(
    name: str, load: Callable[..., Kernel]
) -> None:
    logits = np.zeros((1, 1, 2, 3), np.float32)
    mask = np.array([[True, True, False], [False, False, False]])
    cotangent = np.full(logits.shape, np.nan, np.float32)
    cotangent[0, 0, 0, :2] = 1.0, 3.0
    _, dlogits = both(load(name, "f32"), logits, mask, cotangent)
    np.testing.assert_array_equal(dlogits[0, 0], [[-0.5, 0.5, 0], [0, 0, 0]])


PATTERNS = list(itertools.product((1, 2), (1, 3), (1, 10), (1, 150)))


@pytest.mark.parametrize("mask_shape", [*PATTERNS, (3, 1, 150), (10, 150), ()])
def test_every_way_to_broadcast_a_mask(
    mask_shape: tuple[int, ...], load: Callable[..., Kernel], assert_close: Any
) -> None:

    import jax

    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 3, 10, 150), np.float32)
    mask = np.asarray(rng.random(mask_shape) < 0.7)
    p = jax.jit(load("pallas-8row", "f32").masked_softmax)(logits, mask)
    assert_close(p, oracle.softmax_forward(logits, np.broadcast_to(mask, logits.shape)), "f32")


@settings(max_examples=5)
@given(
    q_len=st.integers(1, 40),
    kv_len=st.integers(1, 300),
    rows=st.sampled_from([8, 16, 24, "auto"]),
    seed=st.integers(0, 9),
)
def test_any_block_of_rows_gives_the_same_values(
    q_len: int, kv_len: int, rows: int | str, seed: int
) -> None:
    from lab.kernels import pallas_softmax, xla

    policy = POLICIES["f32"]
    shape = Shape(1, 2, 1, q_len, kv_len, 8, causal=True, padding="random")
    x = softmax_problem(shape, policy, seed=seed)
    tiled = pallas_softmax.build(RowBlocks(block_rows=rows), policy=policy, interpret=True)
    plain = xla.build({}, policy=policy, interpret=False)
    for got, want in zip(
        both(tiled, x.logits, x.mask, x.cotangent),
        both(plain, x.logits, x.mask, x.cotangent),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", [(1, 1, 4, 5), (4, 5, 1), (2, 1, 4, 4), (1, 1, 1, 4, 4)])
def test_masks_that_do_not_broadcast_are_named(
    shape: tuple[int, ...], load: Callable[..., Kernel]
) -> None:
    import jax.numpy as jnp

    with pytest.raises(ValueError, match=r"Bool mask broadcastable .* mask bool \(") as error:
        load("xla", "f32").masked_softmax(jnp.ones((1, 1, 4, 4)), jnp.ones(shape, bool))
    assert str(shape) in str(error.value)


def test_half_precision_logits_are_refused(load: Callable[..., Kernel]) -> None:
    import jax.numpy as jnp

    with pytest.raises(UnsupportedCell, match="logits is float16"):
        load("pallas", "bf16").masked_softmax(
            jnp.ones((1, 1, 4, 4), jnp.float16), jnp.ones((4, 4), bool)
        )

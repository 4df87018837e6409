"""The fused decoding kernel against the oracle, and the choice between the two kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flash_cases import Case

from lab import truth
from lab.errors import UnsupportedCell
from lab.kernels import Kernel
from lab.kernels.flash.decode import decode
from lab.truth.problems import POLICIES, Shape, attention_problem


def compiled(case: Case, *, interpret: Any = True) -> Any:
    import jax
    import jax.numpy as jnp

    mask = case.key_mask()
    return jax.jit(
        lambda q, k, v: decode(
            q,
            k,
            v,
            None if mask is None else jnp.asarray(mask),
            causal=case.causal,
            scale=case.head_dim**-0.5,
            block_k=128,
            interpret=interpret,
            with_lse=True,
        )
    )


def run(case: Case, *, interpret: Any = True) -> Any:
    return compiled(case, interpret=interpret)(*case.arrays())


CASES = {
    "one query": Case((4, 2), 1, 384, True),
    "a diagonal across two blocks": Case((2, 1), 16, 390, True),
    "three queries, padded keys": Case((6, 2), 3, 300, True, "right"),
    "more queries than keys": Case((2, 1), 16, 12, True, "left"),
    "full, with a tail": Case((2, 2), 5, 301, False, "random"),
    "hidden blocks": Case((2, 1), 2, 512, True, "middle"),
    "empty rows": Case((1, 1), 4, 200, True, "first entry hidden"),
    "bf16": Case((4, 1), 3, 300, True, "random", dtype="bfloat16"),
}


@pytest.mark.parametrize("name", CASES)
def test_output_and_log_sum_exp_are_the_oracles(name: str) -> None:
    CASES[name].assert_right(*run(CASES[name]))


def test_hidden_keys_change_no_bit() -> None:
    import jax.numpy as jnp

    case = Case((2, 1), 3, 300, True, "random")
    q, k, v = case.arrays()
    hidden = ~case.key_mask()[:, None, :, None]
    call = compiled(case)
    clean = [np.asarray(x).tobytes() for x in call(q, k, v)]
    for value in (0.0, np.nan, np.inf):
        poisoned = call(q, jnp.where(hidden, value, k), jnp.where(hidden, -value, v))
        assert [np.asarray(x).tobytes() for x in poisoned] == clean


def test_memory_is_read_and_written_in_order_and_in_bounds() -> None:
    from jax.experimental.pallas import tpu as pltpu

    case = Case((4, 2), 3, 300, True, "random", batch=1)
    strict = pltpu.InterpretParams(detect_races=True, out_of_bounds_reads="raise")
    case.assert_right(*run(case, interpret=strict))


@pytest.mark.parametrize(("q_len", "name"), [(16, "flash_decode"), (17, "flash_forward")])
def test_the_number_of_queries_chooses_the_kernel(
    q_len: int, name: str, load: Callable[..., Kernel]
) -> None:
    import jax
    import jax.numpy as jnp

    kernel = load("flash", "bf16", interpret=False)
    q = jax.ShapeDtypeStruct((1, 4, q_len, 64), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((1, 2, 300, 64), jnp.bfloat16)
    mask = jax.ShapeDtypeStruct((1, 300), jnp.bool_)
    call = jax.jit(lambda *x: kernel.attention(*x[:3], causal=True, key_mask=x[3]))
    module = jax.export.export(call, platforms=["tpu"])(q, k, k, mask).mlir_module()
    assert module.count("@tpu_custom_call") == 1
    assert name in module


def test_gradients_of_a_few_queries_are_those_of_the_oracle(
    load: Callable[..., Kernel], assert_close: Callable[..., None]
) -> None:
    import jax

    problem = attention_problem(
        Shape(1, 4, 2, 3, 150, 16, True, "tail"), POLICIES["f32"], regime="normal", seed=3
    )
    kernel = load("flash", "f32")
    _, pullback = jax.vjp(
        lambda q, k, v: kernel.attention(q, k, v, causal=True, key_mask=problem.key_mask),
        problem.q,
        problem.k,
        problem.v,
    )
    want = truth.backward(
        problem.q,
        problem.k,
        problem.v,
        problem.cotangent,
        causal=True,
        key_mask=problem.key_mask,
        scale=problem.scale,
    )
    got = pullback(jax.numpy.asarray(problem.cotangent))
    for ours, right in zip(got, (want.dq, want.dk, want.dv), strict=True):
        assert_close(ours, right, "f32")


def test_what_the_kernel_does_not_do_is_refused(load: Callable[..., Kernel]) -> None:
    import jax.numpy as jnp

    kernel = load("flash", "f32")
    x = jnp.ones((1, 1, 4, 8), jnp.float32)
    with pytest.raises(UnsupportedCell, match="use scope=attention"):
        kernel.masked_softmax(x, x > 0)
    with pytest.raises(UnsupportedCell, match="the dtype policy f32 takes float32"):
        kernel.attention(x.astype(jnp.bfloat16), x, x, causal=True)

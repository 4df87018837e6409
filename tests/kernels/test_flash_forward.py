"""The fused forward kernel against the oracle: every kind of block, mask and shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from flash_cases import Case

from lab.errors import UnsupportedCell
from lab.kernels.flash.blocks import Blocks, default_blocks
from lab.kernels.flash.forward import forward
from lab.kernels.flash.plan import make_plan


def compiled(case: Case, blocks: Blocks | None, *, interpret: Any = True) -> Any:
    import jax
    import jax.numpy as jnp

    mask = case.key_mask()
    return jax.jit(
        lambda q, k, v: forward(
            q,
            k,
            v,
            None if mask is None else jnp.asarray(mask),
            causal=case.causal,
            scale=case.head_dim**-0.5,
            blocks=blocks,
            interpret=interpret,
            with_lse=True,
        )
    )


def run(case: Case, blocks: Blocks | None, *, interpret: Any = True) -> Any:
    return compiled(case, blocks, interpret=interpret)(*case.arrays())


SQUARE, WIDE, TALL = Blocks(128, 128, 2), Blocks(256, 128, 3), Blocks(128, 256, 2)
CASES = {
    "causal, three blocks of both": (Case((1, 1), 384, 384, True), SQUARE),
    "a block of queries spans blocks of keys": (Case((2, 2), 700, 700, True, batch=1), WIDE),
    "a block of keys spans blocks of queries": (Case((2, 1), 500, 700, True, batch=1), TALL),
    "neither block divides the other": (Case((1, 1), 900, 1000, True), Blocks(384, 256, 2)),
    "groups, cached keys off the diagonal's grid": (
        Case((4, 2), 130, 421, True, "random", batch=1),
        SQUARE,
    ),
    "more queries than keys": (Case((3, 1), 300, 140, True, "left"), SQUARE),
    "full, with a tail": (Case((2, 1), 200, 391, False), Blocks(128, 256, 1)),
    "hidden blocks": (Case((1, 1), 129, 513, False, "middle"), SQUARE),
    "empty rows": (Case((1, 1), 140, 150, True, "first entry hidden"), SQUARE),
    "bf16": (Case((2, 1), 150, 300, True, "right", dtype="bfloat16", batch=1), SQUARE),
    "automatic": (Case((2, 2), 1, 3, True), None),
}


@pytest.mark.parametrize("name", CASES)
def test_output_and_log_sum_exp_are_the_oracles(name: str) -> None:
    case, blocks = CASES[name]
    case.assert_right(*run(case, blocks))


def test_the_comparison_sees_a_wrong_diagonal() -> None:
    case, blocks = CASES["causal, three blocks of both"]
    out, lse = run(dataclasses.replace(case, causal=False), blocks)
    with pytest.raises(AssertionError):
        case.assert_right(out, lse)


def test_hidden_keys_change_no_bit() -> None:
    import jax.numpy as jnp

    case = Case((2, 1), 140, 300, True, "random", batch=1)
    q, k, v = case.arrays()
    hidden = ~case.key_mask()[:, None, :, None]
    call = compiled(case, SQUARE)
    clean = [np.asarray(x).tobytes() for x in call(q, k, v)]
    for value in (0.0, np.nan, np.inf):
        poisoned = call(q, jnp.where(hidden, value, k), jnp.where(hidden, -value, v))
        assert [np.asarray(x).tobytes() for x in poisoned] == clean


def test_memory_is_read_and_written_in_order_and_in_bounds() -> None:
    from jax.experimental.pallas import tpu as pltpu

    case = Case((2, 1), 260, 300, True, "random", batch=1)
    strict = pltpu.InterpretParams(detect_races=True, out_of_bounds_reads="raise")
    case.assert_right(*run(case, SQUARE, interpret=strict))


def test_nothing_is_padded_where_lengths_fit_the_blocks() -> None:
    import jax
    import jax.numpy as jnp

    x = jax.ShapeDtypeStruct((1, 4, 256, 128), jnp.bfloat16)
    y = jax.ShapeDtypeStruct((1, 2, 256, 128), jnp.bfloat16)

    def call(q: Any, k: Any, v: Any) -> Any:
        return forward(q, k, v, causal=True, scale=1.0)[0]

    jaxpr = jax.make_jaxpr(call)(x, y, y)
    names = {equation.primitive.name for equation in jaxpr.eqns}
    assert "pad" not in names
    assert "pallas_call" in names


def test_keys_beyond_the_budget_come_in_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.kernels.flash.plan.KEY_BYTES", 1)
    causal = Case((2, 1), 300, 640, True, "random", batch=1)
    for case in (causal, dataclasses.replace(causal, causal=False)):
        q_shape, k_shape = (1, 2, 300, 16), (1, 1, 640, 16)
        assert make_plan(q_shape, k_shape, TALL, causal=case.causal, masked=True).spans > 2
        case.assert_right(*run(case, TALL))


def test_a_million_keys_have_a_plan() -> None:
    shape = (1, 1, 1 << 20, 128)
    plan = make_plan(shape, shape, default_blocks(1 << 20, 1 << 20, 1, causal=True), causal=True)
    assert plan.spans == 37
    assert plan.vmem_limit_bytes() < 60 << 20


def test_blocks_beyond_vmem_are_refused_with_the_sizes() -> None:
    shape = (1, 8, 8192, 256)
    plan = make_plan(shape, shape, Blocks(8192, 8192), causal=True)
    with pytest.raises(UnsupportedCell, match=r"block_q 8192 x 1 .*MiB.*allowed are 60 MiB; give"):
        plan.vmem_limit_bytes()


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_not_above_zero_is_refused(scale: float) -> None:
    q, k, v = Case((1, 1), 8, 8, True).arrays()
    with pytest.raises(ValueError, match="must be above 0"):
        forward(q, k, v, causal=True, scale=scale)


@pytest.mark.parametrize(("heads", "block_k"), [((4, 1), 128), ((1, 1), 128), ((2, 1), 256)])
def test_scores_come_no_earlier_than_their_place_is_free(
    heads: tuple[int, int], block_k: int
) -> None:
    """Near the diagonal's end few tiles are left, and a tile's next job comes soon."""
    case = Case(heads, 512, 512, True, batch=1)
    case.assert_right(*run(case, Blocks(512, block_k, 12)))

"""The fused forward kernel against the oracle: every kind of block, mask and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flash_cases import Case

from lab.errors import UnsupportedCell
from lab.kernels.flash.forward import forward
from lab.kernels.flash.blocks import Blocks, default_blocks
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


SQUARE, WIDE = Blocks(128, 128, 2), Blocks(256, 128, 3)
CASES = {
    "causal, three blocks of both": (Case((1, 1), 384, 384, True), SQUARE),
    "a block of queries spans blocks of keys": (Case((2, 2), 700, 700, True, batch=1), WIDE),
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
    import dataclasses

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


def test_blocks_that_miss_the_diagonal_are_refused() -> None:
    with pytest.raises(UnsupportedCell, match=r"block_q 128, block_k 256.*multiple of block_k"):
        make_plan((1, 1, 256, 64), (1, 1, 256, 64), Blocks(128, 256), causal=True)


def test_keys_beyond_vmem_are_refused() -> None:
    blocks = default_blocks(1 << 20, 1 << 20, 1, causal=True)
    plan = make_plan((1, 1, 1 << 20, 128), (1, 1, 1 << 20, 128), blocks, causal=True)
    with pytest.raises(UnsupportedCell, match=r"S 1048576 x D 128: .* MiB; allowed are 112 MiB"):
        plan.vmem_limit_bytes(2, masked=False)


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

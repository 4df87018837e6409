"""How the Pallas kernels are laid out: blocks, the mask's reads, conversions, interpret mode."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lab.errors import UnsupportedCell
from lab.truth.problems import POLICIES, Shape, softmax_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.kernels import Kernel


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation, those of inner jaxprs too, but not those inside a Pallas kernel."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name == "pallas_call":
            continue
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if hasattr(open_jaxpr := getattr(inner, "jaxpr", inner), "eqns"):
                    yield from equations(open_jaxpr)


def test_auto_rows_fill_the_budget_evenly_in_whole_tiles() -> None:
    from lab.kernels.row_blocks import MAX_BLOCK_ROWS, VMEM_BUDGET_BYTES, auto_block

    sizes = [(2048, 2048, 20), (2048, 2048, 28), (1000, 4096, 32)]
    for (q_len, kv_len, element_bytes), tile in itertools.product(sizes, (8, 16)):
        heads, rows = auto_block(8, q_len, kv_len, element_bytes, tile)
        blocks = -(-q_len // rows)
        assert heads == 1
        assert rows % tile == 0
        assert rows * kv_len * element_bytes <= VMEM_BUDGET_BYTES
        assert blocks * rows - q_len < tile * blocks
    assert auto_block(8, 5, 128, 20) == (8, 8)
    assert auto_block(8, 4096, 128, 20) == (1, MAX_BLOCK_ROWS)
    assert auto_block(8, 2048, 40_000, 20) == (1, 8)
    assert auto_block(8, 2048, 40_000, 20, 16) == (1, 8)  # better split tiles than no kernel


def test_short_heads_share_a_block_and_divide_the_heads() -> None:
    from lab.kernels.row_blocks import MAX_BLOCK_ROWS, auto_block

    assert auto_block(8, 128, 128, 20, 16) == (4, 128)
    assert auto_block(6, 128, 128, 20, 16) == (3, 128)
    assert auto_block(7, 128, 128, 20, 16) == (1, 128)
    assert auto_block(8, MAX_BLOCK_ROWS, 512, 20, 16) == (1, MAX_BLOCK_ROWS)


def test_rows_too_long_for_vmem_are_refused_with_the_size() -> None:
    from lab.kernels.row_blocks import auto_block

    with pytest.raises(UnsupportedCell, match=r"8 rows of 131072 keys take 20\.0 MiB of VMEM"):
        auto_block(8, 2048, 131072, 20)


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_go_straight_into_the_kernel_with_one_mask_for_all_heads(
    policy: str, load: Callable[..., Kernel]
) -> None:
    import jax
    import jax.numpy as jnp

    kernel = load("pallas", policy, interpret=False)
    logits = jax.ShapeDtypeStruct((2, 3, 64, 200), jnp.dtype(POLICIES[policy].input))
    mask = jax.ShapeDtypeStruct((64, 200), jnp.bool_)

    def backward(x: Any, mask: Any, ct: Any) -> Any:
        return jax.vjp(lambda x: kernel.masked_softmax(x, mask), x)[1](ct)

    cotangent = jax.ShapeDtypeStruct(logits.shape, jnp.float32)
    for function, inputs in (
        (kernel.masked_softmax, (logits, mask)),
        (backward, (logits, mask, cotangent)),
    ):
        found = list(equations(jax.make_jaxpr(function)(*inputs).jaxpr))
        calls = [e for e in found if e.primitive.name == "pallas_call"]
        assert calls
        for call in calls:
            assert [v.aval.shape for v in call.invars[:2]] == [(1, 1, 64, 200), logits.shape]
            assert call.invars[1].aval.dtype == logits.dtype
        names = {e.primitive.name for e in found}
        assert not names & {"convert_element_type", "broadcast_in_dim", "select_n", "pad"}


def test_the_shared_mask_block_stays_while_the_heads_pass(load: Callable[..., Kernel]) -> None:
    import jax
    import jax.numpy as jnp

    kernel = load("pallas-8row", "bf16", interpret=False)
    traced = jax.make_jaxpr(kernel.masked_softmax)(
        jax.ShapeDtypeStruct((2, 3, 64, 128), jnp.bfloat16),
        jax.ShapeDtypeStruct((2, 1, 64, 128), jnp.bool_),
    )
    (call,) = (e for e in equations(traced.jaxpr) if e.primitive.name == "pallas_call")
    grid_mapping = call.params["grid_mapping"]
    assert grid_mapping.grid == (2, 8, 3)
    mask_index = grid_mapping.block_mappings[0].index_map_jaxpr
    blocks = [
        [int(x) for x in jax.core.eval_jaxpr(mask_index.jaxpr, mask_index.consts, b, i, h)]
        for b, i, h in np.ndindex(2, 8, 3)
    ]
    assert blocks == [[b, 0, i, 0] for b, i, _ in np.ndindex(2, 8, 3)]


def test_attention_hands_the_products_their_dtype_without_a_pass_between(
    load: Callable[..., Kernel],
) -> None:
    import jax
    import jax.numpy as jnp

    kernel = load("pallas", "bf16", interpret=False)
    q = jax.ShapeDtypeStruct((1, 4, 64, 16), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((1, 2, 64, 16), jnp.bfloat16)

    def backward(q: Any, k: Any, v: Any) -> Any:
        return jax.vjp(lambda *x: kernel.attention(*x, causal=True), q, k, v)[1](q)

    found = list(equations(jax.make_jaxpr(backward)(q, k, k).jaxpr))
    calls = [e for e in found if e.primitive.name == "pallas_call"]
    assert [v.aval.dtype for call in calls for v in call.outvars] == [jnp.bfloat16] * 2
    for call in calls:
        assert [v.aval.dtype for v in call.invars[1:]] == [jnp.float32] * (len(call.invars) - 1)
    converted = [e.invars[0].aval for e in found if e.primitive.name == "convert_element_type"]
    assert all(x.size < 4 * 64 * 64 for x in converted)


def test_interpreting_in_pieces_changes_no_bit(
    load: Callable[..., Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    from lab.kernels import row_blocks

    # A length that is no multiple of a piece, and a mask split by batch and rows but not by heads.
    x = softmax_problem(Shape(2, 2, 1, 70, 130, 8, True, "random"), POLICIES["f32"])
    results = []
    for limit in (1 << 18, 0):
        monkeypatch.setattr(row_blocks, "INTERPRET_WHOLE_ELEMENTS", limit)
        kernel = load("pallas-8row", "f32")
        function = jax.jit(lambda *x, kernel=kernel: kernel.masked_softmax(*x))
        scans = str(jax.make_jaxpr(function)(x.logits, x.mask)).count(" scan[")
        results.append((function(x.logits, x.mask), scans))
    (whole, no_scan), (pieces, scans) = results
    assert (no_scan, scans) == (0, 3)
    np.testing.assert_array_equal(whole, pieces)


def test_tpu_interpret_mode_finds_nothing_uninitialised_or_out_of_bounds(
    load: Callable[..., Kernel], assert_close: Any
) -> None:
    from jax.experimental.pallas import tpu as pltpu

    from lab import truth as oracle

    x = softmax_problem(Shape(1, 2, 1, 20, 150, 8, True, "tail"), POLICIES["f32"])
    kernel = load("pallas-8row", "f32", interpret=pltpu.InterpretParams(detect_races=True))
    p = kernel.masked_softmax(x.logits, x.mask)
    assert_close(p, oracle.softmax_forward(x.logits, x.mask), "f32")

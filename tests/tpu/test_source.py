"""Where a compiler's error points to, by each of the three ways in which it may say so."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from lab.tpu.compile import source
from lab.worker import PACKAGE_ROOT


def kernel(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.take(x_ref[...], jnp.arange(8), axis=0)


def program(x: jax.Array) -> jax.Array:
    return pl.pallas_call(kernel, x)(x)


def test_the_innermost_call_site_of_the_message_which_is_no_library_s() -> None:
    sites = (
        '"_take"("site-packages/jax/_src/numpy/indexing.py":7:8 to :9) at '
        '"outer.<locals>.body"("/somewhere/mine.py":42:19 to :46) at "outer"("/somewhere/mine.py":9'
    )
    error = RuntimeError(f'at location: loc("get:"("get/get"(callsite({sites})))')
    assert source.of(error, None) == "mine.py:42, in body"


def test_a_kernel_of_the_lab_is_named_by_its_path_and_shows_the_line() -> None:
    file = "lab/kernels/pieces.py"
    first = (PACKAGE_ROOT / file).read_text().splitlines()[0]
    error = RuntimeError(f'loc("x:"(callsite("f"("{file}":1:0 to :3)')
    assert source.of(error, None) == f"{file}:1, in f: {first[: source.SHOWN]}".rstrip()


def test_the_innermost_frame_that_is_no_library_s() -> None:
    with pytest.raises(TypeError) as caught:
        jnp.sin("text")  # here
    assert source.of(caught.value, None) == (
        f"{Path(__file__).name}:{caught.tb.tb_lineno}, in "
        'test_the_innermost_frame_that_is_no_library_s: jnp.sin("text")  # here'
    )


def test_an_operation_that_is_only_named_is_looked_for_in_the_traced_kernel() -> None:
    traced = jax.jit(program).trace(jax.ShapeDtypeStruct((8, 128), jnp.float32))
    error = NotImplementedError("Only take_along_axis-like gathers supported")
    found = source.of(error, traced.jaxpr.jaxpr)
    assert found is not None
    assert found.endswith("in kernel: o_ref[...] = jnp.take(x_ref[...], jnp.arange(8), axis=0)")


def test_no_place_is_better_than_a_wrong_one() -> None:
    traced = jax.jit(program).trace(jax.ShapeDtypeStruct((8, 128), jnp.float32))
    assert source.of(RuntimeError("out of memory"), traced.jaxpr.jaxpr) is None
    sort = RuntimeError("Unimplemented primitive in Pallas TPU lowering for tc: sort.")
    assert source.of(sort, traced.jaxpr.jaxpr) is None

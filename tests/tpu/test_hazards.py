"""Kernels that the plain interpreter forgives and a TPU does not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.tpu.proof.interpret import CannotInterpret, evaluate

X = np.arange(2 * 8 * 128, dtype=np.float32).reshape(16, 128)
BLOCK = pl.BlockSpec((8, 128), lambda i: (i, 0))
SCRATCH = (pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA)


def doubled(wait: str) -> Any:
    """Twice the input, by a kernel that waits `before` or `after` it reads its copy, or never."""

    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        rows = pl.ds(pl.program_id(0) * 8, 8)
        copy = pltpu.make_async_copy(x_ref.at[rows], buffer, semaphore)
        copy.start()
        if wait == "before":
            copy.wait()
        o_ref[...] = buffer[...] * 2
        if wait == "after":
            copy.wait()

    return lambda x: pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=BLOCK,
        scratch_shapes=SCRATCH,
    )(x)


def values(function: Any, x: np.ndarray[Any, Any] = X) -> np.ndarray[Any, Any]:
    return np.asarray(evaluate(jax.make_jaxpr(function)(x), [x])[0])


def test_a_buffer_read_after_the_wait_for_its_copy_is_right() -> None:
    np.testing.assert_array_equal(values(doubled("before")), 2 * X)


@pytest.mark.parametrize("wait", ["after", "never"])
def test_a_buffer_read_before_the_wait_holds_nothing_yet(wait: str) -> None:
    assert np.isnan(values(doubled(wait))).any()


def summed(axes: tuple[int, int]) -> Any:
    """The sum over four steps, added up in the output; the grid's axes in the order given."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(axes.index(1)) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    def index(*steps: Any) -> tuple[Any, int]:
        return steps[axes.index(0)], 0

    return lambda x: pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=tuple((2, 4)[axis] for axis in axes),
        in_specs=[pl.BlockSpec((8, 128), index)],
        out_specs=pl.BlockSpec((8, 128), index),
    )(x)


def test_an_output_block_may_be_added_to_in_consecutive_steps() -> None:
    np.testing.assert_array_equal(values(summed((0, 1))), 4 * X)


def test_an_output_block_that_was_left_is_not_there_to_come_back_to() -> None:
    with pytest.raises(CannotInterpret, match="leaves a block of its output 0 and comes back"):
        values(summed((1, 0)))


@pytest.mark.parametrize("order", [[0, 0, 1, 1], [0, 1, 0, 1]])
def test_it_is_found_where_scalars_choose_the_block(order: list[int]) -> None:
    def kernel(_: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    def index(step: Any, order_ref: Any) -> tuple[Any, int]:
        return order_ref[step], 0

    def function(x: jax.Array) -> Any:
        block = pl.BlockSpec((8, 128), index)
        grid = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(4,), in_specs=[block], out_specs=block
        )
        call = pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype), grid_spec=grid)
        return call(jnp.array(order), x)

    if order == [0, 0, 1, 1]:
        np.testing.assert_array_equal(values(function), 2 * X)
    else:
        with pytest.raises(CannotInterpret, match="leaves a block of its output and comes back"):
            values(function)


def test_a_scratch_buffer_does_not_begin_as_zero() -> None:
    def kernel(x_ref: Any, o_ref: Any, sum_ref: Any) -> None:
        sum_ref[...] += x_ref[...]
        o_ref[...] = sum_ref[...]

    def function(x: jax.Array) -> Any:
        return pl.pallas_call(
            kernel,
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(2,),
            in_specs=[BLOCK],
            out_specs=BLOCK,
            scratch_shapes=SCRATCH[:1],
        )(x)

    assert np.isnan(values(function)).any()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("precision", "error"), [(None, 1e-3), ("high", 1e-6), ("highest", 0)])
def test_a_product_of_float32_is_as_precise_as_it_asks_to_be(
    inside: bool, precision: str | None, error: float
) -> None:
    x = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)

    def product(x: jax.Array) -> jax.Array:
        return lax.dot(x, x, precision=precision)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = product(x_ref[...])

    def function(x: jax.Array) -> Any:
        return pl.pallas_call(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    found = values(function if inside else product, x).astype(np.float64)
    exact = np.asarray(jnp.dot(x, x, precision="highest"), np.float64)
    off = np.abs(found - exact).max() / np.abs(exact).max()
    assert (off == 0) if error == 0 else (error < off < 100 * error)


def test_what_runs_on_the_host_proves_nothing() -> None:
    from jax.experimental.compute_on import compute_on

    def function(x: jax.Array) -> Any:
        return compute_on("device_host")(jax.jit(lambda x: x * 2))(x)

    with pytest.raises(CannotInterpret, match="runs on the host"):
        values(function)

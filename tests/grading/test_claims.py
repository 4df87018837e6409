"""The walk over a jaxpr: what is inside a kernel, what is outside, what is only decoration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental import pallas as pl

from lab.grading.sandbox.inside import claims

SHAPE = jax.ShapeDtypeStruct((1, 2, 16, 8), jnp.bfloat16)
PRODUCTS = 1 * 2 * 16 * 16 * 8


def program(function: Callable[..., Any], *, lab: str = "") -> claims.Program:
    return claims.walk(jax.jit(function).trace(SHAPE, SHAPE, SHAPE).jaxpr, lab=lab)


def problem(function: Callable[..., Any]) -> str | None:
    return claims.pallas_problem(program(function), products=PRODUCTS)


def _kernel(q_ref: Any, k_ref: Any, v_ref: Any, out_ref: Any) -> None:
    logits = jnp.dot(q_ref[0, 0], k_ref[0, 0].T, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(logits)
    out_ref[0, 0] = jnp.dot(weights, v_ref[0, 0].astype(jnp.float32)).astype(out_ref.dtype)


def kernel(q: Any, k: Any, v: Any) -> Any:
    block = pl.BlockSpec((1, 1, 16, 8), lambda b, h: (b, h, 0, 0))
    return pl.pallas_call(
        _kernel, q, grid=(1, 2), in_specs=[block] * 3, out_specs=block, name="mine"
    )(q, k, v)


def plain(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bhtd,bhsd->bhts", q, k).astype(jnp.float32))
    return jnp.einsum("bhts,bhsd->bhtd", weights.astype(v.dtype), v)


def test_dots_inside_a_kernel_are_listed_with_their_dtypes() -> None:
    found = program(kernel)
    assert found.kernels == {"mine": 1}
    assert set(found.dots) == {
        claims.Dot("mine", ("bfloat16", "bfloat16"), "float32", 1),
        claims.Dot("mine", ("float32", "float32"), "float32", 1),
    }
    assert problem(kernel) is None


def test_kernels_are_found_behind_jit_vmap_loops_and_custom_gradients() -> None:
    @jax.custom_vjp
    def with_rule(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v)

    with_rule.defvjp(lambda q, k, v: (kernel(q, k, v), None), lambda _, g: (g, g, g))

    def looped(q: Any, k: Any, v: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, x: kernel(x, k, v), q)

    def mapped(q: Any, k: Any, v: Any) -> Any:
        return jax.vmap(lambda *x: kernel(*(y[None] for y in x))[0])(q, k, v)

    for function in (jax.jit(kernel), with_rule, looped, mapped, jax.checkpoint(kernel)):
        assert problem(function) is None


def test_gradients_through_a_rule_show_the_backward_kernels() -> None:
    @jax.custom_vjp
    def with_rule(q: Any, k: Any, v: Any) -> Any:
        return plain(q, k, v)

    with_rule.defvjp(lambda q, k, v: (kernel(q, k, v), v), lambda v, g: (kernel(g, g, v), g, g))

    def both(q: Any, k: Any, v: Any) -> Any:
        out, pullback = jax.vjp(with_rule, q, k, v)
        return (out, *pullback(out))

    assert program(both).kernels == {"mine": 2}
    assert all(dot.inside == "mine" for dot in program(both).dots)


def test_a_plain_program_is_no_kernel() -> None:
    assert problem(plain) == "claims pallas, but no pallas_call contributes to its result"


def test_a_kernel_that_decorates_is_not_counted() -> None:
    def unused(q: Any, k: Any, v: Any) -> Any:
        kernel(q, k, v)
        return plain(q, k, v)

    def unused_inside_jit(q: Any, k: Any, v: Any) -> Any:
        return jax.jit(lambda q, k, v: (kernel(q, k, v), plain(q, k, v)))(q, k, v)[1]

    for function in (unused, unused_inside_jit):
        assert program(function).kernels == {}
        assert "no pallas_call contributes" in (problem(function) or "")


def test_dots_beside_a_kernel_are_named() -> None:
    def beside(q: Any, k: Any, v: Any) -> Any:
        return kernel(q, k, v) + plain(q, k, v)

    message = problem(beside) or ""
    assert message.startswith("claims pallas, but has dots outside of pallas_call: ")
    assert "bfloat16 x bfloat16 -> bfloat16" in message


def test_dots_spelled_as_multiply_and_sum_are_seen_by_their_size() -> None:
    def spelled(q: Any, k: Any, v: Any) -> Any:
        logits = (q[:, :, :, None] * k[:, :, None]).sum(-1)
        return kernel(q, k, v) + jnp.einsum("bhtt->bht", logits)[..., None]

    assert "computes with arrays the size of attention's products" in (problem(spelled) or "")


def test_a_kernel_without_a_dot_is_no_attention() -> None:
    def copy(q: Any, k: Any, v: Any) -> Any:
        def body(ref: Any, out: Any) -> None:
            out[...] = ref[...]

        return pl.pallas_call(body, q)(q + k + v)

    assert problem(copy) == "claims pallas, but there is no dot inside its pallas_call"


@pytest.mark.parametrize("name", ["pure_callback", "io_callback", "debug_callback"])
def test_calls_to_the_host_are_found_inside_nested_programs(name: str) -> None:
    def on_host(q: Any) -> Any:
        return {
            "pure_callback": lambda: jax.pure_callback(np.asarray, SHAPE, q),
            "io_callback": lambda: io_callback(np.asarray, SHAPE, q),
            "debug_callback": lambda: jax.debug.callback(print, q) or q,
        }[name]()

    def nested(q: Any, k: Any, v: Any) -> Any:
        return jax.lax.cond(q[0, 0, 0, 0] > 0, on_host, lambda q: q, q) + k + v

    assert program(nested).host_calls == (name,)
    assert program(kernel).host_calls == ()


def test_native_calls_are_found() -> None:
    def native(q: Any, k: Any, v: Any) -> Any:
        return jax.ffi.ffi_call("anything", SHAPE)(q, k, v)

    assert program(native).native_calls == ("ffi_call",)


def test_the_lab_files_that_contributed_are_named() -> None:
    from lab.kernels.xla import __file__ as xla_file

    source = "def borrowed(q, k, v):\n    return q + k + v\n"
    scope = {}
    exec(compile(source, xla_file, "exec"), scope)
    lab = str(claims.Path(xla_file).parents[1])
    assert program(scope["borrowed"], lab=lab).lab_files == ("lab/kernels/xla.py",)
    assert program(plain, lab=lab).lab_files == ()


def test_constants_are_weighed() -> None:
    table = np.zeros((1 << 16, 4), np.float32)

    def tabled(q: Any, k: Any, v: Any) -> Any:
        return q + jnp.asarray(table)[:8, 0].astype(q.dtype)

    assert program(tabled).constant_bytes >= table.nbytes
    assert program(plain).constant_bytes < 1024


def test_a_result_that_reads_no_input_is_noticed() -> None:
    def blind(q: Any, k: Any, v: Any) -> Any:
        return jnp.zeros(q.shape, q.dtype)

    def blind_at_heart(q: Any, k: Any, v: Any) -> Any:
        return jax.jit(lambda q: (jnp.ones_like(q), q))(q)[0]

    assert not program(blind).reads_inputs
    assert not program(blind_at_heart).reads_inputs
    assert program(plain).reads_inputs


def test_fingerprints_tell_programs_apart_and_not_traces() -> None:
    def trace(function: Callable[..., Any]) -> Any:
        return jax.jit(functools.partial(function)).trace(SHAPE, SHAPE, SHAPE).jaxpr

    def scaled(q: Any, k: Any, v: Any) -> Any:
        return plain(q * 2, k, v)

    def scaled_more(q: Any, k: Any, v: Any) -> Any:
        return plain(q * 3, k, v)

    prints = [claims.fingerprint(trace(f)) for f in (plain, plain, kernel, scaled, scaled_more)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4

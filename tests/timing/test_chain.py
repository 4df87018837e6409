"""Chained calls: the same values, nothing hoisted, and a proof that fails when something is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab.timing import chain, chain_hlo


def matmul(a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
    return (a @ b,)


def softmax_and_sum(x: jax.Array, mask: jax.Array) -> tuple[jax.Array, ...]:
    p = jax.nn.softmax(jnp.where(mask, x, -1e9), axis=-1)
    return p, p.sum(axis=0)


def inputs_of(program: object) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((64, 64)), jnp.float32)
    return (x, x) if program is matmul else (x, jnp.asarray(rng.random((64, 64)) < 0.7))


def single_hlo(program: object, inputs: tuple[jax.Array, ...]) -> str:
    text = jax.jit(program).lower(*inputs).compile().as_text()  # type: ignore[arg-type]
    assert text is not None
    return text


@pytest.mark.parametrize("program", [matmul, softmax_and_sum])
@pytest.mark.parametrize("calls", [1, 5])
def test_a_chain_of_calls_gives_what_one_call_gives(program: object, calls: int) -> None:
    inputs = inputs_of(program)
    made = chain.compile_chain(program, inputs, single_hlo(program, inputs), floor_ms=0.01)  # type: ignore[arg-type]
    results, _ = made.run(calls)
    wanted = jax.jit(program)(*inputs)  # type: ignore[arg-type]
    for have, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)
    assert made.calls >= chain.LEAST_CALLS


def test_a_limit_that_is_exceeded_changes_the_inputs() -> None:
    a = jnp.ones((2, 2))
    (changed,) = chain.depending((a,), (jnp.full((3,), 2.0),), jnp.asarray(1.0))
    (flipped,) = chain.depending((a > 0,), (jnp.full((3,), 2.0),), jnp.asarray(1.0))
    (kept,) = chain.depending((a,), (jnp.full((3,), 2.0),), jnp.asarray(jnp.inf))
    assert changed.tolist() == [[2, 1], [1, 1]]
    assert flipped.tolist() == [[False, True], [True, True]]
    assert kept.tolist() == a.tolist()


@pytest.mark.parametrize("program", [matmul, softmax_and_sum])
def test_without_the_dependency_the_compiler_hoists_and_the_proof_fails(
    program: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = inputs_of(program)
    alone = single_hlo(program, inputs)
    monkeypatch.setattr(chain, "depending", lambda given, *_: given)
    with pytest.raises(chain.NotChained, match="out of the loop"):
        chain.compile_chain(program, inputs, alone, floor_ms=0.01)  # type: ignore[arg-type]


def test_a_program_that_does_more_than_the_chain_fails_the_proof() -> None:
    inputs = inputs_of(matmul)
    made = jax.jit(chain.chained(matmul)).lower(jnp.int32(1), jnp.float32(1), *inputs)
    text = made.compile().as_text() or ""
    twice = single_hlo(lambda a, b: (a @ b @ b,), inputs)
    assert chain_hlo.problem(text, single_hlo(matmul, inputs)) is None
    assert chain_hlo.problem(text, twice) == "the loop holds 1 dot, the program alone 2"
    assert "cannot be read" in (chain_hlo.problem("no module", twice) or "")
    assert "0 loops" in (chain_hlo.problem(single_hlo(lambda a, b: (a - b,), inputs), twice) or "")

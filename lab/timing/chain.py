"""Many calls of a program in one dispatch, each fed by the last: device time without the host.

    chained(calls, limit, *inputs) -> results of the last call

Between two calls, one element of each input is chosen anew, by whether an element of the results
exceeded a limit that only the caller knows. Given infinity it never does, so every call sees the
same values; the compiler cannot know that, so it can neither hoist a call out of the loop nor drop
one. All results are carried through the loop, so each call computes all of each.

The time of n calls less that of none, both of the one compiled program, over n: the dispatch and
the copies around the loop cancel. What stays is the choosing, a few scalar operations a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lab.timing import chain_hlo
from lab.timing.clock import synchronised

LEAST_CALLS, MOST_CALLS = 4, 10_000
DISPATCHES = 50
"""A chain is to last as long as this many dispatches, that their noise matters little."""
EMPTIES = 10
"""And as long as this many dispatches of no call, whose noise is subtracted with them."""
LEAST_MS = 20.0

Program = Callable[..., tuple[jax.Array, ...]]


class NotChained(Exception):  # noqa: N818 - says what the compiled program is not
    """The compiled loop does not hold the whole program; the message says what is missing."""


def chained(program: Program) -> Program:
    """The loop over `program`; see the module's text."""

    def run(calls: jax.Array, limit: jax.Array, *inputs: jax.Array) -> tuple[jax.Array, ...]:
        shapes = jax.eval_shape(program, *inputs)
        none_yet = tuple(jnp.zeros(s.shape, s.dtype) for s in shapes)

        def body(_: jax.Array, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            given, results = carried
            given = depending(given, results, limit)
            return given, tuple(program(*given))

        return jax.lax.fori_loop(0, calls, body, (tuple(inputs), none_yet))[1]

    return run


def depending(
    inputs: Sequence[jax.Array], results: Sequence[jax.Array], limit: jax.Array
) -> tuple[jax.Array, ...]:
    """The inputs, their first elements changed where a result's first element exceeds the limit."""
    firsts = jnp.stack([_first(x).astype(jnp.float32) for x in results])
    exceeded = jnp.any(firsts > limit)
    return tuple(_choose(x, exceeded) for x in inputs)


def _first(x: jax.Array) -> jax.Array:
    return x[(0,) * x.ndim]


def _choose(x: jax.Array, exceeded: jax.Array) -> jax.Array:
    first = _first(x)
    other = ~first if x.dtype == jnp.bool_ else first + jnp.ones((), x.dtype)
    return x.at[(0,) * x.ndim].set(jnp.where(exceeded, other, first))


@dataclass(frozen=True)
class Chain:
    """A compiled chain on its inputs; `calls` is how many one sample holds."""

    compiled: jax.stages.Compiled
    inputs: tuple[jax.Array, ...]
    calls: int

    def run(self, calls: int) -> tuple[tuple[jax.Array, ...], float]:
        """The results of the last of `calls` calls, and the milliseconds of the dispatch."""
        return synchronised(lambda: self.compiled(_count(calls), _limit(), *self.inputs))

    def sample(self) -> Sample:
        """One pair of dispatches: all calls, and none."""
        _, empty_ms = self.run(0)
        _, full_ms = self.run(self.calls)
        return Sample(full_ms, empty_ms, (full_ms - empty_ms) / self.calls)


@dataclass(frozen=True)
class Sample:
    """Milliseconds of the two dispatches, and of one call."""

    full_ms: float
    empty_ms: float
    call_ms: float


def compile_chain(
    program: Program, inputs: Sequence[jax.Array], single_hlo: str, *, floor_ms: float
) -> Chain:
    """Compile the chain, prove on its HLO that it holds the program, and choose how many calls.

    Args:
        program: a function of the inputs, in order.
        inputs: arrays on the device.
        single_hlo: the optimised HLO text of the program alone.
        floor_ms: the dispatch floor, which a chain must dwarf.

    Raises:
        NotChained: the compiler moved work out of the loop, or dropped it.
    """
    jitted = jax.jit(chained(program))
    compiled = jitted.lower(_count(1), _limit(), *inputs).compile()
    if problem := chain_hlo.problem(compiled.as_text() or "", single_hlo):
        raise NotChained(problem)
    chain = Chain(compiled, tuple(inputs), LEAST_CALLS)
    chain.run(1)
    pilots = [chain.sample() for _ in range(2)]
    call_ms = max(min(pilot.call_ms for pilot in pilots), 1e-6)
    empty_ms = min(pilot.empty_ms for pilot in pilots)
    wanted = max(DISPATCHES * floor_ms, EMPTIES * empty_ms, LEAST_MS) / call_ms
    calls = round(min(max(wanted, LEAST_CALLS), MOST_CALLS))
    return Chain(compiled, tuple(inputs), calls)


def _count(calls: int) -> jax.Array:
    return jnp.asarray(calls, jnp.int32)


def _limit() -> jax.Array:
    return jnp.asarray(jnp.inf, jnp.float32)

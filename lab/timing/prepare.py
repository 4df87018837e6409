"""A program made ready to be timed: transferred, traced, lowered, compiled, called once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from lab.programs import Program
from lab.timing.clock import clocked, synchronised
from lab.truth.problems import Array


@dataclass(frozen=True)
class Phases:
    """What a first use costs, in milliseconds, step by step."""

    trace_ms: float
    lower_ms: float
    compile_ms: float
    first_call_ms: float


@dataclass(frozen=True)
class Ready:
    """A compiled program, its arrays on the device, and the results of its first call."""

    program: Program
    compiled: jax.stages.Compiled
    arrays: tuple[jax.Array, ...]
    phases: Phases
    first: tuple[jax.Array, ...]

    def call(self) -> tuple[jax.Array, ...]:
        """Dispatch one call; its results may not be ready yet."""
        return self.compiled(*self.arrays)

    def named(self, results: Sequence[jax.Array]) -> dict[str, Array]:
        """Results by their names, as the gate takes them."""
        return {n: np.asarray(x) for n, x in zip(self.program.results, results, strict=True)}

    @cached_property
    def hlo(self) -> str:
        """The optimised HLO text."""
        return self.compiled.as_text() or ""

    def peak_bytes(self) -> int | None:
        """Arguments, results and temporaries together, as the compiler states them."""
        memory = self.compiled.memory_analysis()
        if memory is None:
            return None
        return int(
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes
        )


def transfer(program: Program, device: jax.Device) -> tuple[tuple[jax.Array, ...], float]:
    """The program's inputs on the device, and the milliseconds that took."""
    arrays, ms = synchronised(lambda: jax.device_put(list(program.inputs.values()), device))
    return tuple(arrays), ms


def ready(program: Program, arrays: tuple[jax.Array, ...]) -> Ready:
    """Trace, lower, compile and call, each timed by itself."""
    # Its own function, so that nothing is found in a cache that an equal program left.
    jitted = jax.jit(lambda *inputs: program.function(*inputs))  # noqa: PLW0108
    traced, trace_ms = clocked(lambda: jitted.trace(*arrays))
    lowered, lower_ms = clocked(traced.lower)
    compiled, compile_ms = clocked(lowered.compile)
    first, first_call_ms = synchronised(lambda: compiled(*arrays))
    phases = Phases(trace_ms, lower_ms, compile_ms, first_call_ms)
    return Ready(program, compiled, arrays, phases, tuple(first))


def empty(arrays: tuple[jax.Array, ...], results: int) -> Callable[[], tuple[jax.Array, ...]]:
    """The dispatch floor's program: the same arguments, as many results, nothing to compute."""

    def nothing(one: jax.Array, *_: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(one + n for n in range(results))

    one = jax.device_put(jnp.zeros((), jnp.int32), next(iter(arrays[0].devices())))
    compiled = jax.jit(nothing, keep_unused=True).lower(one, *arrays).compile()
    return lambda: compiled(one, *arrays)


def same_bits(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> bool:
    """Whether two lists of results are the same to the bit."""
    pairs = zip(a, b, strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)

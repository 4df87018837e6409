"""Device time from the profiler, and the chain's agreement with it."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.timing import chain, trace


def test_a_union_counts_nested_and_concurrent_events_once() -> None:
    assert trace.union_ns([]) == 0
    assert trace.union_ns([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_a_union_is_the_number_of_covered_units(pairs: list[tuple[int, int]]) -> None:
    covered = {t for begin, length in pairs for t in range(begin, begin + length)}
    assert trace.union_ns([(b, b + length) for b, length in pairs]) == len(covered)


def test_the_trace_of_a_program_names_its_ops_alone() -> None:
    x = jnp.ones((256, 256))
    compiled = jax.jit(lambda a: (a @ a,)).lower(x).compile()
    module = trace.module_name(compiled.as_text() or "")
    jax.block_until_ready(compiled(x))

    def run() -> None:
        for _ in range(4):
            jax.block_until_ready(compiled(x))
            jax.block_until_ready(x + 1)  # another program, which does not count

    found = trace.traced(run, calls=4, module=module)
    assert found is not None
    assert found.call_ms > 0
    assert found.events >= 4
    assert trace.traced(run, calls=4, module="jit_other") is None


@pytest.mark.slow
def test_chained_calls_agree_with_the_profiler_within_five_percent() -> None:
    """Rounds of both in one trace, so that the machine's noise meets both alike.

    A small product would not do: each single call writes to memory that is new to it, a chained one
    to the same again, and the difference is in the product's own event.
    """
    size, rounds, calls = 1536, 12, 6
    x = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)), jnp.float32)

    def product(a: jax.Array) -> tuple[jax.Array, ...]:
        return (a @ a,)

    compiled = jax.jit(product).lower(x).compile()
    text = compiled.as_text() or ""
    made = chain.Chain(
        chain.compile_chain(product, (x,), text, floor_ms=0.01).compiled, (x,), calls
    )
    module = trace.module_name(text)
    chained_ms = []
    with tempfile.TemporaryDirectory() as directory:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(directory, profiler_options=options):
            for _ in range(rounds):
                chained_ms.append(made.sample().call_ms)
                for _ in range(calls):
                    jax.block_until_ready(compiled(x))
        _, events = trace.module_spans(Path(directory), {module})[module]
    events.sort()
    assert len(events) == rounds * calls, "a product is one op"
    by_round = [events[n : n + calls] for n in range(0, len(events), calls)]
    traced_ms = [trace.union_ns(spans) / calls / 1e6 for spans in by_round]
    ratios = [a / b for a, b in zip(chained_ms, traced_ms, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1, abs=0.05)

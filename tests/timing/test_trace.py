"""Device time from the profiler, and the chain's agreement with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from lab.timing import trace


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

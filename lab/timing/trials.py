"""How often the verdict of a paired comparison is right here: trials whose truth is known.

    python -m lab.timing.trials aa 200         a kernel against itself: no difference is right
    python -m lab.timing.trials slowdown 100   a tenth more of the same work: slower is right

Each trial compiles both programs anew and samples them with the default budget, as one cell with
benchmark.baseline does. The command prints the verdicts and the machine's load.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from lab import kernels, programs
from lab.cells.config import BenchmarkConfig
from lab.kernels import options
from lab.programs import Program
from lab.timing import budget, prepare, summaries
from lab.timing.contest import Contest
from lab.truth.problems import POLICIES, Shape, attention_problem

SHAPE = Shape(
    batch=1, q_heads=8, kv_heads=2, q_len=256, kv_len=256, head_dim=128, causal=True, padding="none"
)
PRODUCTS, MORE = 20, 22
"""Dependent products of 192 x 192 in the faster and in the slower program: a tenth more work."""


def attention() -> Program:
    """XLA's attention at the published shape and 256 keys."""
    policy = POLICIES["bf16"]
    problem = attention_problem(SHAPE, policy, regime="normal", seed=0)
    return programs.of_problem(
        kernels.load(options.configuration("xla"), policy=policy), problem, backward=False
    )


def products(count: int) -> Program:
    """A chain of `count` products, each normalised so that the next stays finite."""

    def run(x: jax.Array) -> tuple[jax.Array, ...]:
        def body(_: jax.Array, y: jax.Array) -> jax.Array:
            z = x @ y
            return z / jnp.max(jnp.abs(z))

        return (jax.lax.fori_loop(0, count, body, x),)

    x = np.random.default_rng(0).standard_normal((192, 192)).astype(np.float32)
    return Program(run, {"x": x}, ("y",), attention().problem)


def verdict_of(kernel: Program, baseline: Program, seed: int) -> tuple[str, float]:
    """One comparison in the default budget: the verdict and the ratio."""
    settings = BenchmarkConfig()
    warmups, rule = budget.of(settings, programs=2)
    arrays, _ = prepare.transfer(kernel, jax.devices()[0])
    ready = {"kernel": prepare.ready(kernel, arrays), "baseline": prepare.ready(baseline, arrays)}
    contest = Contest(ready, prepare.empty(arrays, 1))  # type: ignore[arg-type]  # names as literals
    contest.warm_up(warmups, settings.warmup_ms)
    found = summaries.compared(contest.sample(rule, seed), settings.threshold, {})
    return found["verdict"], found["paired"].ratio


def trials(kind: str, count: int) -> Iterator[tuple[str, float]]:
    """Verdict and ratio of each trial."""
    slower = functools.partial(products, MORE)
    kernel, baseline = (attention, attention) if kind == "aa" else (slower, _fewer)
    for seed in range(count):
        yield verdict_of(kernel(), baseline(), seed)


def _fewer() -> Program:
    return products(PRODUCTS)


def main() -> None:
    """Print what the trials came to."""
    kind, count = sys.argv[1], int(sys.argv[2])
    if kind not in ("aa", "slowdown"):
        sys.exit(f"{kind}: allowed are aa and slowdown")
    load_before = os.getloadavg()[0]
    found = []
    for verdict, ratio in trials(kind, count):
        found.append((verdict, ratio))
        print(f"{len(found)}/{count} {verdict} {ratio:.3f}", flush=True)  # noqa: T201
    verdicts = Counter(verdict for verdict, _ in found)
    low, middle, high = np.percentile([ratio for _, ratio in found], [5, 50, 95])
    print(f"{kind}: {count} trials: {dict(verdicts)}")  # noqa: T201 - a command's answer
    print(  # noqa: T201
        f"ratio {middle:.3f} (5 to 95 percent: {low:.3f} to {high:.3f}); "
        f"load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    )


if __name__ == "__main__":
    main()

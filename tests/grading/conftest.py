"""Executors in NumPy: right answers from the online oracle, and faults planted in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from lab.grading.cases import Case
from lab.grading.executor import Answer, Call
from lab.truth import online
from lab.truth.problems import Shape

Change = Callable[[Call, dict[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass
class Fake:
    """Answers every call from the float64 oracle, rounded; `ask` and `change` plant faults."""

    ask: Callable[[Call], Call] = lambda call: call
    change: Change = lambda _, results: results
    asked: int = 0

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        return [self._one(call) for call in calls]

    def _one(self, call: Call) -> Answer:
        self.asked += 1
        c = self.ask(call)
        masks = {"causal": c.causal, "key_mask": c.key_mask, "scale": c.scale}
        results = {"out": online.forward(c.q, c.k, c.v, **masks).out}
        if c.cotangent is not None:
            g = online.backward(c.q, c.k, c.v, c.cotangent, **masks)
            results |= {"dq": g.dq, "dk": g.dk, "dv": g.dv}
        results = self.change(call, results)
        with np.errstate(all="ignore"):
            return Answer("ok", **{n: r.astype(call.q.dtype) for n, r in results.items()})


PLAIN = Shape(2, 2, 2, 12, 9, 16, causal=False, padding="none")
CAUSAL = Shape(2, 3, 3, 14, 14, 16, causal=True, padding="none")
CACHED = Shape(2, 4, 2, 6, 17, 8, causal=True, padding="none")
PADDED = Shape(3, 2, 2, 7, 15, 16, causal=False, padding="tail")
EMPTY = Shape(3, 2, 2, 5, 11, 16, causal=False, padding="empty")


@pytest.fixture
def fake() -> type[Fake]:
    return Fake


@pytest.fixture
def small_cases() -> tuple[Case, ...]:
    """A suite of a few milliseconds a case; every relation applies somewhere."""
    return (
        Case("plain", "accuracy", PLAIN, relations=True, core=True),
        Case("causal", "causal", CAUSAL, relations=True),
        Case("cached", "causal_alignment", CACHED, relations=True),
        Case("padded", "padding", PADDED, relations=True),
        Case("padded-poisoned", "poisoned_padding", PADDED, "poisoned"),
        Case("empty", "empty_row", EMPTY, relations=True),
        Case("large", "extreme_logits", PLAIN, "large_logits"),
    )


@pytest.fixture
def without() -> Callable[..., Change]:
    """A fault that replaces one result: `without("dq", lambda call, array: ...)`."""

    def planted(output: str, fault: Callable[[Call, np.ndarray], np.ndarray]) -> Change:
        def change(call: Call, results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            if output in results:
                results = {**results, output: fault(call, results[output])}
            return results

        return change

    return planted

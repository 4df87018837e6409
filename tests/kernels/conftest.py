"""Kernels by name, and the comparison with the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lab import kernels
from lab.kernels import Kernel
from lab.truth.problems import POLICIES

Load = Callable[..., Kernel]
Close = Callable[[Any, Any, str], None]

# Relative to the largest magnitude of the result: a few roundings of the policy's input dtype.
TOLERANCES = {"bf16": 2.0**-6, "f32": 2.0**-18}


def configuration(name: str, **options: object) -> dict[str, object]:
    return kernels.options.configuration(name) | options


@pytest.fixture
def load() -> Load:
    """Load a kernel by its name: load("pallas", "bf16", block_rows=16)."""

    def call(name: str, policy: str, *, interpret: Any = True, **options: object) -> Kernel:
        config = configuration(name, **options)
        return kernels.load(config, policy=POLICIES[policy], interpret=interpret)

    return call


@pytest.fixture
def assert_close() -> Close:
    """Compare with the oracle's array: finite, and within the policy's roundings."""

    def check(got: Any, want: Any, policy: str) -> None:
        got = np.asarray(got).astype(np.float64)
        assert got.shape == want.shape
        assert np.isfinite(got).all()
        bound = TOLERANCES[policy] * max(np.abs(want).max(), 2.0**-20)
        assert np.abs(got - want).max() <= bound

    return check

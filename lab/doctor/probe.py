"""Worker entries: which devices jax sees, and whether a small kernel compiles and is right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from lab.devices import attached
from lab.doctor import Canary
from lab.records import Device


def devices() -> Device:
    """The attached devices, as lab.devices gives them."""
    return attached()


def canary() -> Canary:
    """Compile 2 x + 1 over [16, 128] for the attached device and compare it with NumPy, exactly.

    A Pallas kernel on a TPU, the same interpreted on a CPU, and XLA alone on a GPU, where this
    lab's kernels, being TPU kernels, do not run.
    """
    platform = jax.devices()[0].platform
    x = np.arange(16 * 128, dtype=np.float32).reshape(16, 128)
    if platform == "gpu":
        what, function = "XLA program", jax.jit(lambda y: 2 * y + 1)
    else:
        interpret = platform != "tpu"
        what = "Pallas kernel, interpreted" if interpret else "Pallas kernel"
        function = jax.jit(
            pl.pallas_call(
                _kernel,
                out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
                interpret=interpret,
            )
        )
    got = np.asarray(jax.block_until_ready(function(x)))
    return Canary(what=what, error=float(np.max(np.abs(got - (2 * x + 1)))))


def _kernel(x: Any, out: Any) -> None:  # noqa: ANN401 - references of Pallas
    out[...] = 2 * x[...] + 1

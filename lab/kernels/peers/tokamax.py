"""tokamax's dot-product attention, an optional package: `pip install 'attention-lab[tokamax]'`.

Arrays go in sequence-major, as it takes them; the two transpositions around it are timed. On a TPU
its Pallas implementation is asked for by name: tokamax would otherwise choose XLA silently.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from lab.errors import UnsupportedCell, UserError
from lab.kernels import Kernel
from lab.kernels.peers.limits import tpu_kernel
from lab.kernels.support import no_softmax

if TYPE_CHECKING:
    from lab.kernels import Interpret
    from lab.kernels.options import Tokamax
    from lab.truth.problems import DtypePolicy

NAME = "tokamax"
BLOCK = 128


def build(options: Tokamax, *, policy: DtypePolicy, interpret: Interpret) -> Kernel:
    """Build the kernel; `implementation` is what tokamax calls its own.

    Raises:
        UserError: tokamax is not installed.
    """
    if importlib.util.find_spec("tokamax") is None:
        raise UserError(
            "kernel=tokamax needs the package tokamax: pip install 'attention-lab[tokamax]'"
        )
    tokamax = importlib.import_module("tokamax")

    def call(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool, scale: float) -> jax.Array:
        sequence_major = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
        mode = pltpu.force_tpu_interpret_mode() if interpret else contextlib.nullcontext()
        try:
            with mode:
                out = tokamax.dot_product_attention(
                    *sequence_major,
                    scale=scale,
                    is_causal=causal,
                    implementation=options.implementation,
                )
        except NotImplementedError as error:
            raise UnsupportedCell(f"kernel {NAME}: {error}") from error
        return jnp.swapaxes(out, 1, 2)

    attention = tpu_kernel(NAME, call, policy, block=BLOCK, most_q_len_is_kv_len=False)
    return Kernel(NAME, no_softmax(NAME), attention)

"""A kernel is one file of this room and one entry in `options`, which says what it can be given.

The file defines `build(options, *, policy, interpret) -> Kernel`. Nothing here imports jax.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lab.errors import UserError
from lab.kernels import options

if TYPE_CHECKING:
    import jax
    from jax.experimental.pallas import tpu as pltpu

    from lab.truth.problems import DtypePolicy

    Interpret: TypeAlias = bool | pltpu.InterpretParams


class MaskedSoftmax(Protocol):
    """Softmax over the last axis of what the mask shows."""

    def __call__(self, logits: jax.Array, mask: jax.Array) -> jax.Array:
        """Map logits [B, H, T, S] (input dtype) and Bool[broadcastable] to fp32 probabilities."""
        ...


class Attention(Protocol):
    """Attention, heads-major, with grouped queries, bottom-right causality and key padding."""

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        causal: bool,
        key_mask: jax.Array | None = None,
        scale: float | None = None,
    ) -> jax.Array:
        """Map q [B, Hq, T, D], k and v [B, Hkv, S, D], key_mask Bool[B, S] to [B, Hq, T, D]."""
        ...


@dataclass(frozen=True)
class Kernel:
    """One implementation in both scopes; both functions can be jitted and differentiated by vjp."""

    name: str
    masked_softmax: MaskedSoftmax
    attention: Attention


def load(
    config: Mapping[str, object], *, policy: DtypePolicy, interpret: Interpret = False
) -> Kernel:
    """Build the kernel that a configuration names.

    Args:
        config: name, module and options, as `options.configuration` gives them.
        policy: the dtypes of inputs, logits, accumulation and output.
        interpret: run Pallas in interpret mode (values only, never speed); for TPU interpret
            mode with its checks pass `pltpu.InterpretParams(...)`.

    Raises:
        UserError: an option that the kernel does not have, or a value that it does not allow.
        UnsupportedCell: the kernel does not do what the policy asks.
    """
    checked = options.check(config)
    build = getattr(importlib.import_module(str(config["module"])), "build", None)
    if build is None:
        raise UserError(
            f"kernel {config['name']}: {config['module']} has no function build; "
            "correct kernel.module, or add build(options, *, policy, interpret) to it"
        )
    kernel = build(checked, policy=policy, interpret=interpret)
    if not isinstance(kernel, Kernel):
        raise UserError(f"{config['module']}.build must return a lab.kernels.Kernel")
    return Kernel(str(config["name"]), kernel.masked_softmax, kernel.attention)

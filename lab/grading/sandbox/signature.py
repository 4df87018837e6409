"""Signatures: what a program is compiled for, and values that fit one."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lab.grading.executor import Call
    from lab.grading.sandbox.inside.wire import Array


@dataclass(frozen=True)
class Signature:
    """What a program is compiled for; calls that differ only in values share one."""

    arguments: tuple[tuple[tuple[int, ...], str], ...]
    causal: bool
    scale: float | None
    key_mask: bool
    backward: bool
    output_dtype: str

    @classmethod
    def of(cls, call: Call) -> Signature:
        """The signature of a call."""
        return cls(
            tuple((a.shape, a.dtype.name) for a in arrays_of(call)),
            bool(call.causal),
            None if call.scale is None else float(call.scale),
            call.key_mask is not None,
            call.cotangent is not None,
            (call.q if call.cotangent is None else call.cotangent).dtype.name,
        )

    @property
    def id(self) -> str:
        """A short name."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def products(self) -> int:
        """B * Hq * T * S * D: the multiplications of one of attention's two dots."""
        q, k = self.arguments[0][0], self.arguments[1][0]
        return math.prod(q) * k[2]

    @property
    def forward_only(self) -> int:
        """How many of the arguments the forward takes: all but the cotangent."""
        return len(self.arguments) - self.backward

    def results(self, *, gradients: bool) -> list[tuple[tuple[int, ...], str]]:
        """Shapes and dtypes of what its program answers: out, then dq, dk, dv."""
        out = [(self.arguments[0][0], self.output_dtype)]
        return [*out, *self.arguments[:3]] if gradients else out

    def header(self) -> dict[str, Any]:
        """As the tracer is told."""
        return asdict(self)

    def fresh_values(self) -> list[Array]:
        """Arguments nobody has seen: normal values; a mask hides the last third of the keys."""
        generator = np.random.default_rng()
        arrays: list[Array] = []
        for shape, dtype in self.arguments:
            if dtype == "bool":
                mask = np.ones(shape, bool)
                mask[:, shape[1] - shape[1] // 3 :] = False
                arrays.append(mask)
            else:
                arrays.append(generator.standard_normal(shape).astype(dtype))
        return arrays


def arrays_of(call: Call) -> list[Array]:
    """The arrays of a call, in the order of a signature's arguments."""
    optional = (call.key_mask, call.cotangent)
    return [call.q, call.k, call.v, *(a for a in optional if a is not None)]

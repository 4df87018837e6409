"""Precision tiers: which roundings an implementation is allowed, from the finest to the coarsest.

A tier bounds the roundings *inside*; the rounding of the inputs is in the problem and that of the
output belongs to the dtype policy. `fp32`: everything inside in float32. `bf16`: probabilities and
the backward's intermediates may be rounded once to bfloat16 for a matrix product. `bf16_scores`:
the logits too. `bf16_accumulate`: the sums as well. The last two lie below the bf16 policy.
"""

from __future__ import annotations

from dataclasses import dataclass

U32 = 2.0**-24  # unit roundoff of float32: half an ulp of 1 (IEEE 754, 24 significant bits)
U16 = 2.0**-8  # unit roundoff of bfloat16 (8 significant bits)
UNIT_ROUNDOFF = {"float32": U32, "bfloat16": U16}


@dataclass(frozen=True)
class Tier:
    """Unit roundoffs of the steps inside; 0 means the step stays in float32.

    Attributes:
        name: as verdicts name it.
        intermediate: rounding of P, dP and dS before a matrix product.
        score: rounding of the logits, and of a pre-scaled query.
        accumulate: rounding of a partial sum over keys (forward, dQ) or queries (dK, dV).
    """

    name: str
    intermediate: float
    score: float
    accumulate: float


TIERS: dict[str, Tier] = {
    tier.name: tier
    for tier in (
        Tier("fp32", 0.0, 0.0, 0.0),
        Tier("bf16", U16, 0.0, 0.0),
        Tier("bf16_scores", U16, U16, 0.0),
        Tier("bf16_accumulate", U16, U16, U16),
    )
}
ORDER = tuple(TIERS)
DECLARED = {"f32": "fp32", "bf16": "bf16"}  # dtype policy -> the tier it promises


def lower_than(name: str) -> tuple[str, ...]:
    """The tiers coarser than `name`, the finest first."""
    return ORDER[ORDER.index(name) + 1 :]

"""The published v5e measurement, as data: Laela Zorana's figures (CC BY-NC 4.0, see NOTICE)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import UserError

CREDIT = "published: TPU v5e, L. Zorana, CC BY-NC 4.0"
KERNEL, BASELINE = "pallas-8row", "xla"
"""The two kernels that were published, by their names here."""


@dataclass(frozen=True)
class PublishedCase:
    """One published case: medians of 20 synchronised samples, milliseconds."""

    scope: str
    seq: int
    xla_ms: float
    pallas_ms: float

    @property
    def slowdown(self) -> float:
        """Pallas over XLA."""
        return self.pallas_ms / self.xla_ms


@dataclass(frozen=True)
class PublishedCurve:
    """The ratios of one published kernel to the other in one scope, by length."""

    kernel: str
    scope: str
    slowdowns: Mapping[int, float]


def published() -> tuple[PublishedCase, ...]:
    """The ten published pairs."""
    data = json.loads(Path(__file__).with_name("published_v5e.json").read_text())
    return tuple(PublishedCase(**case) for case in data["comparisons"])


def curves(baseline: str) -> tuple[PublishedCurve, ...]:
    """The published curves against a baseline: inverted where that is the Pallas kernel.

    Raises:
        UserError: no time of the baseline was published.
    """
    if baseline not in (BASELINE, KERNEL):
        raise UserError(
            f"report.overlay=published with report.baseline={baseline}: published are the times of "
            f"{BASELINE} and {KERNEL}; choose one of them as the baseline, or leave the overlay out"
        )
    direct = baseline == BASELINE
    scopes = sorted({case.scope for case in published()})
    return tuple(
        PublishedCurve(
            KERNEL if direct else BASELINE,
            scope,
            {
                case.seq: case.slowdown if direct else 1 / case.slowdown
                for case in published()
                if case.scope == scope
            },
        )
        for scope in scopes
    )

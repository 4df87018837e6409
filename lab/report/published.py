"""The published v5e measurement, as data: Laela Zorana's figures (CC BY-NC 4.0, see NOTICE)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

CREDIT = "published: TPU v5e, L. Zorana, CC BY-NC 4.0"


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


def published() -> tuple[PublishedCase, ...]:
    """The ten published pairs."""
    data = json.loads(Path(__file__).with_name("published_v5e.json").read_text())
    return tuple(PublishedCase(**case) for case in data["comparisons"])

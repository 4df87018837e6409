"""Name the fault (stub)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.grading.examine import Examined
    from lab.grading.findings import Finding


@dataclass(frozen=True)
class Fault:
    """The class that fits best and one line of advice."""

    fault_class: str | None
    advice: str | None
    convincing: bool = False
    by_rounding: bool = False


def classify(examined: Sequence[Examined], found: Sequence[Finding]) -> Fault:
    return Fault("unknown", None)


def name_of_tier(tier: str) -> Fault:
    names = {"bf16": "low_precision_scores", "bf16_scores": "low_precision_scores"}
    return Fault(names.get(tier, "low_precision_accumulate"), None, by_rounding=True)

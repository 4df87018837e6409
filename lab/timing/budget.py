"""How much is sampled: the configuration's budget as warm-ups and a stop rule."""

from __future__ import annotations

from lab.cells.config import BenchmarkConfig
from lab.timing.sampling import StopRule

QUICK_SAMPLES, QUICK_WARMUPS = 5, 1


def of(settings: BenchmarkConfig, *, programs: int) -> tuple[int, StopRule]:
    """Warm-ups, and when sampling stops.

    Args:
        settings: `benchmark` of a cell.
        programs: how many are sampled side by side; each is given `limit_s`.
    """
    if settings.quick:
        few = min(settings.samples, QUICK_SAMPLES)
        rule = StopRule(few, few, settings.target, settings.limit_s)
        return min(settings.warmups, QUICK_WARMUPS), rule
    most = max(settings.samples, settings.max_samples)
    limit_s = programs * settings.limit_s
    return settings.warmups, StopRule(settings.samples, most, settings.target, limit_s)

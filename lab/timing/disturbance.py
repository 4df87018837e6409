"""Whether samples drifted, and whether they are noisy: said beside a median, never corrected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from lab.records.benchmark import Drift, Noise

DRIFT_P = 0.01
DRIFT_SHARE = 0.05
NOISY_IQR = 0.10
LEAST = 10
"""Fewer samples show neither."""


def drift(samples: Sequence[float]) -> Drift:
    """Look for a trend: unlikely by chance (p < 0.01) and large enough to matter (5 percent).

    The slope is the median of all pairs' slopes (Theil and Sen), which outliers do not move.
    """
    if len(samples) < LEAST or min(samples) == max(samples):
        return Drift(share=0.0, p_value=None, detected=False)
    order = np.arange(len(samples))
    slope = float(stats.theilslopes(samples, order).slope)
    share = slope * (len(samples) - 1) / float(np.median(samples))
    p_value = float(stats.kendalltau(order, samples).pvalue)
    detected = p_value < DRIFT_P and abs(share) > DRIFT_SHARE
    return Drift(share=share, p_value=p_value, detected=detected)


def noise(samples: Sequence[float]) -> Noise:
    """Call samples noisy whose middle half spans over a tenth of their median."""
    q1, median, q3 = np.percentile(samples, [25, 50, 75])
    share = float((q3 - q1) / median)
    return Noise(iqr_share=share, detected=len(samples) >= LEAST and share > NOISY_IQR)

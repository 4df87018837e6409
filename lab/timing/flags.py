"""The words that stand beside a time where something must be known of it."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "dispatch-bound": "the dispatch floor is over half of the latency: mostly the host's time",
    "drift": "the samples rose or fell over the run by more than a twentieth",
    "noisy": "the middle half of the samples spans over a tenth of the median",
    "busy": "other processes used over a quarter of the processors meanwhile",
    "parallel": "other cells of the lab ran at the same time",
    "shared-device": "other processes held the accelerator",
}

"""Faster, slower, same or ambiguous: what an interval of a ratio lets one say.

The margin is the larger of a threshold that someone chose and the noise floor that an A/A control
showed on the machine. A whole interval above 1 + margin is slower, below 1 / (1 + margin) faster,
between them the same; any other says nothing, and is called ambiguous.
"""

from __future__ import annotations

from lab.records.benchmark import Verdict
from lab.timing.statistics import Interval


def noise_floor(control: Interval | None) -> float | None:
    """The largest difference from 1 that a program compared with itself may show, as a share."""
    return None if control is None else max(control.hi, 1 / control.lo) - 1


def margin(threshold: float, floor: float | None) -> float:
    """Below this share of difference nothing is called different."""
    return max(threshold, floor or 0.0)


def verdict(interval: Interval | None, margin: float) -> Verdict:
    """What kernel / baseline in `interval` is called; None says nothing."""
    if interval is None:
        return "ambiguous"
    if interval.lo > 1 + margin:
        return "slower"
    if interval.hi < 1 / (1 + margin):
        return "faster"
    inside = 1 / (1 + margin) <= interval.lo and interval.hi <= 1 + margin
    return "same" if inside else "ambiguous"

"""Where a cell's wall time went, step by step from the start of its process. No jax here."""

from __future__ import annotations

import time

import psutil

from lab.records.benchmark import Spent


class Stopwatch:
    """Seconds of each step; a step that is ended twice is the sum of both.

    It begins when the process did, so that the first step holds Python's start and all imports.
    """

    def __init__(self) -> None:
        self._steps: dict[str, float] = {}
        self._ended_s = psutil.Process().create_time()

    def end(self, step: str) -> None:
        """All time since the last step ended belongs to this one."""
        now_s = time.time()
        self._steps[step] = self._steps.get(step, 0.0) + max(now_s - self._ended_s, 0.0)
        self._ended_s = now_s

    def spent(self) -> Spent:
        """The steps, to the millisecond."""
        steps = {f"{name}_s": round(seconds, 3) for name, seconds in self._steps.items()}
        return Spent.model_validate(steps)

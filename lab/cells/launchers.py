"""How many cells the chosen launcher runs at a time."""

from __future__ import annotations

import os

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode


def parallel_jobs() -> int:
    """1 for Hydra's own launcher and for a single run; joblib's `n_jobs`, resolved, else."""
    if not HydraConfig.initialized():
        return 1
    settings = HydraConfig.get()
    if settings.mode != RunMode.MULTIRUN:
        return 1
    asked = settings.launcher.get("n_jobs")
    if asked is None:
        return 1
    # joblib: -1 is every processor, -2 all but one.
    jobs = int(asked)
    return max(jobs if jobs > 0 else (os.cpu_count() or 1) + 1 + jobs, 1)

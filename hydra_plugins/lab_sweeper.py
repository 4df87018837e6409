"""Hydra takes sweepers from this namespace alone; what this one does is in lab/command/axes.py."""

from __future__ import annotations

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override

from lab.command import axes


class LabSweeper(BasicSweeper):
    """Every combination of the comma-separated values, but kernel options where there are none."""

    @staticmethod
    def split_arguments(
        overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """The jobs, in batches, as lists of overrides."""
        (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
        fitted = axes.fitted(jobs).jobs
        size = max_batch_size or len(fitted)
        return [fitted[start : start + size] for start in range(0, len(fitted), size)]

"""Records become tables, curves and a page. No jax here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def build(runs: Sequence[Path], out: Path) -> None:
    """Placeholder until the tables are there."""

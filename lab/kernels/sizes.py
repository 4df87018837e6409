"""The tile of a TPU's registers, and whole numbers of it. No jax here."""

from __future__ import annotations

SUBLANES, LANES = 8, 128
"""A register of 32-bit values."""


def round_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple

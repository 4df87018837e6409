"""Which programs may run where."""

from __future__ import annotations

import pytest
import samples

from lab import programs
from lab.errors import UnsupportedCell


@pytest.mark.parametrize(
    ("platform", "pallas", "kind", "refused"),
    [
        ("cpu", True, "reference", False),
        ("tpu", True, "reference", False),
        ("gpu", True, "reference", True),
        ("gpu", True, "known-bad", True),
        ("gpu", False, "reference", False),
        ("gpu", True, "custom", False),
    ],
)
def test_tpu_kernels_are_refused_on_other_accelerators(
    platform: str, pallas: bool, kind: str, refused: bool
) -> None:
    cell = samples.cell()
    cell.config.candidate.kind = kind
    if refused:
        with pytest.raises(UnsupportedCell, match=r"is a TPU kernel.*not on gpu"):
            programs.refuse_foreign_device(cell, platform, pallas=pallas)
    else:
        programs.refuse_foreign_device(cell, platform, pallas=pallas)

"""The fit of how copies behave: it finds figures that it was not told."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lab.tpu.schedule.bundles import Schedule
from lab.tpu.schedule.execute import NoEstimate, execute

SCRIPT = Path(__file__).parents[2] / "scripts" / "fit_copies.py"
WAIT = "%2 = dma.done.wait [#allocation1], {}"
TAKE = "%3 = vsyncadd [#allocation1], {}"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_copies", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fit_copies"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    return module


def copies(way: str, granules: int, strides: str = "") -> tuple[str, ...]:
    """One copy, and the wait for it."""
    copy = f"%1 = dma.{way} %s1_s1, {granules}, %s2_s2, [#allocation1]{strides}"
    return copy, WAIT.format(granules), TAKE.format(2**32 - granules)


def test_figures_are_found_again_from_the_times_that_they_give(
    script: ModuleType, program: Callable[..., Schedule]
) -> None:
    apart = ", 128, 16, 1"  # 512 bytes together, 4 KiB apart
    schedules = [
        program(*copies(*kind))
        for kind in (
            *((way, size) for way in ("hbm_to_vmem", "vmem_to_hbm") for size in (64, 4096, 65_536)),
            *(
                (way, size, apart)
                for way in ("hbm_to_vmem", "vmem_to_hbm")
                for size in (4096, 8192)
            ),
        )
    ]

    def times(figures: np.ndarray) -> np.ndarray:
        found = [execute(schedule, script.machine(figures)) for schedule in schedules]
        assert not any(isinstance(estimate, NoEstimate) for estimate in found)
        return np.array([estimate.ms for estimate in found])

    wanted = np.array([420.0, 0.85, 0.6, 0.5])
    found = script.fit(times, times(wanted))
    np.testing.assert_allclose(found.figures, wanted, rtol=0.01)
    assert abs(found.errors).max() < 0.01

    off = script.fit(times, times(wanted) * np.array([*[1] * 9, 1.3]))
    assert abs(off.left_out).max() > abs(off.errors).max()

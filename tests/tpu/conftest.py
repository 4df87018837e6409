"""Hand-written programs and the checked-in dumps, for the tests of lab.tpu."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.tpu.schedule import bundles

LEGEND = "= control target key start\nLB: loop body\n= control target key end\n\n"
DUMPS = Path(__file__).parent / "dumps"


@pytest.fixture
def program() -> Callable[..., bundles.Schedule]:
    """Parse bundles given as text; a leading `LB ` labels one as a loop's first."""

    def parse(*lines: str) -> bundles.Schedule:
        text = LEGEND
        for address, line in enumerate(lines):
            label = "LB" if line.startswith("LB ") else "  "
            text += f" {address:#x} {label}: > {{ {line.removeprefix('LB ')} }}\n"
        return bundles.parse(text.rstrip() + " /* Start region 0 :: End region 0 */\n")

    return parse


@pytest.fixture(scope="session")
def dumps() -> Path:
    """Directory of the checked-in dumps: a folder a case (see make_fixtures.py)."""
    return DUMPS


@pytest.fixture(scope="session")
def profiles() -> dict[str, dict[str, int | None]]:
    """Case -> op -> libtpu's own estimate in cycles; None where libtpu failed to make one."""
    return json.loads((DUMPS / "profiles.json").read_text())["profiles"]

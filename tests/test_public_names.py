"""The lab uses public names of jax: private ones come and go between releases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def private_names(source: str) -> Iterator[str]:
    """Modules of jax or jaxlib with an underscore that a file imports, looks up or spells out."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        for name in names:
            first, *rest = name.split(".")
            if first in {"jax", "jaxlib", "pl", "pltpu", "jnp"} and any(
                part.startswith("_") and not part.startswith("__") for part in rest
            ):
                yield name


@pytest.mark.parametrize(
    "line",
    [
        "from jax._src import core",
        "import jax._src.core as core",
        "import importlib; importlib.import_module('jax._src.export.serialization')",
        "import jax; jax._src.core",
        "from jaxlib import _jax",
    ],
)
def test_a_private_name_is_noticed(line: str) -> None:
    assert list(private_names(line))


def test_the_lab_uses_no_private_name_of_jax() -> None:
    files = sorted((ROOT / "lab").rglob("*.py"))
    assert files
    used = {
        str(path.relative_to(ROOT)): names
        for path in files
        if (names := list(private_names(path.read_text())))
    }
    assert not used

"""Which room may import which, read from the source: every import counts, wherever it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from commands import ROOT

# A room imports from the rows below its own; those of one row do not know one another.
ROWS = (
    ("run",),
    ("command",),
    ("tasks",),
    ("release",),
    ("report",),
    ("timing", "doctor"),
    ("tpu",),
    ("grading",),
    ("programs",),
    ("candidates", "cells"),
    ("kernels",),
    ("truth",),
    ("worker", "devices"),
    ("records",),
    ("errors",),
)
ROW_OF = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
ALONE = "lab.grading.sandbox.inside"  # what runs in the sandbox's child has no lab to import
ALLOWED: set[tuple[str, str]] = set()


def imports(root: Path) -> dict[str, set[str]]:
    """Which modules of `lab` each module under `root` names, in functions and for types too."""
    files = {name_of(path, root): path for path in (root / "lab").rglob("*.py")}
    return {name: set(named(name, path, files)) for name, path in sorted(files.items())}


def name_of(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def named(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) + 1 - node.level]
            source = ".".join([*up, node.module or ""]).strip(".") if node.level else node.module
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner in known or source in known:
                    yield inner if inner in known else str(source)


def complaints(found: dict[str, set[str]]) -> list[str]:
    """Every import that goes up or sideways, and the first circle of files."""
    said = []
    for module, targets in found.items():
        for target in sorted(targets):
            here, there = (name.split(".")[1:2] for name in (module, target))
            allowed = here == there or not here or (module, target) in ALLOWED
            if not allowed and (not there or ROW_OF[here[0]] >= ROW_OF[there[0]]):
                said.append(f"{module} imports {target}")
            if module.startswith(ALONE) and not target.startswith(ALONE):
                said.append(f"{module} imports {target}, and runs where there is none")
    try:
        TopologicalSorter(found).prepare()
    except CycleError as circle:
        said.append(f"a circle: {' <- '.join(circle.args[1])}")
    return said


def test_every_room_has_its_row() -> None:
    rooms = {path.stem for path in (ROOT / "lab").iterdir() if path.name[0] not in "_."}
    assert rooms - {"conf"} == set(ROW_OF)


def test_imports_go_down_and_in_no_circle() -> None:
    assert complaints(imports(ROOT)) == []


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("report/page", "from lab.tasks import audit", "lab.report.page imports lab.tasks.audit"),
        ("tpu/chips", "import lab.timing", "lab.tpu.chips imports lab.timing"),
        ("records", "def f():\n    from lab import worker", "lab.records imports lab.worker"),
        (
            "truth/a",
            "if TYPE_CHECKING:\n    from lab.cells import x",
            "lab.truth.a imports lab.cells",
        ),
        ("kernels/a", "from lab.kernels.b import B", "lab.kernels.a <- lab.kernels.b"),
        ("kernels/a", "from .b import B", "lab.kernels.a <- lab.kernels.b"),
        (f"{ALONE[4:].replace('.', '/')}/child", "import lab.errors", "lab.errors, and runs where"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, module: str, line: str, said: str) -> None:
    others = ("tasks/audit", "timing/__init__", "worker", "cells/__init__", "errors", "kernels/b")
    for name in (*others, module):
        path = tmp_path / "lab" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from lab.kernels import a\n" if name == "kernels/b" else "")
    (tmp_path / "lab" / f"{module}.py").write_text(line)
    assert any(said in complaint for complaint in complaints(imports(tmp_path)))

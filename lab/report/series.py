"""Comparisons and gaps sorted into the lines of a figure: what belongs together, what it is called.

A line is one kernel in one scope. Whatever else differs among the cells (dtype, direction, arrays,
options, device) splits it, and is named only where it differs. What is left, such as the seed, is
repetition: a length then has several points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lab.records import Result
from lab.report.comparisons import Comparison, kernel_options, label
from lab.report.tables import arrays, device

# A coordinate is named where it differs among cells that agree in its parent.
_PARENTS = {
    "direction": None,
    "dtype": None,
    "shape": None,
    "arrays": "shape",
    "queries": None,
    "regime": None,
    "options": "label",
    "device": None,
}


@dataclass(frozen=True)
class Line:
    """One line: its name, the comparisons at each length, and the lengths that gave no time."""

    name: str
    scope: str
    points: dict[int, list[Comparison]]
    lost: tuple[int, ...]


def lines(found: Sequence[Comparison], gaps: Sequence[Result], baseline: str) -> list[Line]:
    """The lines of a figure, by name.

    Args:
        found: the comparisons to draw.
        gaps: cells without a time; one of the baseline leaves a gap in every line of its case.
        baseline: the name of the baseline.
    """
    kernel_gaps = [gap for gap in gaps if label(gap) != baseline]
    named = _named([c.kernel for c in found], kernel_gaps)
    points: dict[tuple[str, ...], dict[int, list[Comparison]]] = defaultdict(dict)
    for comparison in found:
        at = points[_key(comparison.kernel, named)]
        at.setdefault(comparison.kernel.cell.seq, []).append(comparison)
    # A cell that failed may not know its device: it belongs to every line that it fits otherwise.
    without_device = [name for name in named if name != "device"]
    lost: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for gap in kernel_gaps:
        wanted = _key(gap, without_device)
        fitting = [key for key in points if key[: len(wanted)] == wanted] or [wanted]
        for key in fitting:
            lost[key].add(gap.cell.seq)
    shared = [name for name in without_device if name != "options"]
    for gap in gaps:
        if label(gap) == baseline:
            for key in points:
                if _fits(key, named, gap, shared):
                    lost[key].add(gap.cell.seq)
    return [
        Line(_name(key), key[1], points.get(key, {}), tuple(sorted(lost[key] - set(points[key]))))
        for key in sorted({*points, *lost})
    ]


def _coordinates(result: Result) -> dict[str, str]:
    cell = result.cell
    return {
        "label": label(result),
        "direction": cell.direction,
        "dtype": cell.dtype,
        "shape": cell.shape,
        "arrays": arrays(result),
        "queries": "" if cell.q_len == cell.seq else f"{cell.q_len} queries",
        "regime": result.regime,
        "options": kernel_options(result),
        "device": device(result),
    }


def _named(drawn: Sequence[Result], gaps: Sequence[Result]) -> list[str]:
    """The coordinates that tell lines apart, `device` last."""
    everything = [_coordinates(result) for result in (*drawn, *gaps)]
    known = everything[: len(drawn)]
    named = []
    for name, parent in _PARENTS.items():
        values = defaultdict(set)
        for coordinates in known if name == "device" else everything:
            values[coordinates[parent] if parent else ""].add(coordinates[name])
        if any(len(different) > 1 for different in values.values()):
            named.append(name)
    return named


def _key(result: Result, named: Sequence[str]) -> tuple[str, ...]:
    coordinates = _coordinates(result)
    return (coordinates["label"], result.cell.scope, *(coordinates[name] for name in named))


def _fits(key: tuple[str, ...], named: Sequence[str], gap: Result, shared: Sequence[str]) -> bool:
    coordinates = _coordinates(gap)
    given = dict(zip(named, key[2:], strict=True))
    return key[1] == gap.cell.scope and all(coordinates[n] == given[n] for n in shared)


def _name(key: tuple[str, ...]) -> str:
    extra = ", ".join(filter(None, key[2:]))
    return f"{key[0]}, {key[1]}" + (f" ({extra})" if extra else "")

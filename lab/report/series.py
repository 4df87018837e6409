"""Points and gaps sorted into the panels and the series of a figure, and named.

A panel is what must not share axes: a level of evidence and, where they differ, device, scope,
direction, dtype, arrays and the number of queries. A series in it is one kernel; its options and
the input regime split it, and are named only where they differ. What is left, such as the seed, is
repetition: a length then has several points.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.records import EVIDENCE_ORDER, Evidence, Result
from lab.report.comparisons import kernel_options, label
from lab.report.tables import arrays, device

MOST_SERIES = 8  # more cannot be told apart
MOST_PANELS = 12

_PANEL = ("device", "scope", "direction", "dtype", "shape", "arrays", "queries")
_SERIES = ("label", "options", "regime")
# These are named where they differ among cells that agree in another.
_PARENTS = {"arrays": "shape", "options": "label"}


@dataclass(frozen=True)
class Point:
    """A value to draw and the ends of its interval; `floor` is the least it could be."""

    result: Result
    evidence: Evidence
    value: float
    lo: float | None = None
    hi: float | None = None
    floor: float | None = None
    unproved: bool = False


@dataclass(frozen=True)
class Series:
    """One series: its name, the points at each length, and the lengths that gave no value."""

    name: str
    points: Mapping[int, Sequence[Point]]
    lost: tuple[int, ...] = ()

    def centres(self) -> dict[int, float]:
        """The median of the points at each length, by length."""
        return {n: statistics.median(p.value for p in self.points[n]) for n in sorted(self.points)}


@dataclass(frozen=True)
class Panel:
    """What shares axes; `title` names what sets it apart from the other panels."""

    evidence: Evidence
    title: str
    scope: str
    series: tuple[Series, ...]

    @property
    def points(self) -> list[Point]:
        """Every point of the panel."""
        return [p for one in self.series for at in one.points.values() for p in at]


@dataclass(frozen=True)
class Sheet:
    """The panels of a figure, and what did not fit into it."""

    panels: tuple[Panel, ...]
    hidden_series: int
    hidden_panels: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the series, in order."""
        return tuple(dict.fromkeys(one.name for panel in self.panels for one in panel.series))

    @property
    def left_out(self) -> str:
        """What is not shown, in words; empty if all is."""
        said = []
        if self.hidden_series:
            said.append(f"{self.hidden_series} more series")
        if self.hidden_panels:
            said.append(f"{self.hidden_panels} more panels")
        return " and ".join(said)


def sheet(points: Sequence[Point], gaps: Sequence[Result] = (), baseline: str = "") -> Sheet:
    """Sort points into panels and series, strongest evidence first.

    Args:
        points: what to draw.
        gaps: cells without a value; one of the baseline leaves a gap in every series of its case.
        baseline: the name of the baseline, whose gaps those are; empty where it is a series itself.
    """
    results = [point.result for point in points]
    everything = [_coordinates(result) for result in (*results, *gaps)]
    known = everything[: len(points)]
    named = {
        name: _differs(name, known if name == "device" else everything)
        for name in (*_PANEL, *_SERIES)
    }
    in_panel = [name for name in _PANEL if named[name]]
    in_series = [name for name in _SERIES if named[name] or name == "label"]
    found: dict[tuple[str, ...], dict[tuple[str, ...], dict[int, list[Point]]]] = {}
    for point in points:
        key = (point.evidence, *_pick(point.result, in_panel))
        series = found.setdefault(key, {}).setdefault(_pick(point.result, in_series), {})
        series.setdefault(point.result.cell.seq, []).append(point)
    lost = _lost(found, gaps, baseline, in_panel, in_series)
    shown = _shown(found, lost)
    keys = sorted(found, key=lambda key: (-EVIDENCE_ORDER.index(key[0]), _natural(key)))
    panels = []
    for key in keys[:MOST_PANELS]:
        lines = [
            Series(_text(name), at, tuple(sorted(lost[key, name] - set(at))))
            for name in shown
            if (at := found[key].get(name, {})) or lost[key, name]
        ]
        first = next(p.result for run in found[key].values() for ps in run.values() for p in ps)
        title = ", ".join(filter(None, key[1:]))
        panels.append(Panel(key[0], title, first.cell.scope, tuple(lines)))  # type: ignore[arg-type]
    hidden = len({name for series in found.values() for name in series} - set(shown))
    return Sheet(tuple(panels), hidden, max(0, len(keys) - MOST_PANELS))


def _shown(
    found: Mapping[tuple[str, ...], Mapping[tuple[str, ...], Mapping[int, Sequence[Point]]]],
    lost: Mapping[tuple[tuple[str, ...], tuple[str, ...]], set[int]],
) -> list[tuple[str, ...]]:
    """The series to draw, by name: those with most points, and of them the lowest."""
    points: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for series in found.values():
        for name, at in series.items():
            points[name] += [p.value for ps in at.values() for p in ps]
    for (_, name), lengths in lost.items():
        if lengths:
            points.setdefault(name, [])
    order = sorted(
        points,
        key=lambda name: (
            -len(points[name]),
            statistics.median(points[name]) if points[name] else 0.0,
            name,
        ),
    )
    return sorted(order[:MOST_SERIES])


def _lost(
    found: Mapping[tuple[str, ...], Mapping[tuple[str, ...], Mapping[int, Sequence[Point]]]],
    gaps: Sequence[Result],
    baseline: str,
    in_panel: Sequence[str],
    in_series: Sequence[str],
) -> dict[tuple[tuple[str, ...], tuple[str, ...]], set[int]]:
    """The lengths that gave no value, by panel and series.

    A cell that failed does not know its level and may not know its device: it belongs to the panels
    that it fits otherwise, and there to its own kernel's; else to the one of weakest evidence.
    """
    lost: dict[tuple[tuple[str, ...], tuple[str, ...]], set[int]] = defaultdict(set)
    offset = 2 if "device" in in_panel else 1
    names = [name for name in in_panel if name != "device"]
    for gap in gaps:
        fitting = [key for key in found if key[offset:] == _pick(gap, names)]
        if label(gap) == baseline:
            for key in fitting:
                for series in found[key]:
                    lost[key, series].add(gap.cell.seq)
            continue
        name = _pick(gap, in_series)
        own = [key for key in fitting if name in found[key]]
        weakest = sorted(fitting, key=lambda key: EVIDENCE_ORDER.index(key[0]))[:1]
        for key in own or weakest:
            lost[key, name].add(gap.cell.seq)
    return lost


def _coordinates(result: Result) -> dict[str, str]:
    cell = result.cell
    return {
        "label": label(result),
        "scope": cell.scope,
        "direction": cell.direction,
        "dtype": cell.dtype,
        "shape": cell.shape,
        "arrays": arrays(result),
        "queries": "" if cell.q_len == cell.seq else f"{cell.q_len} queries",
        "regime": result.regime,
        "options": kernel_options(result),
        "device": device(result),
    }


def _differs(name: str, cells: Iterable[Mapping[str, str]]) -> bool:
    parent = _PARENTS.get(name)
    values = defaultdict(set)
    for coordinates in cells:
        values[coordinates[parent] if parent else ""].add(coordinates[name])
    return any(len(different) > 1 for different in values.values())


def _pick(result: Result, names: Sequence[str]) -> tuple[str, ...]:
    coordinates = _coordinates(result)
    return tuple(coordinates[name] for name in names)


def _natural(key: tuple[str, ...]) -> list[list[tuple[int, str]]]:
    """Sorts width 64 before width 128."""
    return [
        [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]
        for text in key
    ]


def _text(key: tuple[str, ...]) -> str:
    extra = ", ".join(filter(None, key[1:]))
    return key[0] + (f" ({extra})" if extra else "")

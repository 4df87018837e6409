"""Device time from the profiler's trace: what the platform itself says its ops took.

`jax.profiler.ProfileData` reads the trace. An op of a program is an event that names its HLO op; on
a GPU or TPU it lies on the device's own plane, on the CPU on one of the host's threads. Nested and
concurrent events count once: the time is the length of the union of their intervals.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData

from lab.records.benchmark import ProfilerTime

Span = tuple[float, float]
"""Begin and end of an event, in nanoseconds."""


def traced(run: Callable[[], object], *, calls: int, module: str) -> ProfilerTime | None:
    """Run under the profiler; None where the platform's trace names no ops of the module.

    Args:
        run: makes `calls` synchronised calls of one program.
        calls: how many.
        module: the program's HLO module, by name.
    """
    with tempfile.TemporaryDirectory(prefix="lab-trace-") as directory:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # its events would fill the trace's buffer
        with jax.profiler.trace(directory, profiler_options=options):
            run()
        spans = module_spans(Path(directory), {module})
    found = spans.get(module)
    if not found:
        return None
    plane, of_module = found
    call_ms = union_ns(of_module) / calls / 1e6
    return ProfilerTime(call_ms=call_ms, calls=calls, events=len(of_module), plane=plane)


def module_spans(directory: Path, modules: set[str]) -> dict[str, tuple[str, list[Span]]]:
    """The plane and the events of each module in the traces below a directory."""
    found: dict[str, tuple[str, list[Span]]] = {}
    with warnings.catch_warnings():
        # jaxlib's own types lack a name of their module, of which Python 3.13 warns; where that
        # warning is an error, it is thrown through C++ and ends the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        for path in sorted(directory.rglob("*.xplane.pb")):
            for plane in ProfileData.from_file(str(path)).planes:
                for module, span in _events(plane):
                    if module in modules:
                        found.setdefault(module, (str(plane.name), []))[1].append(span)
    return found


def _events(plane: Any) -> Iterator[tuple[str, Span]]:  # noqa: ANN401 - the class is private
    for line in plane.lines:
        for event in line.events:
            facts = dict(event.stats)
            if "hlo_op" in facts and "hlo_module" in facts:
                begin = float(event.start_ns)
                yield str(facts["hlo_module"]), (begin, begin + float(event.duration_ns))


def union_ns(spans: Iterable[Span]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def module_name(hlo_text: str) -> str:
    """The name of a compiled module by its text: `HloModule NAME, ...`."""
    return hlo_text.split(maxsplit=2)[1].rstrip(",")

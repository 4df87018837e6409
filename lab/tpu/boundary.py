"""Who owns what: the products and reductions inside Pallas kernels, and those left to XLA.

Read from the traced program, before any compiler has fused anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.core import jaxprs_in_params

_DOTS = frozenset({"dot_general", "conv_general_dilated"})
_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "reduce_sum", "argmax", "cumsum", "reduce"})


def describe(jaxpr: Any) -> dict[str, Any]:  # noqa: ANN401 - jax's jaxpr types are private
    """Count dots and reductions.

    Returns:
        {"pallas_calls": [{"name", "grid", "dots", "reductions"}], "xla": {"dots", "reductions"}}.
        An operation in a loop counts once: this is the program's text, not its run.
    """
    calls: list[dict[str, Any]] = []
    outside: Counter[str] = Counter()
    _visit(jaxpr, outside, calls)
    return {"pallas_calls": calls, "xla": _counts(outside)}


def interpreted(jaxpr: Any) -> list[str]:  # noqa: ANN401 - jax's jaxpr types are private
    """Names of the Pallas calls that ask to be interpreted, which leaves nothing to compile."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call" and equation.params.get("interpret"):
            found.append(_names(equation.params)["name"])
        for inner in _inner(equation.params):
            found += interpreted(inner)
    return found


def _visit(jaxpr: Any, counts: Counter[str], calls: list[dict[str, Any]]) -> None:  # noqa: ANN401
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        counts[name] += 1
        if name == "pallas_call":
            inside: Counter[str] = Counter()
            for inner in _inner(equation.params):
                _visit(inner, inside, calls)
            calls.append({**_names(equation.params), **_counts(inside)})
            continue
        for inner in _inner(equation.params):
            _visit(inner, counts, calls)


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    return iter(jaxprs_in_params(params))


def _names(params: dict[str, Any]) -> dict[str, Any]:
    # The parameters of pallas_call are no public interface: what is not found is left out.
    mapping = params.get("grid_mapping")
    grid = [int(size) for size in getattr(mapping, "grid", ()) if isinstance(size, int)]
    name = params.get("name") or getattr(params.get("name_and_src_info"), "name", None)
    return {"name": str(name or "pallas_call"), "grid": grid}


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {
        "dots": sum(n for name, n in counts.items() if name in _DOTS),
        "reductions": sum(n for name, n in counts.items() if name in _REDUCTIONS),
    }

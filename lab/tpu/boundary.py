"""Who owns what: the products and reductions inside Pallas kernels, and those left to XLA.

Read from the traced program, before any compiler has fused anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jax.extend.core import Jaxpr, jaxprs_in_params

from lab.records import CompileBoundary, PallasCall, XlaOwned

_DOTS = frozenset({"dot_general", "conv_general_dilated"})
_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "reduce_sum", "argmax", "cumsum", "reduce"})


def describe(jaxpr: Jaxpr) -> CompileBoundary:
    """Count dots and reductions.

    An operation in a loop counts once: this is the program's text, not its run.
    """
    calls: list[PallasCall] = []
    outside: Counter[str] = Counter()
    _visit(jaxpr, outside, calls)
    return CompileBoundary(pallas_calls=calls, xla=XlaOwned(**_counts(outside)))


def interpreted(jaxpr: Jaxpr) -> list[str]:
    """Names of the Pallas calls that ask to be interpreted, which leaves nothing to compile."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call" and equation.params.get("interpret"):
            found.append(_name(equation.params))
        for inner in jaxprs_in_params(equation.params):
            found += interpreted(inner)
    return found


def _visit(jaxpr: Jaxpr, counts: Counter[str], calls: list[PallasCall]) -> None:
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        counts[name] += 1
        if name == "pallas_call":
            inside: Counter[str] = Counter()
            for inner in jaxprs_in_params(equation.params):
                _visit(inner, inside, calls)
            # The parameters of pallas_call are no public interface: what is not found is left out.
            grid = getattr(equation.params.get("grid_mapping"), "grid", ())
            calls.append(
                PallasCall(
                    name=_name(equation.params),
                    grid=[int(size) for size in grid if isinstance(size, int)],
                    **_counts(inside),
                )
            )
            continue
        for inner in jaxprs_in_params(equation.params):
            _visit(inner, counts, calls)


def _name(params: Mapping[str, object]) -> str:
    name = params.get("name") or getattr(params.get("name_and_src_info"), "name", None)
    return str(name or "pallas_call")


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {
        "dots": sum(n for name, n in counts.items() if name in _DOTS),
        "reductions": sum(n for name, n in counts.items() if name in _REDUCTIONS),
    }

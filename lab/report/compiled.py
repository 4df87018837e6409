"""One compiled cell for a person: its time, its memory, its ops, and what bounds them."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

from lab.records import CompileSection

MEANINGS: Mapping[str, str] = {
    "waits for copies": "stalled on HBM traffic: fetch earlier, fetch less, or use larger blocks",
    "idle": "nothing issued, a unit's latency runs: give each step more independent work",
    "MXU": "matrix units: near 100 is what a product wants",
    "VALU": "vector arithmetic: masks, scaling, corrections, conversions",
    "EUP": "exp and reciprocal: fewer of them, or a cheaper form such as exp2",
    "XLU": "row maxima, row sums, transposes: fewer reductions a row, wider rows",
    "VLOAD": "VMEM loads: VLOAD:FILL is the part that only brings spilled registers back",
    "VSTORE": "VMEM stores: VSTORE:SPILL is the part that only spills registers; use smaller tiles",
    "HBM": "share of the chip's bandwidth that the loop's copies use",
}


def summary(section: CompileSection) -> str:
    """The section as Markdown of about thirty lines."""
    environment = Environment(
        loader=PackageLoader("lab.report"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, not HTML
    )
    environment.filters |= {
        "ms": lambda value: "none" if value is None else f"{value:.4g}",
        "mib": lambda value: f"{value / 2**20:,.1f}",
        "count": lambda value: "-" if value is None else f"{value:,}",
        "percent": lambda value: f"{100 * value:.0f}",
    }
    units = [unit for unit in _UNITS if any(loop.use.get(unit) for loop in section.loops)]
    return environment.get_template("compiled.md").render(
        c=section, units=units, meanings=_relevant(units)
    )


_UNITS = ("MXU", "VALU", "EUP", "XLU", "VLOAD", "VLOAD:FILL", "VSTORE", "VSTORE:SPILL", "HBM")


def _relevant(units: list[str]) -> dict[str, str]:
    always = ("waits for copies", "idle")
    return {name: text for name, text in MEANINGS.items() if name in (*always, *units)}

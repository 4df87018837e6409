"""The templates of a report's pages, and how they write values."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


def number(value: float | None, none: str = "") -> str:
    """Four significant digits; `none` where there is no value."""
    return none if value is None else f"{value:.4g}"


def count(value: int | None) -> str:
    """A whole number with its thousands apart."""
    return "-" if value is None else f"{value:,}"


def text(value: object) -> str:
    """A table's cell for people; the attribute beside it keeps the number for sorting."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e9 else number(value)
    return "" if value is None else str(value)


PAGES = Environment(
    loader=PackageLoader("lab.report"),
    undefined=StrictUndefined,
    autoescape=select_autoescape(("html",)),
)
PAGES.filters |= {
    "number": number,
    "ms": lambda value: number(value, none="none"),
    "ratio": lambda value: "" if value is None else f"{value:.2f}",
    "mib": lambda value: f"{value / 2**20:,.1f}",
    "count": count,
    "percent": lambda value: f"{100 * value:.0f}",
    "text": text,
}

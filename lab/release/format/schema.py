"""Columns as other programs want them: Frictionless Table Schema, Croissant, Hugging Face features.

All three are derived from the row models in `rows`; nothing about a column is written twice.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from lab.release.format import rows

TABLE_SCHEMA = "https://datapackage.org/profiles/2.0/tableschema.json"
# JSON Schema's names to those of Croissant and of Hugging Face datasets.
CROISSANT_TYPES = {
    "string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean",
}  # fmt: skip
FEATURE_TYPES = {
    "string": "string", "integer": "int64", "number": "float64", "boolean": "bool",
}  # fmt: skip
_CONSTRAINTS = {
    "enum": "enum",
    "pattern": "pattern",
    "minimum": "minimum",
    "exclusiveMinimum": "exclusiveMinimum",
}


@dataclass(frozen=True)
class Column:
    """One column: `type` is JSON Schema's name, `constraints` are Table Schema's."""

    name: str
    type: str
    description: str
    unit: str | None
    nullable: bool
    constraints: dict[str, Any]


@functools.cache
def columns(table: str) -> tuple[Column, ...]:
    """The columns of a table, in order."""
    properties: dict[str, Any] = rows.TABLES[table].model_json_schema()["properties"]
    return tuple(_column(name, spec) for name, spec in properties.items())


def _column(name: str, spec: dict[str, Any]) -> Column:
    choices: list[dict[str, Any]] = spec.get("anyOf", [spec])
    nullable = any(choice.get("type") == "null" for choice in choices)
    value = next(choice for choice in choices if choice.get("type") != "null")
    if "const" in value:
        value = {**value, "enum": [value["const"]]}
    limits = {**value, **{k: spec[k] for k in _CONSTRAINTS if k in spec}}
    return Column(
        name=name,
        type=value["type"],
        description=spec["description"],
        unit=rows.unit(name),
        nullable=nullable,
        constraints={ours: limits[key] for key, ours in _CONSTRAINTS.items() if key in limits},
    )


def table_schema(table: str) -> dict[str, Any]:
    """The Table Schema of a table; `unit` is our own property, absent for a pure number or text."""
    fields = []
    for column in columns(table):
        field: dict[str, Any] = {
            "name": column.name,
            "type": column.type,
            "description": column.description,
            "constraints": {"required": not column.nullable, **column.constraints},
        }
        if column.unit:
            field["unit"] = column.unit
        fields.append(field)
    schema: dict[str, Any] = {
        "$schema": TABLE_SCHEMA,
        "fields": fields,
        "primaryKey": list(rows.KEYS[table]),
    }
    if table not in ("systems", "provenance"):
        schema["foreignKeys"] = _references(table)
    return schema


def _references(table: str) -> list[dict[str, Any]]:
    own = {c.name for c in columns(table)}
    links: list[tuple[str, str, str]] = [
        (column, "provenance", "record")
        for column in ("record", "baseline_cell", "kernel_cell")
        if column in own
    ]
    links += [("system", "systems", "system")] if "system" in own else []
    return [
        {
            "fields": ["profile", column],
            "reference": {"resource": resource, "fields": ["profile", target]},
        }
        for column, resource, target in links
    ]


def features(table: str) -> list[dict[str, str]]:
    """The `features` of a table in a Hugging Face card."""
    return [{"name": c.name, "dtype": FEATURE_TYPES[c.type]} for c in columns(table)]

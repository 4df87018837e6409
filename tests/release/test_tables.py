"""Rows from records: levels, intervals, and what is compared with what."""

from __future__ import annotations

import random

import factory
import pytest

from lab.records import Result
from lab.release.build import tables
from lab.release.build.tables import Entry
from lab.release.format import rows, schema


def entries(*records: dict[str, object]) -> list[Entry]:
    results = [Result.model_validate(r) for r in records]
    return [Entry("p", r.cell_id, r, b"{}") for r in results]


def timed(kernel: str, ms: float, **changes: object) -> dict[str, object]:
    section = factory.timed(ms, rng=random.Random(3))
    return factory.record("benchmark", kernel=kernel, section=section, **changes)


def test_a_comparison_takes_the_weaker_level() -> None:
    made = tables.make(entries(timed("pallas", 2.0), timed("xla", 1.0)))
    (row,) = made["comparisons"]
    assert isinstance(row, rows.Comparison)
    assert row.evidence == "interpreted"
    assert row.slowdown == pytest.approx(2.0)
    assert row.slowdown_lo is not None
    assert row.slowdown_hi is not None
    assert row.slowdown_lo <= row.slowdown <= row.slowdown_hi


@pytest.mark.parametrize("change", [{"seed": 1}, {"device_kind": "other"}, {"seq": 512}])
def test_unlike_cases_are_not_compared(change: dict[str, object]) -> None:
    other = timed("xla", 1.0, **change)
    if "seed" in change:
        other["config"]["seed"] = 1  # type: ignore[index]
    assert "comparisons" not in tables.make(entries(timed("pallas", 2.0), other))


def test_estimates_are_compared_with_estimates_only() -> None:
    compiled = factory.tpu_compiled()[:1] + factory.tpu_compiled()[20:21]
    made = tables.make(entries(*compiled, timed("xla", 1.0)))
    (row,) = made["comparisons"]
    assert isinstance(row, rows.Comparison)
    assert (row.evidence, row.device_kind) == ("estimated", "v5e")
    # By the rule, as the cells' own estimates, 900 / 750; both executed 900 / 375.
    assert row.slowdown == row.slowdown_lo == pytest.approx(1.2)
    assert row.slowdown_hi == pytest.approx(2.4)


def test_every_number_with_a_dimension_has_a_unit_in_its_name() -> None:
    for table in rows.TABLES:
        for column in schema.columns(table):
            assert column.description
            if column.name.endswith("_ms"):
                assert column.unit == "ms"
                assert column.type == "number"


def test_every_table_schema_has_a_key_of_its_own_columns() -> None:
    for table in rows.TABLES:
        made = schema.table_schema(table)
        fields = {f["name"]: f for f in made["fields"]}
        assert set(made["primaryKey"]) <= set(fields)
        for link in made.get("foreignKeys", ()):
            assert set(link["fields"]) <= set(fields)
    evidence = {f["name"]: f for f in schema.table_schema("comparisons")["fields"]}["evidence"]
    assert evidence["constraints"]["enum"] == ["interpreted", "compiled", "estimated", "measured"]

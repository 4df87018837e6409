"""The audit's trials, run for real on two candidates and two cases."""

from __future__ import annotations

from typing import Any

import pytest

from lab import candidates
from lab.grading.audit import trials as audit_trials
from lab.tasks.audit import BASE_SEED


@pytest.fixture(scope="module")
def tables() -> dict[str, list[dict[str, Any]]]:
    """A control and a fault that only a causal case shows."""
    chosen = [c for c in candidates.configs() if c["name"] in ("naive", "ignores-causal")]
    assert len(chosen) == 2
    return audit_trials.run(
        {
            "candidates": chosen,
            "policy": "bf16",
            "cases": ["plain", "scaled-decode", "causal"],
            "relation_cases": ["causal"],
            "seeds": {"known-bad": 1, "control": 2},
            "repeats": 3,
            "base_seed": BASE_SEED,
        }
    )


def test_a_control_passes_every_trial(tables: dict[str, list[dict[str, Any]]]) -> None:
    rows = [row for row in tables["trials"] if row["candidate"] == "naive"]
    assert sorted((row["case"], row["seed"]) for row in rows) == sorted(
        (case, BASE_SEED + n) for case in ("plain", "scaled-decode", "causal") for n in range(2)
    )
    assert not any(row["killed"] for row in rows)
    assert all(0 < row["units"] <= 1 for row in rows)
    assert not any(check["candidate"] == "naive" for check in tables["checks"])


def test_a_fault_is_killed_where_it_shows(tables: dict[str, list[dict[str, Any]]]) -> None:
    killed = {
        row["case"]: row["killed"]
        for row in tables["trials"]
        if row["candidate"] == "ignores-causal"
    }
    assert killed == {"plain": False, "scaled-decode": False, "causal": True}
    gates = {row["gate"] for row in tables["checks"]}
    assert {"element", "future_keys"} <= gates  # relations ran, where they were asked for


def test_where_its_model_is_right_it_is_an_equivalent(
    tables: dict[str, list[dict[str, Any]]],
) -> None:
    assert {(row["candidate"], row["case"]) for row in tables["equivalents"]} == {
        ("ignores-causal", "plain"),
        ("ignores-causal", "scaled-decode"),  # one query, the last: it sees every key
    }


def test_verdicts_and_flips(tables: dict[str, list[dict[str, Any]]]) -> None:
    found = {row["candidate"]: (row["verdict"], row["named"]) for row in tables["verdicts"]}
    assert found["ignores-causal"] == ("rejected", "causal_ignored")
    # Three cases do not cover the suite, but none of them says anything against it.
    assert found["naive"][1] is None
    assert all(row.get("flips", 0) == 0 for row in tables["trials"])

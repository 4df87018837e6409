# ruff: noqa: ANN001, ANN201 - fixtures, typed by their names
"""The audit's arithmetic on trials made by hand, and its files."""

import json
from pathlib import Path

import pandas as pd
import pytest

from lab import candidates
from lab.grading.audit import summary as audit
from lab.tasks import audit as task


def trial(candidate, kind, case, units, fault_class=None, answer="ok"):
    gates = {f"{g}_{o}": 0.1 for g in ("element", "row", "gain") for o in ("out", "dq", "dk", "dv")}
    gates["element_out"] = units
    rules = dict.fromkeys(audit.RULES, units)
    return {
        "candidate": candidate, "kind": kind, "fault_class": fault_class, "case": case,
        "regime": "normal", "check": "accuracy", "seed": 1, "answer": answer, **gates, **rules,
        "units": units, "killed": units > 1, "flips": 0,
    }  # fmt: skip


def verdict(candidate, kind, verdict, fault_class=None, named=None, caught_by=None, checks=()):
    expected = "accepted" if kind == "control" else "rejected"
    return {
        "candidate": candidate, "kind": kind, "expected": expected, "verdict": verdict,
        "tier": None, "score": 1.0, "fault_class": fault_class, "named": named, "why": None,
        "caught_by": caught_by, "failed_checks": list(checks),
    }  # fmt: skip


@pytest.fixture
def found():
    return audit.Audit(
        trials=pd.DataFrame([
            trial("bad", "known-bad", "a", 9.0, "scale"),
            trial("bad", "known-bad", "b", 0.2, "scale"),  # equivalent there
            trial("sly", "known-bad", "a", 0.3, "empty_row"),
            trial("sly", "known-bad", "b", 0.3, "empty_row"),
            trial("good", "control", "a", 0.5),
            trial("good", "control", "b", 0.7),
        ]),
        checks=pd.DataFrame([
            {"candidate": "bad", "check": "scale", "gate": "element", "case": "a", "output": "out"},
            {"candidate": "sly", "check": "empty_row", "gate": "empty_row_is_zero", "case": "b",
             "output": "out"},
        ]),
        verdicts=pd.DataFrame([
            verdict("bad", "known-bad", "rejected", "scale", "scale", "scale", ["scale"]),
            verdict("sly", "known-bad", "rejected", "empty_row", "overflow", "empty_row", []),
            verdict("good", "control", "accepted"),
        ]),
        equivalents=pd.DataFrame([{"candidate": "bad", "case": "b", "reason": "T equals S"}]),
    )  # fmt: skip


def test_headline_figures(found):
    result = audit.summary(found, "full")
    assert result["suite_kills"]["hits"] == result["suite_kills"]["n"] == 2
    assert (result["trial_kills"]["hits"], result["trial_kills"]["n"]) == (1, 3)
    assert result["false_rejects"]["hits"] == 0
    assert result["false_rejects"]["bound_3_over_n"] == 1.5
    assert result["right_class"]["rate"] == 0.5
    assert result["caught_by_its_check"]["hits"] == 1
    assert result["largest_control_units"] == 0.7
    assert [f.split()[0] for f in result["failures"]] == ["trial_kills", "right_class"]


def test_an_equivalent_pair_is_in_no_denominator(found):
    assert len(found.bad) == 3
    table = audit.kill_by_class(found).set_index("fault_class")
    assert table.loc["scale", "trials"] == 1
    assert table.loc["scale", "trial_rate"] == 1.0


def test_a_candidate_that_is_equivalent_everywhere_is_no_survivor(found):
    rows = [{"candidate": "sly", "case": case, "reason": "never wrong"} for case in "ab"]
    everywhere = audit.Audit(
        found.trials,
        found.checks[found.checks.candidate != "sly"],
        found.verdicts,
        pd.concat([found.equivalents, pd.DataFrame(rows)]),
    )
    result = audit.summary(everywhere, "full")
    assert result["survivors"] == []
    assert result["suite_kills"]["n"] == 1


def test_a_survivor_and_a_false_reject_are_failures(found):
    trials = found.trials.copy()
    trials.loc[trials.candidate == "good", ["units", "killed"]] = (2.0, True)
    blind = audit.Audit(trials, found.checks[found.checks.candidate != "sly"], found.verdicts,
                        found.equivalents)  # fmt: skip
    failures = audit.summary(blind, "quick")["failures"]
    assert "not killed: sly" in failures
    assert any("2 false rejects" in line for line in failures)


def test_nothing_measured_is_no_success(found):
    empty = audit.Audit(
        found.trials[found.trials.kind == "control"],
        found.checks[:0],
        found.verdicts[found.verdicts.kind == "control"],
        found.equivalents[:0],
    )
    result = audit.summary(empty, "full")
    assert result["trial_kills"]["rate"] is None
    assert "trial_kills: nothing was measured" in result["failures"]
    assert audit.rate(0, 0)["rate"] is None
    assert audit.wilson(0, 0) is None


def test_wilson_interval():
    low, high = audit.wilson(95, 100)
    assert (round(low, 3), round(high, 3)) == (0.888, 0.978)  # Wilson 1927, by hand


def test_what_a_gate_alone_catches(found):
    gates = audit.marginal(found).set_index("gate")
    assert gates.loc["relations", "candidates_killed_only_by_it"] == 1
    assert gates.loc["element", "candidates_killed_only_by_it"] == 1
    assert gates.loc["row", "pairs_killed_only_by_it"] == 0


def test_curves_fall_as_the_threshold_grows(found):
    table = audit.curves(found)
    ours = table[(table.rule == "units") & (table.kind == "known-bad")].rejected
    assert ours.is_monotonic_decreasing
    assert ours.iloc[0] == 1.0


def test_files(found, tmp_path):
    files = task.write(found, "quick", tmp_path)
    assert all((tmp_path / name).stat().st_size > 0 for name in files)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["candidates"] == 3


def test_a_quick_audit_has_every_class_without_pallas_alone_and_controls():
    configs = candidates.configs()
    quick = task.choose(configs, task.SIZES["quick"])
    full = task.choose(configs, task.SIZES["full"])
    assert full == configs
    plain = {c["fault_class"] for c in configs if not c["name"].startswith("pallas")}
    assert {c["fault_class"] for c in quick} == plain
    assert sum(c["kind"] == "control" for c in quick) == task.SIZES["quick"].controls
    assert len(quick) < 45


def test_control_trials_of_a_full_audit_suffice():
    size = task.SIZES["full"]
    controls = sum(c["kind"] == "control" for c in candidates.configs())
    assert controls * len(size.cases) * size.seeds["control"] >= 3200


def test_the_heatmap_says_what_its_colours_mean(tmp_path: Path) -> None:
    from lab.grading.audit import figures

    table = pd.DataFrame([[0, 1], [100, 0]], index=["a", "b"], columns=["x", "y"])
    figures.heatmap(table, tmp_path / "heatmap")
    drawn = (tmp_path / "heatmap.svg").read_text()
    assert "<!-- findings -->" in drawn
    assert "<!-- $\\mathdefault{10^{2}}$ -->" in drawn

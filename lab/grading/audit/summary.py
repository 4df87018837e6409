"""What the grader's own error rates are: tables from the audit's trials, jax-free.

Denominators are explicit: a (candidate, case) pair whose float64 model equals the truth is no
fault and is left out; an empty denominator gives no rate at all, never 100 percent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from lab.grading.audit.usual_rules import RULES

Z95 = 1.959964  # two-sided 95 % of the normal distribution
MULTIPLES = np.geomspace(0.1, 100, 61)
GATE_COLUMNS = {
    "element": [f"element_{o}" for o in ("out", "dq", "dk", "dv")],
    "row": [f"row_{o}" for o in ("out", "dq", "dk", "dv")],
    "gain": [f"gain_{o}" for o in ("out", "dq", "dk", "dv")],
}
# What a full audit must show; a quick one is held to all but the trial rates.
MIN_TRIAL_KILLS = 0.95
MIN_RIGHT_CLASS = 0.90


@dataclass(frozen=True)
class Audit:
    """The tables of one audit: raw rows of the trials and what follows from them.

    Attributes:
        trials: a row a (candidate, case, seed).
        checks: a row a failed check, gate, case and output of a candidate's first seed.
        verdicts: a row a candidate.
        equivalents: (candidate, case) pairs outside every denominator, with the reason.
    """

    trials: pd.DataFrame
    checks: pd.DataFrame
    verdicts: pd.DataFrame
    equivalents: pd.DataFrame

    @cached_property
    def bad(self) -> pd.DataFrame:
        """Trials of known-bad candidates that are not equivalent there."""
        found = self.trials[self.trials.kind == "known-bad"]
        return found[~self._is_equivalent(found)]

    @cached_property
    def controls(self) -> pd.DataFrame:
        """Trials of controls."""
        return self.trials[self.trials.kind == "control"]

    def _is_equivalent(self, rows: pd.DataFrame) -> pd.Series[bool]:
        pairs = set(zip(self.equivalents.candidate, self.equivalents.case, strict=True))
        keys = zip(rows.candidate, rows.case, strict=True)
        return pd.Series([key in pairs for key in keys], index=rows.index, dtype=bool)

    def killed_pairs(self, drop_gate: str | None = None) -> set[tuple[str, str]]:
        """(candidate, case) pairs that some gate but `drop_gate` rejects."""
        pairs = set()
        for gate, columns in GATE_COLUMNS.items():
            if gate != drop_gate:
                rows = self.trials[(self.trials[columns] > 1).any(axis=1)]
                pairs |= set(zip(rows.candidate, rows.case, strict=True))
        if drop_gate != "answer":
            rows = self.trials[self.trials.answer != "ok"]
            pairs |= set(zip(rows.candidate, rows.case, strict=True))
        if drop_gate != "relations":
            rows = self.checks[~self.checks.gate.isin(["element", "row", "gain", "answer"])]
            pairs |= set(zip(rows.candidate, rows.case, strict=True))
        return pairs


def wilson(hits: int, n: int) -> tuple[float, float] | None:
    """The 95 % Wilson score interval of a proportion (Wilson, 1927); None of nothing."""
    if n == 0:
        return None
    p = hits / n
    centre = p + Z95**2 / (2 * n)
    spread = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return (centre - spread) / scale, (centre + spread) / scale


def rate(hits: int, n: int) -> dict[str, Any]:
    """Hits of n with their interval; the rate is None when n is 0."""
    interval = wilson(hits, n)
    low, high = interval or (None, None)
    return {"hits": hits, "n": n, "rate": hits / n if n else None, "low": low, "high": high}


def kill_by_class(audit: Audit) -> pd.DataFrame:
    """Kill rate of each fault class: by trial (numeric gates), by suite (everything), and names."""
    killed = {candidate for candidate, _ in audit.killed_pairs()}
    verdicts = audit.verdicts[audit.verdicts.kind == "known-bad"]
    rows = []
    for name, group in verdicts.groupby("fault_class"):
        trials = audit.bad[audit.bad.fault_class == name]
        by_trial = rate(int(trials.killed.sum()), len(trials))
        rows.append(
            {
                "fault_class": name,
                "candidates": len(group),
                "suite_killed": sum(c in killed for c in group.candidate),
                "right_class": int((group.named == group.fault_class).sum()),
                "trials": by_trial["n"],
                "trials_killed": by_trial["hits"],
                "trial_rate": by_trial["rate"],
                "trial_rate_low": by_trial["low"],
                "trial_rate_high": by_trial["high"],
            }
        )
    return pd.DataFrame(rows)


def confusion(audit: Audit) -> pd.DataFrame:
    """Counts of (class, class that the verdict named) over rejected known-bad candidates."""
    bad = audit.verdicts[audit.verdicts.kind == "known-bad"]
    named = bad.named.fillna("none")
    return pd.crosstab(bad.fault_class, named).reset_index()


def marginal(audit: Audit) -> pd.DataFrame:
    """What each gate alone catches: pairs and candidates that survive without it."""
    everything = audit.killed_pairs()
    bad = set(audit.verdicts[audit.verdicts.kind == "known-bad"].candidate)
    pairs = {pair for pair in everything if pair[0] in bad}
    suites = {candidate for candidate, _ in pairs}
    rows = []
    for gate in (*GATE_COLUMNS, "relations", "answer"):
        left = {pair for pair in audit.killed_pairs(gate) if pair[0] in bad}
        rows.append(
            {
                "gate": gate,
                "pairs_killed_only_by_it": len(pairs - left),
                "candidates_killed_only_by_it": len(suites - {c for c, _ in left}),
                "pairs_killed": len(pairs),
            }
        )
    return pd.DataFrame(rows)


def curves(audit: Audit) -> pd.DataFrame:
    """Share of trials rejected at multiples of each rule's threshold, known-bad and controls."""
    rows = []
    for rule in ("units", *RULES):
        for multiple in MULTIPLES:
            for kind, trials in (("known-bad", audit.bad), ("control", audit.controls)):
                hits = int((trials[rule].fillna(np.inf) > multiple).sum())
                share = hits / len(trials) if len(trials) else math.nan
                rows.append({"rule": rule, "multiple": multiple, "kind": kind, "rejected": share})
    return pd.DataFrame(rows)


def margins(audit: Audit) -> pd.DataFrame:
    """How far from the limit both sides stay, by case: units of the bound."""
    rows = []
    for case, trials in audit.trials.groupby("case"):
        controls = audit.controls[audit.controls.case == case].units
        bad = audit.bad[(audit.bad.case == case) & audit.bad.killed].units
        rows.append(
            {
                "case": case,
                "trials": len(trials),
                "control_max_units": controls.max() if len(controls) else None,
                "killed_min_units": bad.min() if len(bad) else None,
            }
        )
    return pd.DataFrame(rows)


def heatmap(audit: Audit) -> pd.DataFrame:
    """Candidate by check: how many findings failed (first seed)."""
    table = pd.crosstab(audit.checks.candidate, audit.checks.check)
    return table.reindex(sorted(table.index))


def summary(audit: Audit, size: str) -> dict[str, Any]:
    """The headline figures, and `failures`: every goal that was missed, one line each."""
    verdicts = audit.verdicts
    bad = verdicts[verdicts.kind == "known-bad"]
    low = verdicts[verdicts.kind == "low-precision"]
    controls = verdicts[verdicts.kind == "control"]
    equivalent = audit.equivalents.groupby("candidate").case.nunique()
    cases = audit.trials.case.nunique()
    never_wrong = {c for c, n in equivalent.items() if n == cases}
    real = bad[~bad.candidate.isin(never_wrong)]
    killed = {candidate for candidate, _ in audit.killed_pairs()}
    survivors = sorted(set(real.candidate) - killed)
    false_rejects = int(audit.controls.killed.sum())
    n = len(audit.controls)
    rejected_controls = sorted(controls[controls.verdict != "accepted"].candidate)
    caught = [by in checks for by, checks in zip(real.caught_by, real.failed_checks, strict=True)]
    result: dict[str, Any] = {
        "candidates": len(verdicts),
        "trials": len(audit.trials),
        "suite_kills": rate(len(set(real.candidate) & killed), len(real)),
        "trial_kills": rate(int(audit.bad.killed.sum()), len(audit.bad)),
        "survivors": survivors,
        "false_rejects": {**rate(false_rejects, n), "bound_3_over_n": 3 / n if n else None},
        "rejected_controls": rejected_controls,
        "right_class": rate(int((real.named == real.fault_class).sum()), len(real)),
        "caught_by_its_check": rate(sum(caught), len(caught)),
        "right_tier": rate(int((low.verdict == low.expected).sum()), len(low)),
        "equivalent_pairs": len(audit.equivalents),
        "flips": int(audit.trials.flips.fillna(0).sum()),
        "largest_control_units": float(audit.controls.units.max()) if n else None,
    }
    result["failures"] = _failures(result, verdicts[~verdicts.candidate.isin(never_wrong)], size)
    return result


def _failures(result: dict[str, Any], verdicts: pd.DataFrame, size: str) -> list[str]:
    failures = []
    if result["survivors"]:
        failures.append(f"not killed: {', '.join(result['survivors'])}")
    if result["false_rejects"]["hits"] or result["rejected_controls"]:
        which = ", ".join(result["rejected_controls"]) or "see trials.csv"
        failures.append(f"{result['false_rejects']['hits']} false rejects ({which})")
    if result["flips"]:
        failures.append(f"{result['flips']} verdicts flipped on repetition")
    surprising = verdicts[(verdicts.verdict != verdicts.expected) & (verdicts.kind != "control")]
    if len(surprising):
        failures.append(f"unexpected verdicts: {', '.join(sorted(surprising.candidate))}")
    for key, least in (("trial_kills", MIN_TRIAL_KILLS), ("right_class", MIN_RIGHT_CLASS)):
        found = result[key]["rate"]
        if found is None:
            failures.append(f"{key}: nothing was measured")
        elif size == "full" and found < least:
            failures.append(f"{key} {found:.1%}, at least {least:.0%} is asked")
    return failures

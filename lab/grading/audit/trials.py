"""The audit's trials, in a worker process: candidates through cases and seeds, numbers only.

A trial is one candidate on one case with one seed: one compiled forward and backward, the numeric
gates, and the usual rules beside them. Relations run once a candidate and regime, repeats on one
seed, and a pair that nothing killed is asked whether its float64 model is right there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lab import candidates
from lab.grading.audit.usual_rules import ratios
from lab.grading.cases import BY_NAME, Case
from lab.grading.engine import summarise
from lab.grading.examine import Examined, checked, examine_one, findings
from lab.grading.executor import Answer, InProcess, call_of
from lab.grading.findings import OUTPUTS
from lab.grading.judge.numeric import Reference, judge_attention
from lab.grading.judge.tiers import DECLARED
from lab.truth.problems import POLICIES, DtypePolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Row = dict[str, Any]
EXACT = DtypePolicy("f64", "float64", "float64", "float64", "float64")
# A float64 model is right if it agrees to this share of the result's size.
EQUAL = 1e-8
REPEAT_LIMIT = 1 << 18  # logits: larger cases are not repeated


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Worker entry.

    Args:
        payload: `candidates` (their configs), `policy`, `cases` (names), `relation_cases`,
            `seeds` by kind, `repeats`, `base_seed`.

    Returns:
        `trials`, `checks` (failed findings a candidate), `verdicts`, `equivalents`: rows.
    """
    policy = POLICIES[payload["policy"]]
    cases = [BY_NAME[name] for name in payload["cases"]]
    references: dict[tuple[str, int], Reference] = {}
    tables: dict[str, list[Row]] = {"trials": [], "checks": [], "verdicts": [], "equivalents": []}
    for config in payload["candidates"]:
        _candidate(config, policy, cases, payload, references, tables)
        jax.clear_caches()
    return tables


def _candidate(
    config: Mapping[str, Any],
    policy: DtypePolicy,
    cases: Sequence[Case],
    payload: Mapping[str, Any],
    references: dict[tuple[str, int], Reference],
    tables: dict[str, list[Row]],
) -> None:
    name, tier = config["name"], DECLARED[policy.name]
    executor = InProcess(candidates.load(config, policy=policy, interpret=True))
    seeds = [payload["base_seed"] + n for n in range(payload["seeds"][config["kind"]])]
    first: list[Examined] = []
    killed: set[str] = set()
    for case in cases:
        for seed in seeds:
            if (case.name, seed) not in references:
                references[case.name, seed] = Reference(case.problem(policy, seed))
            reference = references[case.name, seed]
            with_relations = seed == seeds[0] and case.name in payload["relation_cases"]
            one = examine_one(executor, case, reference, seed if with_relations else None)
            row = _trial(config, one, seed, tier)
            if seed == seeds[0]:
                first.append(one)
                row["flips"] = _flips(executor, one, tier, payload["repeats"], row["killed"])
            tables["trials"].append(row)
            if row["killed"]:
                killed.add(case.name)
    section = summarise(first, tier, config["expected"])
    failed = {(f.check, f.gate, f.case, f.output) for e in first for f in findings(e, tier)
              if not f.passed}  # fmt: skip
    tables["checks"] += [
        {"candidate": name, "check": c, "gate": g, "case": case, "output": o}
        for c, g, case, o in sorted(failed)
    ]
    killed |= {case for _, _, case, _ in failed}
    tables["verdicts"].append(
        {
            "candidate": name,
            "kind": config["kind"],
            "expected": config["expected"],
            "verdict": section.verdict,
            "tier": section.tier,
            "score": section.score,
            "fault_class": config["fault_class"],
            "named": section.fault_class,
            "why": section.details.get("why"),
            "caught_by": config.get("caught_by"),
            "failed_checks": [item.id for item in section.items if not item.passed],
        }
    )
    if config["kind"] == "known-bad":
        survivors = [e for e in first if e.case.name not in killed]
        tables["equivalents"] += list(_equivalents(config, survivors))


def _trial(config: Mapping[str, Any], one: Examined, seed: int, tier: str) -> Row:
    units = {f"{gate}_{output}": None for output in OUTPUTS for gate in ("element", "row", "gain")}
    row: Row = {
        "candidate": config["name"],
        "kind": config["kind"],
        "fault_class": config["fault_class"],
        "case": one.case.name,
        "regime": one.case.regime,
        "check": one.case.check,
        "seed": seed,
        "answer": one.answer.kind,
        **units,
    }
    if one.judged:
        found = judge_attention(one.answer, one.reference, tier)
        row |= {f"{f.gate}_{f.output}": _finite(f.units) for f in found}
        row |= {rule: _finite(ratio) for rule, ratio in ratios(one.answer, one.reference).items()}
        row["units"] = max(row[key] for key in units if row[key] is not None)
        missing = any(getattr(one.answer, output) is None for output in OUTPUTS)
        row["killed"] = missing or row["units"] > 1
    else:
        row["units"], row["killed"] = _finite(math.inf), True
    return row


def _flips(executor: InProcess, one: Examined, tier: str, repeats: int, killed: bool) -> int:
    """How often the verdict on a case changes when it is asked again."""
    if one.reference.inside.s.size > REPEAT_LIMIT or not one.judged:
        return 0
    flips = 0
    for answer in executor.run([one.reference.call] * (repeats - 1)):
        answer = checked(answer, one.reference.call)  # noqa: PLW2901 - the same, checked
        if answer.kind == "ok" and all(getattr(answer, o) is not None for o in OUTPUTS):
            again = any(not f.passed for f in judge_attention(answer, one.reference, tier))
        else:
            again = True
        flips += again != killed
    return flips


def _equivalents(config: Mapping[str, Any], survivors: Sequence[Examined]) -> Iterator[Row]:
    """Pairs whose float64 model gives the truth: not wrong there, whatever the fault."""
    with jax.enable_x64(True):
        try:
            executor = InProcess(candidates.load(config, policy=EXACT, interpret=True))
        except Exception:  # noqa: BLE001 - no model, no excuse
            return
        for one in survivors:
            call = call_of(one.reference.problem)
            wide = {
                name: np.asarray(getattr(call, name), np.float64)
                for name in ("q", "k", "v", "cotangent")
            }
            answer = executor.run([replace(call, **wide)])[0]  # type: ignore[arg-type]
            if _equal(answer, one.reference):
                reason = config.get("equivalent_when") or "its float64 model equals the truth"
                yield {"candidate": config["name"], "case": one.case.name, "reason": reason}


def _equal(answer: Answer, reference: Reference) -> bool:
    if answer.kind != "ok":
        return False
    for output in OUTPUTS:
        got, truth = getattr(answer, output), reference.truth[output]
        if got is None or not np.isfinite(got).all():
            return False
        if np.abs(got - truth).max() > EQUAL * max(1.0, float(np.abs(truth).max())):
            return False
    return True


def _finite(value: float) -> float:
    """JSON has no infinity; a billion is as far out as any plot goes."""
    return min(value, 1e9)

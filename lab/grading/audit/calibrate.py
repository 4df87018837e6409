"""Remake calibration.json from the controls: `python -m lab.grading.audit.calibrate` (minutes)."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lab import candidates
from lab.grading.cases import SUITE
from lab.grading.executor import InProcess
from lab.grading.findings import OUTPUTS
from lab.grading.judge.calibration import FEW_TERMS, FLOOR, HEADROOM, SEEDS, TABLE, content_hash
from lab.grading.judge.numeric import Reference, concentration, row_ratios
from lab.grading.judge.tiers import DECLARED
from lab.truth.problems import POLICIES

Largest = dict[str, dict[str, dict[str, float]]]


def measure(names: list[str], policy: str, seeds: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """The largest ratio of each output over these controls, cases and seeds."""
    found = {output: {"many": 0.0, "few": 0.0} for output in OUTPUTS}
    references = {
        (case.name, seed): Reference(case.problem(POLICIES[policy], seed))
        for case in SUITE
        for seed in seeds
    }
    for config in candidates.configs():
        if config["name"] not in names:
            continue
        executor = InProcess(candidates.load(config, policy=POLICIES[policy], interpret=True))
        for (case, _), reference in references.items():
            answer = executor.run([reference.call])[0]
            if answer.kind != "ok" or answer.backward_error:
                raise SystemExit(f"{config['name']} on {case}: {answer.detail}")
            bounds = reference.bounds(DECLARED[policy])
            for output, bound in bounds.items():
                ratio = row_ratios(getattr(answer, output), reference.truth[output], bound)
                ratio = ratio / concentration(bound)
                few = np.broadcast_to(bound.terms < FEW_TERMS, ratio.shape)
                for kind, rows in (("few", few), ("many", ~few)):
                    if rows.any():
                        found[output][kind] = max(found[output][kind], float(ratio[rows].max()))
        jax.clear_caches()
        print(policy, config["name"], json.dumps(found), flush=True)  # noqa: T201 - progress
    return found


def main() -> None:
    """Measure, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controls", nargs="*", help="names; default: every control")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--policies", nargs="*", default=list(HEADROOM))
    parser.add_argument("--out", type=Path, default=TABLE)
    options = parser.parse_args()
    names = options.controls or [c["name"] for c in candidates.configs() if c["kind"] == "control"]
    seeds = SEEDS[: options.seeds]
    largest: Largest = {policy: measure(names, policy, seeds) for policy in options.policies}
    controls = dict.fromkeys(options.policies, names)
    options.out.write_text(json.dumps(table_of(largest, controls, list(seeds)), indent=2) + "\n")


def table_of(largest: Largest, controls: dict[str, list[str]], seeds: list[int]) -> dict[str, Any]:
    """The table from the largest ratios: thresholds rounded up to two digits, and the hash."""
    thresholds = {
        policy: {
            output: {
                kind: max(FLOOR[policy][kind], math.ceil(100 * HEADROOM[policy] * ratio) / 100)
                for kind, ratio in kinds.items()
            }
            for output, kinds in outputs.items()
        }
        for policy, outputs in largest.items()
    }
    table: dict[str, Any] = {
        "seeds": seeds,
        "controls": {policy: sorted(names) for policy, names in controls.items()},
        "cases": [case.name for case in SUITE],
        "few_terms": FEW_TERMS,
        "headroom": HEADROOM,
        "floor": FLOOR,
        "largest": largest,
        "thresholds": thresholds,
    }
    return {**table, "sha256": content_hash(table)}


if __name__ == "__main__":
    main()

"""Do right kernels flake? Fresh seeds on controls: `python -m lab.grading.audit.seeds` (an hour).

A right kernel that fails one seed in a thousand breaks somebody's build. Here a few controls, each
right in a way that rounds more than most, meet many seeds that nothing was calibrated on: one trial
is a control and a seed, rejected if any result of any case breaks any numeric gate. Only the cases
that came nearest to a bound are asked (`NEAR`), and two with larger groups than the suite has.
Each program is compiled once, each truth is computed once a seed.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lab import candidates
from lab.grading.cases import BY_NAME, Case
from lab.grading.examine import Examined, findings
from lab.grading.executor import InProcess
from lab.grading.judge.numeric import Reference
from lab.grading.judge.tiers import DECLARED
from lab.truth.problems import POLICIES, Shape

if TYPE_CHECKING:
    from lab.grading.findings import Finding

FIRST_SEED = 1_000_000  # calibration and audit use seeds below 100,000
CONTROLS = (
    "repeat-of-inputs",  # dK and dV rounded by query head before the sum over the group
    "pallas-vmapped",
    "flash-backward",  # P, dS and the row term rounded
    "plain-bf16",  # nothing widened
    "bf16-probabilities",
)
# Where controls came nearest to a bound when every case was asked.
NEAR = (
    "plain", "plain-peaky", "plain-one-hot", "plain-moving-max", "plain-mixture", "cached",
    "grouped", "cached-grouped", "scaled-decode", "padded", "padded-poisoned",
    "decode-1-padded-grouped", "decode-4-causal-grouped", "decode-8-padded-grouped",
)  # fmt: skip
LARGE_GROUPS = (
    Case("group-of-8", "gqa_mapping", Shape(2, 8, 1, 24, 104, 64, causal=False, padding="none")),
    Case("group-of-16", "gqa_mapping", Shape(1, 16, 1, 24, 72, 64, causal=True, padding="tail")),
)


@dataclass(frozen=True)
class Row:
    """A control over all its seeds, and the finding that came nearest to its bound."""

    control: str
    seeds: int
    rejected: int
    worst_units: float
    case: str
    output: str
    gate: str
    seed: int


def measure(
    names: Sequence[str], cases: Sequence[Case], seeds: Sequence[int], policy: str
) -> Iterator[list[Row]]:
    """Rows by control after each seed; the last ones are the result.

    Args:
        names: controls of lab.candidates.
        cases: what each seed asks.
        seeds: fresh ones.
        policy: dtype policy.
    """
    known = {config["name"]: config for config in candidates.configs()}
    executors = {
        name: InProcess(candidates.load(known[name], policy=POLICIES[policy], interpret=True))
        for name in names
    }
    worst: dict[str, tuple[Finding, int]] = {}
    rejected = dict.fromkeys(names, 0)
    for count, seed in enumerate(seeds, 1):
        failed = set()
        for case in cases:
            reference = Reference(case.problem(POLICIES[policy], seed))
            for name, executor in executors.items():
                answer = executor.run([reference.call])[0]
                if answer.backward_error:
                    failed.add(name)
                for found in findings(Examined(case, reference, answer, ()), DECLARED[policy]):
                    if name not in worst or found.units > worst[name][0].units:
                        worst[name] = found, seed
                    if not found.passed:
                        failed.add(name)
        for name in failed:
            rejected[name] += 1
        yield [
            Row(name, count, rejected[name], round(f.units, 3), f.case, f.output, f.gate, seed)
            for name, (f, seed) in worst.items()
        ]


def main() -> int:
    """Measure, write the table, print the totals; 1 if a right kernel was rejected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="fresh seeds a control")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--controls", nargs="*", default=list(CONTROLS))
    parser.add_argument("--cases", nargs="*", help="names; default: those near a bound")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="bf16")
    parser.add_argument("--out", type=Path, help="a CSV file, a row a control")
    options = parser.parse_args()
    cases = [*(BY_NAME[name] for name in options.cases or NEAR), *LARGE_GROUPS]
    seeds = range(options.first, options.first + options.seeds)
    rows: list[Row] = []
    for rows in measure(options.controls, cases, seeds, options.policy):
        if rows[0].seeds % 25 == 0:
            _say(rows, len(cases), sys.stderr)
        if options.out:
            _write(rows, options.out)
    _say(rows, len(cases), sys.stdout)
    return int(any(row.rejected for row in rows))


def _say(rows: Sequence[Row], cases: int, stream: TextIO) -> None:
    trials, rejected = sum(row.seeds for row in rows), sum(row.rejected for row in rows)
    worst = max(rows, key=lambda row: row.worst_units)
    print(
        f"{rejected} of {trials} rejected ({len(rows)} right kernels, {rows[0].seeds} seeds each, "
        f"{cases} cases a seed); nearest to its bound: {worst.control}, {worst.output} of "
        f"{worst.case}, {worst.worst_units:.3f} (gate {worst.gate}, seed {worst.seed})",
        file=stream,
        flush=True,
    )


def _write(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(map(astuple, rows))


if __name__ == "__main__":
    sys.exit(main())

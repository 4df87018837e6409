# ruff: noqa: INP001, T201 - a script, and it prints
"""Test the grader as it tests others: plant known defects in a copy, and see its tests fail.

Each defect was found in some public grader. A mutant that no longer applies is an error, not a
success; so is a test suite that is red before anything was planted. Run it by `make mutants`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "test_gates.py", "test_engine.py", "test_audit.py", "test_coverage.py", "test_systematic.py",
    "test_sandbox_failures.py",
)  # fmt: skip
LEAST_CAUGHT = 0.9


@dataclass(frozen=True)
class Mutant:
    """One defect: in which file, what is replaced by what."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    Mutant("tolerance ignored", "lab/grading/judge/numeric.py",
           "gate, case, output, worst <= 1.0, worst", "gate, case, output, True, worst"),
    Mutant("only the last output checked", "lab/grading/judge/numeric.py",
           "    for name in outputs:\n", "    for name in tuple(outputs)[-1:]:\n"),
    Mutant("only the output checked, no gradient", "lab/grading/judge/numeric.py",
           "    for name in outputs:\n", "    for name in tuple(outputs)[:1]:\n"),
    Mutant("NaN matches", "lab/grading/judge/numeric.py",
           "np.where(np.isnan(ratio), np.inf, ratio)", "np.where(np.isnan(ratio), 0.0, ratio)"),
    Mutant("mean instead of the worst row", "lab/grading/judge/numeric.py",
           "worst = float(units.max())", "worst = float(units.mean())"),
    Mutant("tolerance grows with the array", "lab/grading/judge/numeric.py",
           "np.where(error == 0, 0.0, error / bound)",
           "np.where(error == 0, 0.0, error / bound / error.size)"),
    Mutant("the row gate is switched off", "lab/grading/judge/numeric.py",
           "units = _as_units(row_ratios(got, truth, bound) / (threshold",
           "units = 0 * _as_units(row_ratios(got, truth, bound) / (threshold"),
    Mutant("the truth shares the wrong causal mask", "lab/truth/direct.py",
           "np.tril(np.ones((T, S), bool), S - T)", "np.tril(np.ones((T, S), bool), 0)"),
    Mutant("cotangent of ones", "lab/grading/executor.py",
           "cotangent=problem.cotangent if backward",
           "cotangent=0 * problem.cotangent + 1 if backward"),
    Mutant("one fixed seed", "lab/grading/engine.py",
           "seed_of = seed if callable(seed) else (lambda _: seed)", "seed_of = lambda _: 0"),
    Mutant("null answers are not looked for", "lab/grading/judge/null_answers.py",
           "survives = holds(getattr(answer, output), reference, tier, output)",
           "survives = False"),
    Mutant("bits need not agree", "lab/grading/judge/rows.py",
           "broken = ((base != got)", "broken = 0 * ((base != got)"),
    Mutant("zeros need not be zero", "lab/grading/judge/rows.py",
           "as_units((got != 0).any(-1), rows)", "as_units((got != got).any(-1), rows)"),
    Mutant("a coarser tier excuses everything", "lab/grading/verdict.py",
           "if all(f.passed for f in found) and _explains(at_declared, empty):", "if True:"),
    Mutant("an error is no answer to judge", "lab/grading/examine.py",
           '    if base.kind == "unsupported":', '    if base.kind != "ok":'),
    Mutant("shapes and dtypes are not looked at", "lab/grading/examine.py",
           '    if answer.kind != "ok":\n        return answer\n', "    return answer\n"),
    Mutant("a rejection from the sandbox is lost", "lab/grading/engine.py",
           "rejected = rejection is not None or", "rejected ="),
    Mutant("an equivalent stays in the denominator", "lab/grading/audit/summary.py",
           "return found[~self._is_equivalent(found)]", "return found"),
    Mutant("an empty denominator scores 100", "lab/grading/audit/summary.py",
           '"rate": hits / n if n else None', '"rate": hits / n if n else 1.0'),
    Mutant("decoding is asked without a mask", "lab/grading/cases.py",
           'padding="mixed" if masked', 'padding="none" if masked'),
    Mutant("no left padding", "lab/truth/problems.py", "seen = keys >= hidden",
           "seen = keys < kv_len - hidden"),
    Mutant("a card claims what did not run", "lab/grading/coverage.py",
           "entitled = [case for case in cases if self.holds(case)]", "entitled = list(cases)"),
    Mutant("a gain passes as rounding", "lab/grading/judge/systematic.py",
           "units = np.maximum(off_gain, off_offset)", "units = 0 * off_gain"),
    Mutant("a declared limit by its words", "lab/grading/engine.py",
           "return one.answer.declared", 'return "candidate.supports" in one.answer.detail'),
    Mutant("gradients rounded by head are out of bounds", "lab/grading/judge/budgets.py",
           "over = (x.group + 1) * u_in", "over = u_in"),
    Mutant("what the TPU interpreter cannot run is not tried otherwise",
           "lab/grading/sandbox/inside/child.py",
           "modes: tuple[Any, ...] = (pltpu.InterpretParams(), True)",
           "modes: tuple[Any, ...] = (pltpu.InterpretParams(),)"),
    Mutant("what no interpreter runs is rejected", "lab/grading/sandbox/executor.py",
           'raise UnsupportedCell(f"could not be run here',
           'raise Stopped(f"could not be run here'),
    Mutant("a calibration table edited by hand", "lab/grading/judge/calibration.py",
           'if table["sha256"] != content_hash(table):', "if False:"),
)  # fmt: skip


def run_tests(tree: Path) -> bool:
    """Whether the grader's tests pass in a copy of the repository."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [str(tree / "tests" / "grading" / name) for name in TESTS]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1",
                   "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest did not run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def copy(tree: Path) -> None:
    """A copy of what the tests need."""
    for name in ("lab", "conf", "tests"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tree)


def main() -> int:
    """Plant each defect in turn; 0 if enough of them turned the tests red."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a word that the names of the mutants to run contain")
    only = parser.parse_args().only
    chosen = [m for m in MUTANTS if only is None or only in m.name]
    if not chosen:
        raise SystemExit(f"no mutant has {only!r} in its name")
    caught = 0
    with tempfile.TemporaryDirectory(prefix="lab-mutants-") as name:
        tree = Path(name)
        copy(tree)
        if not run_tests(tree):
            raise SystemExit("the tests are red before anything was planted")
        for mutant in chosen:
            path = tree / mutant.file
            text = path.read_text()
            if mutant.old not in text:
                raise SystemExit(f"{mutant.name}: no longer applies to {mutant.file}")
            path.write_text(text.replace(mutant.old, mutant.new))
            found = not run_tests(tree)
            path.write_text(text)
            caught += found
            print(f"{'caught' if found else 'MISSED'}  {mutant.name}", flush=True)
    print(f"{caught} of {len(chosen)} planted defects caught")
    return int(caught < LEAST_CAUGHT * len(chosen))


if __name__ == "__main__":
    sys.exit(main())

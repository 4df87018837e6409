"""Run one case of the rubric alone, in this process, where a debugger can enter the function.

    python -m lab.grading.reproduce mine.py:attention plain --seed 7
    python -m pdb -m lab.grading.reproduce wrong-gqa grouped --seed 0 --eager

There is no sandbox here: run files that you would run yourself. A scorecard prints the command for
the case it is about; with `--eager` no function is traced, so that values can be looked at.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import candidates
from lab.candidates.custom import load_file
from lab.errors import UserError
from lab.grading.cases import BY_NAME, Case
from lab.grading.engine import describe
from lab.grading.examine import examine_one, findings
from lab.grading.executor import InProcess
from lab.grading.judge.numeric import Reference
from lab.grading.judge.tiers import DECLARED
from lab.truth.problems import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def command(
    target: str, case: Case, failed: Mapping[str, Any], policy: str, *, backward: bool
) -> str:
    """The command that runs the case of a failed finding alone.

    Args:
        target: `FILE:FUNCTION`, or the name of a candidate.
        case: as it was asked (its shape may have been fitted).
        failed: the finding, as a record's details keep it.
        policy: dtype policy.
        backward: whether gradients were asked for.
    """
    words = ["python", "-m", "lab.grading.reproduce", target, case.name]
    words += ["--seed", str(failed["seed"])]
    if case.relations:
        words += ["--relations", str(failed["relation_seed"])]
    if case.shape != BY_NAME[case.name].shape:
        words += ["--shape", ",".join(str(int(n)) for n in astuple(case.shape)[:7])]
    if policy != "bf16":
        words += ["--policy", policy]
    if not backward:
        words.append("--forward")
    return shlex.join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the checks say of one case; 1 if any fails."""
    options = _parser().parse_args(arguments)
    case = BY_NAME[options.case]
    if options.shape:
        *sizes, causal = (int(n) for n in options.shape.split(","))
        names = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim")
        changes: dict[str, Any] = dict(zip(names, sizes, strict=True))
        case = replace(case, shape=replace(case.shape, **changes, causal=bool(causal)))
    policy = POLICIES[options.policy]
    reference = Reference(case.problem(policy, options.seed))
    if options.forward:
        reference.call = replace(reference.call, cotangent=None)
    with ExitStack() as stack:
        function = _function(options.target, options.policy, stack, eager=options.eager)
        one = examine_one(InProcess(function), case, reference, options.relations)
    found = findings(one, DECLARED[options.policy])
    failed = [finding for finding in found if not finding.passed]
    shape = case.shape
    print(  # noqa: T201 - what the command is for
        f"{case.name}: B {shape.batch}, Hq {shape.q_heads}, Hkv {shape.kv_heads}, T {shape.q_len}, "
        f"S {shape.kv_len}, D {shape.head_dim}, causal {shape.causal}, padding {shape.padding}, "
        f"{case.regime} values, seed {options.seed}: {len(failed)} of {len(found)} findings fail"
    )
    for finding in failed:
        print(f"  {finding.gate}: {describe(finding)}")  # noqa: T201
    if one.answer.backward_error:
        print(f"  no gradients: {one.answer.backward_error}")  # noqa: T201
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.grading.reproduce", description=__doc__)
    parser.add_argument("target", help="FILE:FUNCTION, or the name of a candidate")
    parser.add_argument("case", choices=sorted(BY_NAME), metavar="CASE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--relations", type=int, metavar="SEED", help="its related calls too")
    parser.add_argument("--shape", metavar="B,Hq,Hkv,T,S,D,CAUSAL", help="instead of the case's")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="bf16")
    parser.add_argument("--forward", action="store_true", help="ask for no gradients")
    parser.add_argument("--eager", action="store_true", help="trace nothing: see values (slow)")
    return parser


def _function(target: str, policy: str, stack: ExitStack, *, eager: bool) -> Callable[..., Any]:
    import jax
    from jax.experimental.pallas import tpu as pltpu

    if eager:
        stack.enter_context(jax.disable_jit())
    if ":" not in target:
        known = {config["name"]: config for config in candidates.configs()}
        if target not in known:
            raise UserError(f"there is no candidate {target!r}; a file is named FILE:FUNCTION")
        return candidates.load(known[target], policy=POLICIES[policy], interpret=True)
    plain: Any = True  # the plain interpreter, not the one that plays a TPU
    if jax.default_backend() != "tpu":
        stack.enter_context(pltpu.force_tpu_interpret_mode(plain))
    path, _, function = target.rpartition(":")
    return load_file(Path(path), function)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))

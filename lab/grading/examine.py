"""Put an implementation through the cases: one batch of calls, then findings at any tier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lab.grading.checks import CHECKS
from lab.grading.findings import OUTPUTS, Finding
from lab.grading.judge.null_answers import passing
from lab.grading.judge.numeric import Reference, judge_attention
from lab.grading.judge.relations import Relation, empty_rows, forward_alone, relations, seeing_rows
from lab.grading.judge.tiers import DECLARED

if TYPE_CHECKING:
    from lab.grading.cases import Case
    from lab.grading.executor import Answer, Call, Executor
    from lab.truth.problems import DtypePolicy


@dataclass(frozen=True)
class Examined:
    """One case, the answer to it, the answers to the related calls and the seed of these."""

    case: Case
    reference: Reference
    answer: Answer
    related: tuple[tuple[Relation, Answer], ...]
    relation_seed: int | None = None

    @property
    def judged(self) -> bool:
        """Whether there is an answer to judge (not a refusal, not an error)."""
        return self.answer.kind == "ok"


def examine(
    executor: Executor,
    policy: DtypePolicy,
    cases: Sequence[Case],
    seed: Callable[[str], int],
    *,
    backward: bool = True,
    every_relation: bool = False,
) -> list[Examined]:
    """Ask everything in one batch and pair questions with answers.

    Args:
        executor: runs the implementation.
        policy: dtypes of the inputs.
        cases: what to ask.
        seed: the seed of a case, by its name.
        backward: whether gradients are asked for.
        every_relation: relations on every case, not only where the case says so.
    """
    asked: list[tuple[Case, Reference, list[Relation], int]] = []
    calls: list[Call] = []
    for case in cases:
        reference = Reference(case.problem(policy, seed(case.name)))
        related, relation_seed = [], seed(f"{case.name} relations")
        if case.relations or every_relation:
            related = relations(reference, relation_seed)
        elif case.alone:
            related = [forward_alone(reference)]
        asked.append((case, reference, related, relation_seed))
        calls += [reference.call, *(relation.call for relation in related)]
    if not backward:
        calls = [replace(call, cotangent=None) for call in calls]
    references = [reference for _, reference, _, _ in asked]
    with ThreadPoolExecutor(1) as beside:  # what the judge needs, while the implementation works
        beside.submit(_prepare, references, DECLARED[policy.name])
        ran = executor.run(calls)
    answers = iter([checked(a, c) for a, c in zip(ran, calls, strict=True)])
    examined = []
    for case, reference, related, relation_seed in asked:
        answer = next(answers)
        pairs = tuple((relation, next(answers)) for relation in related)
        examined.append(Examined(case, reference, answer, pairs, relation_seed))
    return examined


def _prepare(references: Sequence[Reference], tier: str) -> None:
    for reference in references:
        reference.bounds(tier)
        passing(reference, tier)


def examine_one(
    executor: Executor, case: Case, reference: Reference, relation_seed: int | None
) -> Examined:
    """Examine one case on a reference at hand; relations only if there is a seed for them."""
    related = [] if relation_seed is None else relations(reference, relation_seed)
    if relation_seed is None and case.alone:
        related = [forward_alone(reference)]
    calls = [reference.call, *(relation.call for relation in related)]
    answer, *rest = (checked(a, c) for a, c in zip(executor.run(calls), calls, strict=True))
    pairs = tuple(zip(related, rest, strict=True))
    return Examined(case, reference, answer, pairs, relation_seed)


def findings(examined: Examined, tier: str) -> list[Finding]:
    """Everything the checks say about one case, judged at a tier."""
    case, base = examined.case, examined.answer
    if base.kind == "unsupported":
        return []
    if base.kind == "error":
        return [_contract(case, base.detail)]
    found = [Finding("contract", "answer", case.name, "", passed=True, units=0.0)]
    found += judge_attention(
        seeing_rows(base, examined.reference.call),
        examined.reference,
        tier,
        check=case.check,
        case=case.name,
        outputs=OUTPUTS,
    )
    found += empty_rows(examined.reference, base, case.name)
    for relation, answer in examined.related:
        if answer.kind != "ok":
            found.append(_contract(case, f"{relation.name}: {answer.detail}"))
        else:
            found += relation.verify(base, answer, case.name, tier)
    return found


def _contract(case: Case, detail: str) -> Finding:
    assert "contract" in CHECKS
    return Finding("contract", "answer", case.name, "", passed=False, units=np.inf, note=detail)


def checked(answer: Answer, call: Call) -> Answer:
    """The answer, or an `error` answer that says what is wrong with its arrays."""
    if answer.kind != "ok":
        return answer
    expected = {"out": call.q, "dq": call.q, "dk": call.k, "dv": call.v}
    for name, like in expected.items():
        got = getattr(answer, name)
        if got is None and name != "out":
            continue
        dtype = like.dtype if call.cotangent is None or name != "out" else call.cotangent.dtype
        if type(got) is not np.ndarray:
            return _error(answer, f"{name} is {type(got).__name__}, not an array")
        if got.shape != like.shape:
            return _error(answer, f"{name} has shape {got.shape}, not {like.shape}")
        if got.dtype != dtype:
            return _error(answer, f"{name} has dtype {got.dtype.name}, not {dtype.name}")
    return answer


def _error(answer: Answer, detail: str) -> Answer:
    return replace(answer, kind="error", detail=detail, out=None, dq=None, dk=None, dv=None)

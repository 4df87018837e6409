# ruff: noqa: ANN001, ANN201, ANN202 - fixtures, typed by their names
"""The numeric gates, null answers, relations and tiers, each shown to fail on something."""

import json
from itertools import pairwise

import numpy as np
import pytest

from lab.grading.cases import SUITE
from lab.grading.checks import CHECKS, GATES, MAX_SCORE
from lab.grading.executor import call_of
from lab.grading.findings import OUTPUTS
from lab.grading.judge import calibration
from lab.grading.judge.budgets import growth, low_precision_sum
from lab.grading.judge.null_answers import NAMES, null_answers, passing
from lab.grading.judge.numeric import Reference, judge_attention, judge_softmax
from lab.grading.judge.relations import relations
from lab.grading.judge.tiers import ORDER, lower_than
from lab.truth import softmax_backward, softmax_forward
from lab.truth.problems import POLICIES, Shape, softmax_problem

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


@pytest.fixture
def reference(small_cases):
    return Reference(small_cases[1].problem(POLICIES["bf16"], 3))


def units(answer, reference, tier="bf16"):
    return {(f.output, f.gate): f.units for f in judge_attention(answer, reference, tier)}


def test_points_sum_to_a_hundred_and_every_case_is_filed_under_a_check():
    assert MAX_SCORE == 100
    assert {case.check for case in SUITE} <= set(CHECKS)
    assert len({case.name for case in SUITE}) == len(SUITE)


def test_sizes_never_coincide_in_the_suite():
    """Heads, lengths, batch and width confused with one another would otherwise look right."""
    for case in SUITE:
        s = case.shape
        assert len({s.q_heads, s.q_len, s.head_dim}) == 3
        assert s.head_dim != s.kv_len


def test_bounds_grow_with_the_tier(reference):
    for output in OUTPUTS:
        worst = [reference.bounds(tier)[output].worst for tier in ORDER]
        for finer, coarser in pairwise(worst):
            assert (coarser >= finer).all()
            assert (coarser > finer).any()


def test_a_right_answer_is_within_and_a_shift_by_the_bound_is_outside(fake, reference):
    answer = fake().run([reference.call])[0]
    assert max(units(answer, reference).values()) < 1
    for output in OUTPUTS:
        bound = reference.bounds("bf16")[output].worst
        shifted = reference.truth[output] + 1.1 * bound

        def change(call, results, output=output, shifted=shifted):
            return {**results, output: shifted}

        wrong = fake(change=change).run([reference.call])[0]
        assert units(wrong, reference)[output, "element"] > 1


def test_the_worst_row_decides_however_many_are_right(fake, reference):
    for output in OUTPUTS:

        def change(call, results, output=output):
            array = np.array(results[output])
            array[0, 1, 2] += 3 * reference.bounds("bf16")[output].worst[0, 1, 2]
            return {**results, output: array}

        answer = fake(change=change).run([reference.call])[0]
        found = [f for f in judge_attention(answer, reference, "bf16") if not f.passed]
        assert {f.gate for f in found} == {"element", "row"}
        assert {(f.output, f.batch, f.head, f.row) for f in found} == {(output, 0, 1, 2)}


def test_the_row_gate_sees_what_the_element_gate_lets_pass(fake, reference):
    def change(call, results):
        bound = reference.bounds("bf16")["out"]
        return {**results, "out": reference.truth["out"] + 0.6 * bound.worst}

    found = units(fake(change=change).run([reference.call])[0], reference)
    assert found["out", "element"] < 1 < found["out", "row"]


def test_nan_and_infinity_are_infinitely_wrong(fake, reference):
    for bad in (np.nan, np.inf, -np.inf):

        def change(call, results, bad=bad):
            out = np.array(results["out"])
            out[0, 0, 0, 0] = bad
            return {**results, "out": out}

        found = units(fake(change=change).run([reference.call])[0], reference)
        assert found["out", "element"] == np.inf
        assert found["out", "row"] == np.inf


def test_nan_in_the_truth_does_not_match_nan(fake, reference):
    reference.truth["out"] = np.full_like(reference.truth["out"], np.nan)

    def change(call, results):
        return {**results, "out": results["out"] * np.nan}

    found = units(fake(change=change).run([reference.call])[0], reference)
    assert found["out", "element"] == np.inf


def test_every_null_answer_fails_every_small_case(small_cases):
    for case in small_cases:
        problem = case.problem(POLICIES["bf16"], 5)
        assert passing(Reference(problem), "bf16") == [], case.name


def test_a_case_in_which_a_null_answer_is_right_is_seen_to_be_vacuous(small_cases):
    problem = small_cases[0].problem(POLICIES["bf16"], 5)
    from dataclasses import replace

    blank = replace(problem, v=np.zeros_like(problem.v))
    reference = Reference(blank)
    assert {name.split("/")[0] for name in passing(reference, "bf16")} == set(NAMES)
    assert set(null_answers(reference)) == set(NAMES)


def test_every_relation_holds_for_the_truth_and_each_can_fail(fake, small_cases):
    seen, broken = set(), set()
    rng = np.random.default_rng(0)

    def noise(call, results):
        return {n: r + rng.standard_normal(r.shape) for n, r in results.items()}

    def deaf(_, results):
        return {n: np.zeros_like(r) for n, r in results.items()}

    for case in small_cases:
        reference = Reference(case.problem(POLICIES["bf16"], 2))
        for relation in relations(reference, 4):
            for change in (None, noise, deaf):
                executor = fake(change=change) if change else fake()
                base, answer = executor.run([reference.call, relation.call])
                base = fake().run([reference.call])[0] if change is noise else base
                found = relation.verify(base, answer, case.name, "bf16")
                if change is None:
                    assert all(f.passed for f in found)
                elif not all(f.passed for f in found):
                    broken.add(relation.name)
            seen.add(relation.name)
    assert seen == broken
    assert seen | {"element", "row", "gain", "empty_row_is_zero"} == set(GATES)
    assert {"hidden_poison", "future_keys", "past_cotangent", "head_roll"} <= seen


def test_relations_leave_the_inputs_alone(reference):
    before = call_of(reference.problem).k.tobytes()
    relations(reference, 1)
    assert reference.call.k.tobytes() == before


def test_a_low_precision_sum_saturates():
    u = 2.0**-8
    n = np.array([2.0, 64.0, 511.0, 4096.0])
    errors = low_precision_sum(n, u)
    assert errors[0] < 2 * u
    assert errors[1] < 0.15
    assert errors[2] > 100
    assert growth(4) < growth(400) < 400 * 2.0**-24


def test_lower_tiers_are_in_order():
    assert lower_than("fp32") == ("bf16", "bf16_scores", "bf16_accumulate")
    assert lower_than("bf16_accumulate") == ()


def test_the_calibration_table_is_whole_and_cannot_be_edited(tmp_path, monkeypatch):
    table = json.loads(calibration.TABLE.read_text())
    assert table["sha256"] == calibration.content_hash(table)
    table["thresholds"]["bf16"]["out"]["many"] = 99.0
    (tmp_path / "calibration.json").write_text(json.dumps(table))
    monkeypatch.setattr(calibration, "TABLE", tmp_path / "calibration.json")
    calibration._table.cache_clear()
    with pytest.raises(ValueError, match="edited by hand"):
        calibration.row_threshold("out", "bf16", few=False)
    monkeypatch.undo()
    calibration._table.cache_clear()


def test_calibration_and_audit_use_disjoint_seeds():
    from lab.tasks.audit import BASE_SEED, SIZES

    most = max(max(size.seeds.values()) for size in SIZES.values())
    audited = set(range(BASE_SEED, BASE_SEED + most))
    assert not audited & set(calibration.SEEDS)


def test_softmax_is_judged_with_its_gradient():
    problem = softmax_problem(Shape(2, 2, 2, 5, 9, 8, causal=True, padding="tail"),
                              POLICIES["bf16"], seed=1)  # fmt: skip
    p = softmax_forward(problem.logits, problem.mask)
    d = softmax_backward(problem.logits, problem.mask, problem.cotangent)
    right = judge_softmax(p.astype(np.float32), d.astype(problem.logits.dtype), problem)
    assert all(f.passed for f in right)
    wrong = judge_softmax((p + 1e-3).astype(np.float32), None, problem)
    assert not wrong[0].passed
    zeros = judge_softmax(p.astype(np.float32), np.zeros_like(problem.logits), problem)
    assert not zeros[1].passed

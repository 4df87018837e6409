# ruff: noqa: ANN001, ANN003, ANN201, ANN202, ANN204 - fixtures and fakes, typed by their names
"""The grader from outside: what it accepts, what it rejects, and what it calls the fault."""

from dataclasses import replace

import numpy as np
import pytest

from lab.errors import UserError
from lab.grading import grade
from lab.grading.executor import Answer

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")


def graded(executor, cases, **options):
    return grade(executor, cases=cases, **options)


def failed(record):
    return {item.id for item in record.items if not item.passed and item.note != "not covered"}


@pytest.mark.parametrize("policy", ["bf16", "f32"])
def test_right_answers_are_accepted_with_every_point_that_is_covered(fake, small_cases, policy):
    record = graded(fake(), small_cases, policy=policy)
    assert record.verdict == "accepted"
    assert failed(record) == set()
    assert record.worst.units < 1


def test_bf16_answers_are_a_lower_tier_under_the_f32_policy(fake, small_cases):
    def rounded(call, results):
        return {n: r.astype("bfloat16").astype(np.float32) for n, r in results.items()}

    plain = [case for case in small_cases if case.name != "large"]
    record = graded(fake(change=rounded), plain, policy="f32")
    assert (record.verdict, record.tier) == ("accepted_lower_tier", "bf16")
    assert failed(record) == {"precision"}


def test_one_wrong_row_of_one_output_rejects(fake, small_cases, without):
    for output in ("out", "dq", "dk", "dv"):

        def one_row(call, array):
            array = np.array(array)
            array[0, 0, 1] += 0.1 * np.abs(array).max()
            return array

        record = graded(fake(change=without(output, one_row)), small_cases)
        assert record.verdict == "rejected", output
        check = {"dq": "grad_q", "dk": "grad_k", "dv": "grad_v"}.get(output, "accuracy")
        assert check in failed(record)
        assert (record.worst.batch, record.worst.head, record.worst.row) == (0, 0, 1)


def test_a_coarser_tier_excuses_no_large_error(fake, small_cases, without):
    """Without relations, and with an error that no fault model explains."""

    def one_row(call, dk):
        dk = np.array(dk)
        dk[0, 0, 1] += 3 * np.abs(dk).max()
        return dk

    cases = [replace(case, relations=False) for case in small_cases[:2]]
    record = graded(fake(change=without("dk", one_row)), cases)
    assert (record.verdict, record.tier) == ("rejected", None)
    assert record.details["failed_count"] > 0


def test_one_wrong_element_in_a_large_array_rejects(fake, small_cases, without):
    def one_element(call, array):
        array = np.array(array)
        array[-1, -1, -1, -1] += 0.3
        return array

    record = graded(fake(change=without("dv", one_element)), small_cases)
    assert record.verdict == "rejected"


def test_nan_never_matches(fake, small_cases, without):
    def all_nan(call, array):
        return np.full_like(array, np.nan)

    for output in ("out", "dq"):
        record = graded(fake(change=without(output, all_nan)), small_cases)
        assert record.verdict == "rejected", output
        assert record.worst.units is None


def test_a_backward_that_ignores_the_cotangent_is_rejected(fake, small_cases):
    def ones(call):
        if call.cotangent is None:
            return call
        return replace(call, cotangent=np.ones_like(call.cotangent))

    record = graded(fake(ask=ones), small_cases)
    assert record.verdict == "rejected"
    assert {"grad_q", "grad_k", "grad_v"} <= failed(record)


def test_causality_ignored_is_named(fake, small_cases):
    record = graded(fake(ask=lambda c: replace(c, causal=False)), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "causal_ignored")
    assert "causal" in failed(record)
    assert "padding" not in failed(record)


def test_causality_aligned_top_left_is_named(fake, small_cases):
    def top_left(call, results):
        T, S = call.q.shape[2], call.k.shape[2]
        if not call.causal or T == S:
            return results
        group = call.q.shape[1] // call.k.shape[1]
        q, k, v = (x.astype(np.float64) for x in (call.q, call.k, call.v))
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        s = np.where(np.tril(np.ones((T, S), bool)), q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5,
                     -np.inf)  # fmt: skip
        p = np.exp(s - s.max(-1, keepdims=True))
        return {**results, "out": p / p.sum(-1, keepdims=True) @ v}

    record = graded(fake(change=top_left), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "causal_alignment")
    assert "causal_alignment" in failed(record)
    assert "accuracy" not in failed(record)


def test_key_mask_ignored_is_named(fake, small_cases):
    def ignored(call):
        finite = {n: np.nan_to_num(getattr(call, n).astype(np.float32), posinf=1, neginf=1)
                  .astype(call.k.dtype) for n in ("k", "v")}  # fmt: skip
        return replace(call, key_mask=None, **finite)

    record = graded(fake(ask=ignored), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "padding_ignored")
    assert {"padding", "poisoned_padding"} <= failed(record)


def test_scale_lost_is_named(fake, small_cases):
    record = graded(fake(ask=lambda c: replace(c, scale=1.0)), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "scale")


def test_mean_of_v_on_empty_rows_is_named(fake, small_cases, without):
    def mean(call, out):
        if call.key_mask is None:
            return out
        blind = ~call.key_mask.any(-1)
        values = np.nan_to_num(call.v.astype(np.float64)).mean(2, keepdims=True)
        group = out.shape[1] // values.shape[1]
        values = np.repeat(values, group, 1)
        return np.where(blind[:, None, None, None], values, out)

    record = graded(fake(change=without("out", mean)), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "empty_row")
    assert "empty_row" in failed(record)
    assert not failed(record) & {"accuracy", "weights", "grad_v"}


def test_poison_that_leaks_into_a_gradient_is_named(fake, small_cases, without):
    def leak(call, dq):
        return dq if np.isfinite(call.v.astype(np.float32)).all() else dq * np.nan

    record = graded(fake(change=without("dq", leak)), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "poison_leak")


def test_a_second_fault_that_is_plain_is_named_beside_the_first(fake, small_cases, without):
    def leak(call, dq):
        return dq if np.isfinite(call.v.astype(np.float32)).all() else dq * np.nan

    causal = fake(ask=lambda c: replace(c, causal=False), change=without("dq", leak))
    record = graded(causal, small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "causal_ignored")
    assert "poison_leak" in record.details["also"]
    assert graded(fake(ask=causal.ask), small_cases).details["also"] == []


def test_group_gradient_of_one_head_is_named(fake, small_cases, without):
    def halved(call, dk):
        return dk / 2 if call.q.shape[1] != call.k.shape[1] else dk

    cases = [c if c.name != "cached" else replace(c, shape=replace(c.shape, causal=False))
             for c in small_cases]  # fmt: skip
    record = graded(fake(change=without("dk", halved)), cases)
    assert (record.verdict, record.fault_class) == ("rejected", "group_gradient")


def test_a_missing_row_term_is_named(fake, small_cases):
    def no_delta(call, results):
        if "dq" not in results:
            return results
        from lab.grading.judge.intermediates import intermediates, over_groups

        x = intermediates(call)
        ds = x.p * x.dp
        return {
            **results,
            "dq": x.scale * (ds @ x.k),
            "dk": over_groups(x.scale * (ds.swapaxes(-1, -2) @ x.q), x.group),
        }

    record = graded(fake(change=no_delta), small_cases)
    assert (record.verdict, record.fault_class) == ("rejected", "backward_term")


def test_answers_that_change_on_repetition_are_rejected(fake, small_cases):
    rng = np.random.default_rng(0)

    def noisy(call, results):
        return {n: r * (1 + 2.0**-8 * rng.choice([-1, 0, 1])) for n, r in results.items()}

    record = graded(fake(change=noisy), small_cases)
    assert record.verdict == "rejected"
    assert "repeatable" in failed(record)


class Broken:
    """Returns one fixed answer to everything."""

    def __init__(self, answer):
        self.answer = answer

    def run(self, calls):
        return [self.answer for _ in calls]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer("error", detail="ValueError: no"), "ValueError: no"),
        (Answer("ok", out=np.zeros((1, 2), np.float32)), "shape (1, 2)"),
        (Answer("ok", out=[1.0]), "list"),
    ],
)
def test_what_is_no_answer_is_rejected_with_the_reason(small_cases, answer, said):
    record = graded(Broken(answer), small_cases)
    assert record.verdict == "rejected"
    contract = next(item for item in record.items if item.id == "contract")
    assert said in contract.note
    assert record.score == 0


def test_all_cases_unsupported_is_rejected_for_want_of_the_core(small_cases):
    record = graded(Broken(Answer("unsupported", detail="no")), small_cases)
    assert record.verdict == "rejected"
    assert "minimum core" in record.details["rejection"]


def test_a_missing_backward_depends_on_what_was_promised(fake, small_cases):
    class ForwardOnly:
        def run(self, calls):
            answers = fake().run([replace(call, cotangent=None) for call in calls])
            return [replace(answer, backward_error="no gradient") for answer in answers]

    required = graded(ForwardOnly(), small_cases, backward="required")
    auto = graded(ForwardOnly(), small_cases, backward="auto")
    assert required.verdict == "rejected"
    assert auto.verdict == "accepted"
    assert {"grad_q", "grad_k", "grad_v"} <= failed(auto)


def test_a_rejection_from_outside_stands_whatever_the_answers(fake, small_cases):
    record = graded(fake(), small_cases, rejection=lambda: "calls the host")
    assert record.verdict == "rejected"
    assert record.details["rejection"] == "calls the host"


def test_the_seed_is_used_for_every_case(fake, small_cases):
    seen = []

    def remember(call):
        seen.append(call.q.astype(np.float32).sum())
        return call

    for seed in (1, 2):
        graded(fake(ask=remember), small_cases[:1], seed=seed)
    half = len(seen) // 2
    assert seen[0] != seen[half]


def test_a_fault_on_half_of_the_seeds_is_found_on_those(fake, small_cases, without):
    def sometimes(call, out):
        return out if call.q.astype(np.float64).ravel()[0] < 0 else np.zeros_like(out)

    alone = replace(small_cases[0], relations=False)
    verdicts = {
        graded(fake(change=without("out", sometimes)), [alone], seed=seed).verdict
        for seed in range(8)
    }
    assert verdicts == {"accepted", "rejected"}


@pytest.mark.parametrize("wrong", [{"policy": "fp8"}, {"tier": "fp64"}])
def test_unknown_names_are_usage_errors(fake, small_cases, wrong):
    with pytest.raises(UserError, match="allowed are"):
        graded(fake(), small_cases, **wrong)


def test_code_that_refuses_most_cases_without_a_declaration_is_rejected(fake, small_cases):
    def refusing(detail, count, *, declared=False):
        class Refusing:
            def run(self, calls):
                answers = fake().run(calls)
                return [
                    Answer("unsupported", detail=detail, declared=declared)
                    if n >= count
                    else answer
                    for n, answer in enumerate(answers)
                ]

        return Refusing()

    record = graded(refusing("no such shapes", 10), small_cases)
    assert record.verdict == "rejected"
    assert "declares none of it" in record.details["rejection"]
    words = graded(refusing("candidate.supports", 10), small_cases)
    assert "declares none of it" in words.details["rejection"]
    declared = graded(refusing("no such shapes", 10, declared=True), small_cases)
    assert declared.details["rejection"] is None or "core" in declared.details["rejection"]

# ruff: noqa: ANN001, ANN201, ANN202 - fixtures, typed by their names
"""What cards say follows from the cases that ran; what the suite crosses; one case alone."""

import itertools

import pytest

from lab.grading import coverage
from lab.grading.cases import FEW_QUERIES, SUITE, Case
from lab.grading.checks import CHECKS, NOT_COVERED, OUTSIDE
from lab.grading.engine import grade
from lab.grading.executor import Answer
from lab.grading.reproduce import command, main
from lab.truth.problems import PADDINGS, POLICIES, Shape


@pytest.mark.parametrize("check", coverage.CLAIMS)
def test_every_claim_has_a_case_in_the_suite(check):
    assert check in CHECKS
    for claim in coverage.CLAIMS[check]:
        assert claim.said(SUITE), f"{check}: nothing in the suite entitles to a claim"


def test_a_claim_without_its_case_is_not_made():
    assert "256" in coverage.covered_by("head_dim", SUITE)
    narrow = [case for case in SUITE if case.shape.head_dim != 256]
    assert "256" not in coverage.covered_by("head_dim", narrow)
    assert "head" in coverage.covered_by("padding", SUITE)
    only_tail = [case for case in SUITE if case.shape.padding in ("none", "tail")]
    assert coverage.covered_by("padding", only_tail) == "hidden keys: tail"


def test_no_text_of_a_card_stands_without_a_case():
    """`precision` says the tier that was reached."""
    assert set(coverage.CLAIMS) == set(CHECKS) - {"precision"}
    one = [case for case in SUITE if case.name == "grouped"]
    assert coverage.covered_by("contract", one) == "q's shape and dtype in 1 case"
    assert coverage.covered_by("grad_k", one).endswith("summed over groups of 3")
    plain = [case for case in SUITE if case.name == "plain"]
    assert "groups" not in coverage.covered_by("grad_k", plain)


def test_decoding_is_crossed_with_everything():
    """Each three of four features, in each combination, for each number of queries."""
    for q_len in FEW_QUERIES:
        rows = [
            (s.kv_len > 1024, s.causal, s.padding != "none", s.group > 1)
            for case in SUITE
            if (s := case.shape).q_len == q_len and case.check == "decode"
        ]
        assert (True, True, True, True) in rows
        for columns in itertools.combinations(range(4), 3):
            met = {tuple(row[c] for c in columns) for row in rows}
            assert met == set(itertools.product((True, False), repeat=3)), q_len


def test_every_padding_is_in_the_suite_and_whole_blocks_are_hidden():
    assert {case.shape.padding for case in SUITE} >= set(PADDINGS) - {"random"}
    left = next(case for case in SUITE if case.name == "padded-left")
    mask = left.problem(POLICIES["bf16"], 0).key_mask
    assert not mask[0, :128].any()
    hole = next(case for case in SUITE if case.name == "padded-hole")
    mask = hole.problem(POLICIES["bf16"], 0).key_mask
    assert mask[0, :128].all()
    assert not mask[0, 128:256].any()


def test_points_outside_of_what_is_declared_do_not_count(fake, small_cases):
    class NoMask:
        def run(self, calls):
            answers = fake().run(calls)
            refused = Answer("unsupported", detail="a key mask", declared=True)
            return [
                refused if call.key_mask is not None else answer
                for call, answer in zip(calls, answers, strict=True)
            ]

    record = grade(NoMask(), cases=small_cases)
    padding = next(item for item in record.items if item.id == "padding")
    assert (padding.points, padding.covered, padding.note) == (0, False, OUTSIDE)
    everything = grade(fake(), cases=small_cases[:1])
    padding = next(item for item in everything.items if item.id == "padding")
    assert (padding.points, padding.note) == (CHECKS["padding"].points, NOT_COVERED)


def test_a_backward_that_is_not_offered_costs_no_points(fake, small_cases):
    record = grade(fake(), cases=small_cases, backward="none")
    gradients = [item for item in record.items if item.id.startswith("grad_")]
    assert [item.points for item in gradients] == [0, 0, 0]


def test_a_failed_case_runs_alone_by_the_command_that_is_printed(capsys):
    case = next(case for case in SUITE if case.name == "grouped")
    words = command("wrong-gqa", case, {"seed": 5, "relation_seed": 6}, "bf16", backward=True)
    assert words.startswith("python -m lab.grading.reproduce wrong-gqa grouped --seed 5")
    assert main(words.split()[3:]) == 1
    said = capsys.readouterr().out
    assert "T 24, S 104" in said
    assert "x the bound" in said
    assert main(["naive", "decode-1-causal-grouped", "--seed", "5"]) == 0


def test_the_command_says_a_fitted_shape():
    fitted = Case("grouped", "gqa_mapping", Shape(2, 6, 2, 128, 128, 64, True, "none"))
    words = command("a.py:f", fitted, {"seed": 1}, "f32", backward=False)
    assert "--shape 2,6,2,128,128,64,1 --policy f32 --forward" in words

"""What the catalogue says about each candidate, and how one is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore

from lab import candidates
from lab.candidates import catalogue
from lab.cells.config import config_directory
from lab.errors import UserError
from lab.grading.checks import CHECKS
from lab.truth.problems import POLICIES

# The classes that attention kernels really showed and that this lab's scope can show.
CLASSES = {
    "backward_term", "batch_mixup", "block_bound", "block_range", "causal_alignment",
    "dropout", "gain", "soft_cap",
    "causal_ignored", "causal_off_by_one", "dv_rows", "empty_row", "finite_sentinel", "gqa_mapping",
    "group_gradient", "head_dim", "index_map", "layout", "length_divisibility", "lse",
    "mask_broadcast", "mask_polarity", "overflow", "padding_ignored", "poison_leak",
    "position_overflow", "scale", "silent_fallback", "stale_rescale", "tail_block", "uninitialised",
    "wrong_axis",
}  # fmt: skip
LOW_CLASSES = {"low_precision_scores", "low_precision_accumulate"}


CONFIGS = {name: asdict(entry) for name, entry in catalogue.entries().items()}


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [c for c in CONFIGS.values() if c["kind"] == kind]


def test_all_but_the_two_that_have_no_implementation_here_are_declared_beside_their_code() -> None:
    files = {path.stem for path in (config_directory() / "candidate").glob("*.yaml")}
    assert files == {"reference", "custom"}


def test_command_line_offers_them_all() -> None:
    catalogue.register()
    options = {name.removesuffix(".yaml") for name in ConfigStore.instance().list("candidate")}
    assert options == set(CONFIGS)


def test_expected_verdict_and_function_follow_from_kind_and_name() -> None:
    bad = catalogue.entries()["wrong-gqa"]
    assert (bad.kind, bad.expected) == ("known-bad", "rejected")
    assert (bad.module, bad.function) == ("lab.candidates.heads", "wrong_gqa")
    assert catalogue.entries()["bf16-products"].expected == "accepted_lower_tier"
    assert catalogue.entries()["eager"].expected == "accepted"


@pytest.mark.parametrize("name", CONFIGS)
def test_implementation_exists_for_both_policies(name: str) -> None:
    for policy in POLICIES.values():
        assert callable(candidates.load(CONFIGS[name], policy=policy, interpret=True))


@pytest.mark.parametrize("kind", ["known-bad", "low-precision"])
def test_faults_say_class_check_and_public_report(kind: str) -> None:
    for it in of_kind(kind):
        assert it["fault_class"] in (CLASSES if kind == "known-bad" else LOW_CLASSES), it["name"]
        assert it["caught_by"] in CHECKS, it["name"]
        assert "#" in it["inspired_by"] or " vs " in it["inspired_by"], it["name"]


def test_every_fault_class_in_scope_has_a_candidate() -> None:
    assert {c["fault_class"] for c in of_kind("known-bad")} == CLASSES
    assert {c["fault_class"] for c in of_kind("low-precision")} == LOW_CLASSES


def test_library_is_large_enough_to_measure_a_grader() -> None:
    kinds = Counter(c["kind"] for c in CONFIGS.values())
    assert kinds["known-bad"] >= 60
    assert kinds["control"] >= 16
    assert sum(c["name"].startswith("pallas-") for c in of_kind("known-bad")) >= 12


def test_no_two_candidates_are_the_same_function() -> None:
    places = Counter((c["module"], c["function"]) for c in CONFIGS.values())
    assert max(places.values()) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"module": None}, "has no implementation"),
        ({"module": "lab.candidates.nowhere"}, "no module lab.candidates.nowhere"),
        ({"function": "nothing"}, "no function nothing"),
    ],
)
def test_missing_implementation_is_one_clear_error(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        candidates.load({**CONFIGS["naive"], **change}, policy=POLICIES["bf16"], interpret=True)


def test_registry_imports_no_jax() -> None:
    code = "import sys, lab.candidates; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

# ruff: noqa: ANN001, ANN003, ANN201, ANN202 - fixtures, typed by their names
"""The in-process executor, and the audit's trials run through it on one small case."""

import json

import numpy as np
import pytest

from lab import candidates
from lab.errors import UnsupportedCell
from lab.grading.cases import BY_NAME
from lab.grading.executor import InProcess, call_of, changed, digest
from lab.truth.problems import POLICIES

jax = pytest.importorskip("jax")


@pytest.fixture
def call():
    return call_of(BY_NAME["scaled-decode"].problem(POLICIES["bf16"], 1))


def test_forward_and_gradients_come_back_as_arrays(call):
    def product(q, k, v, *, causal, key_mask, scale):
        return (q.astype("float32") * scale * k.mean() * v.mean()).astype(q.dtype)

    executor = InProcess(product)
    full, forward = executor.run([call, changed(call, cotangent=None)])
    assert full.kind == forward.kind == "ok"
    assert [a.shape for a in (full.dq, full.dk, full.dv)] == [call.q.shape, *[call.k.shape] * 2]
    assert forward.dq is None
    assert full.out.dtype == call.q.dtype
    assert not executor.contains_pallas(call)


def test_what_an_implementation_raises_is_an_answer(call):
    def refuses(q, k, v, **_):
        raise UnsupportedCell("no decode here")

    def fails(q, k, v, **_):
        raise ValueError("wrong\nsecond line")

    def no_gradient(q, k, v, **_):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(q.shape, q.dtype), q)

    refused, failed, forward = (InProcess(f).run([call])[0] for f in (refuses, fails, no_gradient))
    assert (refused.kind, refused.detail) == ("unsupported", "no decode here")
    assert (failed.kind, failed.detail) == ("error", "ValueError: wrong")
    assert forward.kind == "ok"
    assert "Pure callbacks do not support" in forward.backward_error


def test_a_digest_sees_one_changed_bit(call):
    k = np.array(call.k)
    k.view(np.uint16)[0, 0, 0, 0] ^= 1
    assert digest(changed(call, k=k)) != digest(call)


def test_trials_of_a_control_and_a_known_bad_candidate():
    from lab.grading.audit import trials as audit_trials

    chosen = [c for c in candidates.configs() if c["name"] in ("naive", "wrong-gqa")]
    tables = audit_trials.run(
        {
            "candidates": chosen,
            "policy": "bf16",
            "cases": ["scaled-decode", "grouped"],
            "relation_cases": ["grouped"],
            "seeds": {"known-bad": 1, "control": 2},
            "repeats": 3,
            "base_seed": 5,
        }
    )
    assert json.loads(json.dumps(tables, allow_nan=False)) == tables
    killed = {(r["candidate"], r["case"], r["seed"]): r["killed"] for r in tables["trials"]}
    assert killed == {
        ("naive", "scaled-decode", 5): False,
        ("naive", "scaled-decode", 6): False,
        ("naive", "grouped", 5): False,
        ("naive", "grouped", 6): False,
        ("wrong-gqa", "scaled-decode", 5): False,
        ("wrong-gqa", "grouped", 5): True,
    }
    # Without groups, tiling is repeating: the float64 model says so.
    assert [(r["candidate"], r["case"]) for r in tables["equivalents"]] == [
        ("wrong-gqa", "scaled-decode")
    ]
    verdicts = {r["candidate"]: (r["verdict"], r["named"]) for r in tables["verdicts"]}
    assert verdicts["wrong-gqa"] == ("rejected", "gqa_mapping")
    assert verdicts["naive"][0] == "accepted"
    assert all(r["flips"] == 0 for r in tables["trials"] if "flips" in r)

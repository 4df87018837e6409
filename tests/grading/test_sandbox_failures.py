"""What is no doing of the candidate is no verdict on it; the fallback to the plain interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lab.errors import UnsupportedCell
from lab.grading.executor import Call, GraderBug, InProcess
from lab.grading.sandbox.executor import Sandbox, _see_it_ran
from lab.grading.sandbox.replies import Called

VMAPPED = """
import functools, jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def body(q, k, v, o, *, scale):
    s = jnp.dot(q[...], k[...].T, precision="highest") * scale
    p = jnp.exp(s - s.max(-1, keepdims=True))
    o[...] = jnp.dot(p / p.sum(-1, keepdims=True), v[...], precision="highest")


def attention(q, k, v, *, causal, key_mask, scale):
    one = pl.pallas_call(
        functools.partial(body, scale=q.shape[-1] ** -0.5), grid=(q.shape[1],),
        in_specs=[pl.BlockSpec((None, *x.shape[2:]), lambda h: (h, 0, 0)) for x in (q, k, v)],
        out_specs=pl.BlockSpec((None, *q.shape[2:]), lambda h: (h, 0, 0)),
        out_shape=jax.ShapeDtypeStruct(q.shape[1:], jnp.float32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)))
    return jax.vmap(one)(*(x.astype(jnp.float32) for x in (q, k, v))).astype(q.dtype)
"""


def test_a_vmapped_kernel_with_dimension_semantics_falls_back_and_runs(tmp_path: Path) -> None:
    file = tmp_path / "vmapped.py"
    file.write_text(VMAPPED)
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal(s).astype(ml_dtypes.bfloat16)
        for s in ((2, 3, 8, 16), (2, 3, 24, 16), (2, 3, 24, 16))
    )
    with Sandbox(file, "attention", backward="none") as sandbox:
        answer = sandbox.run([Call(q, k, v, None, False, None, None)])[0]
    assert sandbox.rejection is None
    assert answer.kind == "ok"
    assert sandbox.report.in_place_calls > 0


def test_what_cannot_be_run_is_unsupported_and_a_bug_is_a_failure() -> None:
    with pytest.raises(UnsupportedCell, match="could not be run here: no such primitive"):
        _see_it_ran(Called("unrunnable", "no such primitive"))
    with pytest.raises(GraderBug, match="says nothing about it: AttributeError"):
        _see_it_ran(Called("bug", "AttributeError: ClosedJaxpr (claims.py)"))


def test_a_failure_of_the_executor_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = InProcess(lambda q, *_, **__: q)
    x = np.zeros((1, 1, 2, 4), np.float32)
    call = Call(x, x, x, None, False, None, None)
    assert executor.run([call])[0].kind == "ok"
    monkeypatch.setattr(executor, "_compiled", None)
    with pytest.raises(GraderBug, match="TypeError"):
        executor.run([call])


def test_what_was_raised_is_named_and_not_what_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("the compiler's word") from KeyError("within")

    executor = InProcess(lambda q, *_, **__: q)
    x = np.zeros((1, 1, 2, 4), np.float32)
    monkeypatch.setattr(executor, "_evaluate", fails)
    answer = executor.run([Call(x, x, x, None, False, None, x)])[0]
    assert answer.backward_error == "ValueError: the compiler's word"


LOOPED = """
import jax

def attention(q, k, v, *, causal, key_mask, scale):
    return jax.lax.while_loop(lambda x: x.sum() < 0, lambda x: x * 0, q)
"""


def test_a_loop_that_cannot_be_differentiated_is_no_bug_of_the_grader(tmp_path: Path) -> None:
    x = np.ones((1, 1, 2, 4), np.float32)
    call = Call(x, x, x, None, False, None, x)
    file = tmp_path / "looped.py"
    file.write_text(LOOPED)
    namespace: dict[str, Any] = {}
    exec(LOOPED, namespace)
    answers = InProcess(namespace["attention"]).run([call])
    with Sandbox(file, "attention") as sandbox:
        answers += sandbox.run([call])
    for answer in answers:
        assert answer.kind == "ok"
        assert "Reverse-mode differentiation does not work" in str(answer.backward_error)

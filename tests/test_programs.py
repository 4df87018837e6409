"""Which programs may run where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
import samples

from lab import programs
from lab.errors import UnsupportedCell
from lab.kernels import Kernel
from lab.truth.problems import attention_problem


@pytest.mark.parametrize(
    ("platform", "pallas", "kind", "refused"),
    [
        ("cpu", True, "reference", False),
        ("tpu", True, "reference", False),
        ("gpu", True, "reference", True),
        ("gpu", True, "known-bad", True),
        ("gpu", False, "reference", False),
        ("gpu", True, "custom", False),
    ],
)
def test_tpu_kernels_are_refused_on_other_accelerators(
    platform: str, pallas: bool, kind: str, refused: bool
) -> None:
    cell = samples.cell()
    cell.config.candidate.kind = kind
    if refused:
        with pytest.raises(UnsupportedCell, match=r"is a TPU kernel.*not on gpu"):
            programs.refuse_foreign_device(cell, platform, pallas=pallas)
    else:
        programs.refuse_foreign_device(cell, platform, pallas=pallas)


@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        (lambda q: q.astype("float16"), UnsupportedCell, "returned float16.*bfloat16"),
        (lambda q: q[:, :1], TypeError, r"shape \[1, 1, 16, 16\].*\[1, 4, 16, 16\]"),
        (lambda q: (q, q), TypeError, "returned tuple"),
    ],
)
def test_what_is_not_one_array_like_q_is_neither_timed_nor_compiled(
    returned: Callable[[Any], Any], error: type[Exception], words: str
) -> None:
    cell = samples.cell("shape=tiny", "seq=16", "kernel=xla")
    kernel = Kernel("odd", lambda logits, _: logits, lambda q, *_, **__: returned(q))
    problem = attention_problem(cell.problem_shape(), cell.policy())
    program = programs.of_problem(kernel, problem, backward=False)
    with pytest.raises(error, match=words):
        jax.make_jaxpr(program.function)(*program.inputs.values())

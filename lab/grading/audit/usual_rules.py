"""The rules others grade by, on the same trials, so that the audit can set ours beside them.

Each gives a ratio that its usual threshold puts at 1; larger is rejected. NaN gives infinity,
which is kinder to these rules than some of their implementations are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from lab.grading.findings import OUTPUTS
from lab.grading.judge.intermediates import masked_weights, over_groups

if TYPE_CHECKING:
    from lab.grading.executor import Answer
    from lab.grading.judge.intermediates import Float
    from lab.grading.judge.numeric import Reference

RULES = ("allclose_1e-2", "flash_2x", "cosine_0.99")


def ratios(answer: Answer, reference: Reference) -> dict[str, float]:
    """The worst ratio of each rule over the results that were returned."""
    key = ("usual rules", "reference")
    if key not in reference.memory:
        reference.memory[key] = _plain_low_precision(reference)
    low = reference.memory[key]
    worst = dict.fromkeys(RULES, 0.0)
    for output in OUTPUTS:
        got = getattr(answer, output)
        if got is None:
            continue
        truth = reference.truth[output]
        with np.errstate(all="ignore"):
            wide = got.astype(np.float64)
            found = (
                float(np.max(np.abs(wide - truth) / (1e-2 + 1e-2 * np.abs(truth)))),
                _flash(wide, truth, low[output]),
                _cosine(wide, truth) / 0.01,
            )
        for rule, ratio in zip(RULES, found, strict=True):
            worst[rule] = max(worst[rule], np.inf if np.isnan(ratio) else ratio)
    return worst


def _flash(got: Float, truth: Float, low: Float) -> float:
    """FlashAttention's tests: an error at most twice that of plain attention in low precision."""
    allowed = 2 * float(np.max(np.abs(low - truth)))
    error = float(np.max(np.abs(got - truth)))
    return 0.0 if error == 0 else error / max(allowed, 1e-30)


def _cosine(got: Float, truth: Float) -> float:
    size = float(np.linalg.norm(got) * np.linalg.norm(truth))
    if size == 0:
        return 0.0 if np.array_equal(got, truth) else 1.0
    return 1 - float((got * truth).sum()) / size


def _plain_low_precision(reference: Reference) -> dict[str, Float]:
    """Plain attention with every step rounded to the input dtype, forward and backward."""
    x = reference.inside
    dtype = reference.call.q.dtype

    def r(a: Float) -> Float:
        return np.asarray(a.astype(dtype).astype(np.float64))

    s = r(x.s)
    p = r(masked_weights(s, np.broadcast_to(x.mask, s.shape)))
    dp = r(x.dp)
    ds = r(p * (dp - (p * dp).sum(-1, keepdims=True)))
    return {
        "out": r(p @ x.v),
        "dq": r(x.scale * (ds @ x.k)),
        "dk": r(over_groups(r(x.scale * (ds.swapaxes(-1, -2) @ x.q)), x.group)),
        "dv": r(over_groups(r(p.swapaxes(-1, -2) @ x.cotangent), x.group)),
    }


assert ml_dtypes.bfloat16  # gives NumPy the dtype that `r` may round to

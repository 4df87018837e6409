"""What both routes of the oracle return: float64 arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forward:
    """out [B, Hq, T, D]; lse [B, Hq, T], the natural log-sum-exp of a row's visible logits."""

    out: Float64
    lse: Float64


@dataclass(frozen=True, eq=False)
class Gradients:
    """dq [B, Hq, T, D]; dk and dv [B, Hkv, S, D], summed over each group of query heads."""

    dq: Float64
    dk: Float64
    dv: Float64

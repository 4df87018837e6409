"""Float64 truth in NumPy, forward and backward, by two routes that must agree.

The functions here are those of `direct`; `online` has the same, by the block recurrence.
"""

from lab.truth.direct import backward, forward, softmax_backward, softmax_forward
from lab.truth.results import Forward, Gradients

__all__ = [
    "Forward",
    "Gradients",
    "backward",
    "forward",
    "softmax_backward",
    "softmax_forward",
]

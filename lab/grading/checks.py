"""The checks of the rubric: one id a risk, with its points and a line of advice.

These ids are what a scorecard lists, what `caught_by` of a candidate names, and the columns of
the audit's heatmap. Points are out of 100. A check fails when any finding filed under it fails.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One risk: what it costs and what to do about it."""

    id: str
    points: int
    title: str
    advice: str


_ALL = (
    Check("contract", 3, "right shape and dtype, finite, does not raise",
          "Return one array [B, Hq, T, D] in q's dtype, finite wherever the visible inputs are."),
    Check("accuracy", 5, "plain values, no mask",
          "Compare softmax(scale * q k^T) v with float64 on one small head first."),
    Check("scale", 3, "scale applied once, before the softmax; a given scale is used",
          "Multiply the logits by `scale` (default 1/sqrt(D)) once, before the maximum is taken."),
    Check("causal", 5, "causal: the future changes nothing, the present does",
          "Query i sees key j only when j <= i + (S - T)."),
    Check("causal_alignment", 6, "T != S: causal is aligned bottom-right",
          "Add S - T to the query's position; with T > S the first T - S rows see nothing."),
    Check("padding", 5, "keys hidden by key_mask change nothing",
          "key_mask True means visible; a hidden key's weight is exactly 0, in every block."),
    Check("poisoned_padding", 5, "NaN and Inf in hidden keys stay there, forward and backward",
          "0 * NaN is NaN: replace hidden rows of K and V (select), do not multiply by a mask."),
    Check("empty_row", 5, "a row with no visible key gives exactly 0, and gradient 0",
          "Where the row's sum is 0, divide by 1 and write 0; guard the backward too."),
    Check("decode", 6, "few queries against many keys",
          "Run T = 1 and T = 8 against S = 1100: kernels for decoding are other kernels."),
    Check("gqa_mapping", 5, "query head h reads key/value head h // (Hq // Hkv)",
          "Use repeat, not tile: consecutive query heads share one key/value head."),
    Check("layout", 2, "a query changes its own row and no other",
          "Arrays are heads-major: [B, H, T, D]; check every transpose and reshape."),
    Check("multi_batch", 3, "batch entries do not mix; permuting them permutes the output",
          "Check the batch index in every index map, in the mask's above all."),
    Check("extreme_logits", 5, "extreme logits",
          "Subtract the row maximum; mask structurally, never with a finite sentinel."),
    Check("moving_max", 5, "the row's maximum moves to a later block",
          "Rescale both the sum and the accumulator by exp(m_old - m_new) in each block."),
    Check("long_row", 4, "long rows",
          "Accumulate sums in fp32 and keep positions in int32."),
    Check("tail_block", 4, "S not a multiple of any block",
          "Mask the tail block: padded keys must weigh 0, not exp(0)."),
    Check("combined", 3, "everything at once",
          "Run each feature alone first; then look at loop bounds and index maps."),
    Check("head_dim", 3, "every head width",
          "Pad the width inside the kernel, and take 1/sqrt(D) from the true D."),
    Check("weights", 4, "weights read out by V: they sum to 1, powers of two pass through",
          "Normalise by the sum of exactly the weights that multiply V."),
    Check("grad_q", 5, "dQ under a random cotangent",
          "dS = P * (dP - rowsum(P * dP)); dQ = scale * dS K, with the forward's mask."),
    Check("grad_k", 5, "dK under a random cotangent, summed over the group",
          "dK = scale * dS^T Q, summed over the query heads that share the key head."),
    Check("grad_v", 5, "dV under a random cotangent, summed over the group",
          "dV = P^T dO, summed over the query heads that share the value head."),
    Check("repeatable", 2, "the same call gives the same bits",
          "Initialise every output block and scratch buffer before it is read."),
    Check("precision", 2, "the declared precision tier is reached",
          "Keep logits, sums and accumulators in fp32; round once, at the end."),
)  # fmt: skip

BY_CHECKS = "the checks that failed"  # what a guess rests on
NOT_COVERED = "not covered"  # the note of a check with nothing filed under it
OUTSIDE = "outside of what it declares"  # the same where the candidate's declaration is why

# What it means that a gate fails: `<output> <words>`, for people.
GATES: dict[str, str] = {
    "element": "errs beyond the rounding bound of its tier",
    "row": "errs in a row by more than the roundings of its tier make",
    "gain": "is off by a factor or a constant that no rounding explains",
    "forward_alone": "is wrong where no gradient is asked for",
    "empty_row_is_zero": "is not exactly 0 in a row that sees no key",
    "hidden_values": "depends on keys that the mask hides",
    "hidden_poison": "depends on NaN and Inf in keys that the mask hides",
    "future_keys": "depends on later keys",
    "past_cotangent": "is not 0 where only earlier rows have a cotangent",
    "one_value": "moves in the wrong rows when one row of V changes",
    "first_value": "does not move in every row that sees the first key when its V changes",
    "last_cotangent": "is 0 for a key that the last row sees",
    "one_key": "moves in the wrong rows when one row of K changes",
    "one_query": "moves in rows whose query did not change",
    "batch_roll": "does not follow a permutation of the batch",
    "head_roll": "does not follow a permutation of the heads",
    "power_of_two": "is not scaled by exactly the power of two that V and the cotangent are",
    "constant_v": "is not 1 for a V of ones: the weights do not sum to 1",
    "one_hot_v": "shows weights that are negative or do not sum to 1",
    "repeat": "differs between two equal calls",
}

CHECKS: dict[str, Check] = {check.id: check for check in _ALL}
MAX_SCORE = sum(check.points for check in _ALL)

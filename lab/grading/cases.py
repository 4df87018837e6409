"""The cases of the rubric: inputs by which a right kernel can be told from a wrong one.

Each case exists for one check and avoids what other checks are about (no grouped heads where
causality is meant), so that the checks that fail say what is wrong. Lengths are no multiple of a
block, widths differ, heads, lengths and batch never have the same size. Cases that differ only in
their regime share a shape, so that an implementation is compiled once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.truth.problems import AttentionProblem, DtypePolicy, Shape, attention_problem


@dataclass(frozen=True)
class Case:
    """Inputs up to the seed and the dtype policy.

    Attributes:
        name: unique; the seed plan derives the case's seed from it.
        check: what a wrong `out` is filed under (wrong gradients have checks of their own).
        shape: sizes and masks.
        regime: a name in `problems.REGIMES`.
        scale: a number, or None for 1/sqrt(D).
        relations: whether a single verdict also tests the metamorphic relations here; the audit
            does so on every case.
        core: whether an untrusted kernel that supports only part of the suite must pass it.
    """

    name: str
    check: str
    shape: Shape
    regime: str = "normal"
    scale: float | None = None
    relations: bool = False
    core: bool = False

    def problem(self, policy: DtypePolicy, seed: int) -> AttentionProblem:
        """Draw the inputs."""
        return attention_problem(
            self.shape, policy, regime=self.regime, seed=seed, scale=self.scale
        )


_PLAIN = Shape(2, 3, 3, 96, 80, 64, causal=False, padding="none")
_CAUSAL = Shape(2, 3, 3, 136, 136, 128, causal=True, padding="none")
_CACHED = Shape(2, 2, 2, 40, 200, 80, causal=True, padding="none")
_LONGER = Shape(1, 3, 3, 200, 72, 96, causal=True, padding="none")
_GROUPED = Shape(2, 6, 2, 24, 104, 72, causal=False, padding="none")
_PADDED = Shape(3, 2, 2, 72, 136, 64, causal=False, padding="tail")
_EMPTY = Shape(3, 2, 2, 40, 72, 192, causal=False, padding="empty")
_COMBINED = Shape(2, 2, 1, 264, 328, 64, causal=True, padding="random")
_LONG = Shape(2, 2, 2, 8, 1100, 200, causal=False, padding="random")
_POSITIONS = Shape(1, 1, 1, 12, 33000, 16, causal=True, padding="none")
_DECODE = Shape(2, 3, 3, 1, 77, 64, causal=True, padding="none")

SUITE: tuple[Case, ...] = (
    Case("plain", "accuracy", _PLAIN, relations=True, core=True),
    Case("plain-peaky", "accuracy", _PLAIN, "peaky"),
    Case("plain-positive", "accuracy", _PLAIN, "positive_v"),
    Case("plain-mixture", "accuracy", _PLAIN, "mixture"),
    Case("plain-one-hot", "weights", _PLAIN, "one_hot_v"),
    Case("plain-large", "extreme_logits", _PLAIN, "large_logits"),
    Case("plain-below-sentinel", "extreme_logits", _PLAIN, "below_sentinel"),
    Case("plain-moving-max", "moving_max", _PLAIN, "moving_max"),
    Case("plain-negative", "tail_block", _PLAIN, "negative_logits"),
    Case("causal", "causal", _CAUSAL, relations=True, core=True),
    Case("causal-below-sentinel", "extreme_logits", _CAUSAL, "below_sentinel"),
    Case("causal-mixture", "causal", _CAUSAL, "mixture"),
    Case("cached", "causal_alignment", _CACHED, relations=True),
    Case("cached-moving-max", "causal_alignment", _CACHED, "moving_max"),
    Case("query-longer", "causal_alignment", _LONGER, relations=True),
    Case("grouped", "gqa_mapping", _GROUPED, relations=True),
    Case("scaled-decode", "scale", _DECODE, scale=0.31),
    Case("padded", "padding", _PADDED, relations=True),
    Case("padded-negative", "tail_block", _PADDED, "negative_logits"),
    Case("padded-below-sentinel", "extreme_logits", _PADDED, "below_sentinel"),
    Case("padded-poisoned", "poisoned_padding", _PADDED, "poisoned"),
    # Rows without a key are judged apart (`relations.empty_rows`); the others have width 192.
    Case("empty", "head_dim", _EMPTY, relations=True),
    Case("combined", "combined", _COMBINED, relations=True),
    Case("combined-moving-max", "moving_max", _COMBINED, "moving_max"),
    Case("combined-mixture", "combined", _COMBINED, "mixture"),
    Case("combined-poisoned", "poisoned_padding", _COMBINED, "poisoned"),
    Case("odd-width", "head_dim", _LONG),
    Case("long-equal", "long_row", _LONG, "equal_logits"),
    Case("long-positive", "long_row", _LONG, "positive_v"),
    Case("positions", "long_row", _POSITIONS),
)
BY_NAME = {case.name: case for case in SUITE}

"""The cases of the rubric: inputs by which a right kernel can be told from a wrong one.

Each case exists for one check and avoids what other checks are about (no grouped heads where
causality is meant), so that the checks that fail say what is wrong. Lengths are no multiple of a
block, widths differ, heads, lengths and batch never have the same size. Cases that differ only in
their regime share a shape, so that an implementation is compiled once for all of them.

Few queries against many keys (decoding) are a suite of their own: kernels have code for them alone.
"""

from __future__ import annotations

import itertools
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
        alone: whether it is also asked for its output alone, without gradients: another program.
        core: whether an untrusted kernel that supports only part of the suite must pass it.
    """

    name: str
    check: str
    shape: Shape
    regime: str = "normal"
    scale: float | None = None
    relations: bool = False
    alone: bool = False
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
_CROSS = Shape(2, 6, 2, 24, 120, 64, causal=True, padding="none")
_PADDED = Shape(3, 2, 2, 72, 136, 64, causal=False, padding="tail")
_LEFT = Shape(3, 2, 2, 40, 408, 64, causal=False, padding="head")
_HOLE = Shape(3, 2, 2, 40, 408, 64, causal=False, padding="hole")
_LEFT_CAUSAL = Shape(2, 2, 2, 200, 200, 64, causal=True, padding="head")
_EMPTY = Shape(3, 2, 2, 40, 72, 192, causal=False, padding="empty")
_WIDE = Shape(2, 2, 2, 24, 56, 256, causal=True, padding="none")
_COMBINED = Shape(2, 2, 1, 264, 328, 64, causal=True, padding="random")
_LONG = Shape(2, 2, 2, 8, 1100, 200, causal=False, padding="random")
_PREFILL = Shape(1, 4, 2, 136, 1240, 64, causal=True, padding="head")
_SQUARE = Shape(1, 1, 1, 1056, 1056, 64, causal=True, padding="none")
_POSITIONS = Shape(1, 1, 1, 12, 33000, 16, causal=True, padding="none")
_SCALED = Shape(2, 3, 3, 1, 77, 64, causal=True, padding="none")

FEW_QUERIES = (1, 2, 4, 8, 16)
LONG_KEYS = 1024  # where kernels begin to split the keys among programs


def _decoding() -> tuple[Case, ...]:
    """Few queries, crossed with many keys, causality, a key mask and grouped heads.

    Eight cases a number of queries: each three of the four features are met in all of their
    combinations (the orthogonal array of strength 3 with an even number of features), and all four
    together. A masked batch holds each kind of padding. Unmasked long keys fill whole blocks.
    """
    cases = []
    for q_len, (long, causal, masked) in itertools.product(
        FEW_QUERIES, itertools.product((True, False), repeat=3)
    ):
        grouped = long ^ causal ^ masked
        kv_len = (1090 + 6 * q_len if masked else 1152) if long else (72 if masked else 64) + q_len
        shape = Shape(
            4 if masked else 2,
            6 if grouped else 3,
            2 if grouped else 3,
            q_len,
            kv_len,
            32 if long else 64,
            causal=causal,
            padding="mixed" if masked else "none",
        )
        words = ("long",) * long + ("causal",) * causal + ("padded",) * masked
        name = "-".join((f"decode-{q_len}", *words, *("grouped",) * grouped))
        cases.append(Case(name, "decode", shape, alone=long and grouped))
    return tuple(cases)


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
    Case("cached-grouped", "causal_alignment", _CROSS),
    Case("scaled-decode", "scale", _SCALED, scale=0.31),
    Case("padded", "padding", _PADDED, relations=True),
    Case("padded-negative", "tail_block", _PADDED, "negative_logits"),
    Case("padded-below-sentinel", "extreme_logits", _PADDED, "below_sentinel"),
    Case("padded-poisoned", "poisoned_padding", _PADDED, "poisoned"),
    Case("padded-left", "padding", _LEFT, alone=True),
    Case("padded-hole", "padding", _HOLE),
    Case("padded-left-poisoned", "poisoned_padding", _LEFT, "poisoned"),
    # Its first rows see no key: causality and left padding hide them all.
    Case("causal-left", "padding", _LEFT_CAUSAL),
    # Rows without a key are judged apart (`relations.empty_rows`); the others have width 192.
    Case("empty", "head_dim", _EMPTY, relations=True),
    Case("wide", "head_dim", _WIDE),
    Case("combined", "combined", _COMBINED, relations=True),
    Case("combined-moving-max", "moving_max", _COMBINED, "moving_max"),
    Case("combined-mixture", "combined", _COMBINED, "mixture"),
    Case("combined-poisoned", "poisoned_padding", _COMBINED, "poisoned"),
    Case("odd-width", "head_dim", _LONG),
    Case("long-equal", "long_row", _LONG, "equal_logits"),
    Case("long-positive", "long_row", _LONG, "positive_v"),
    Case("prefill", "long_row", _PREFILL),
    Case("square", "long_row", _SQUARE),
    Case("positions", "long_row", _POSITIONS),
    *_decoding(),
)
BY_NAME = {case.name: case for case in SUITE}

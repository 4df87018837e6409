"""What a scorecard says of a check that passed: made from the cases that ran, claim by claim.

A claim is printed only if a case for it was answered; widths and lengths are read off the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.grading.cases import Case

Holds = Callable[["Case"], bool]
Words = Callable[[Sequence["Case"]], str]


@dataclass(frozen=True)
class Claim:
    """Something a card may say, and the cases that entitle it to."""

    holds: Holds
    words: str | Words

    def said(self, cases: Iterable[Case]) -> str | None:
        """The words, or None where no case entitles to them."""
        entitled = [case for case in cases if self.holds(case)]
        if not entitled:
            return None
        return self.words if isinstance(self.words, str) else self.words(entitled)


def _regime(*names: str) -> Holds:
    return lambda case: case.regime in names


def _related(case: Case) -> bool:
    return case.relations


def _filed(check: str) -> Holds:
    return lambda case: case.check == check


def _sizes(name: str) -> Words:
    return lambda cases: ", ".join(map(str, sorted({getattr(c.shape, name) for c in cases})))


def _kinds(cases: Sequence[Case]) -> str:
    found = {c.shape.padding for c in cases}
    if "mixed" in found:
        found |= {"tail", "head", "hole", "random"}
    return "hidden keys: " + ", ".join(sorted(found - {"mixed", "none"}))


def _decoding(holds: Holds) -> Holds:
    return lambda case: case.check == "decode" and holds(case)


def _in_cases(what: str) -> Words:
    return lambda cases: f"{what} in {len(cases)} {'case' if len(cases) == 1 else 'cases'}"


def _everywhere(case: Case) -> bool:  # noqa: ARG001 - a rule
    return True


def _masks(cases: Sequence[Case]) -> str:
    causal, padded = (
        sum(holds(case.shape) for case in cases)
        for holds in (lambda s: s.causal, lambda s: s.padding != "none")
    )
    return f"causal in {causal}, padded in {padded}"


def _groups(cases: Sequence[Case]) -> str:
    return "summed over groups of " + ", ".join(sorted({str(c.shape.group) for c in cases}))


_GRADIENT = (Claim(_everywhere, _in_cases("a random cotangent")), Claim(_everywhere, _masks))
_OVER_GROUPS = Claim(lambda case: case.shape.group > 1, _groups)

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "contract": (Claim(_everywhere, _in_cases("q's shape and dtype")),),
    "grad_q": _GRADIENT,
    "grad_k": (*_GRADIENT, _OVER_GROUPS),
    "grad_v": (*_GRADIENT, _OVER_GROUPS),
    "accuracy": (Claim(_filed("accuracy"), "no mask"),
                 Claim(_regime("peaky"), "peaky logits"),
                 Claim(_regime("mixture"), "mixed values")),
    "scale": (Claim(lambda c: c.scale is None, "1/sqrt(D)"),
              Claim(lambda c: c.scale is not None,
                    lambda cases: f"a given scale ({', '.join(str(c.scale) for c in cases)})")),
    "causal": (Claim(lambda c: c.shape.causal and _related(c),
                     "the future changes nothing, the first key reaches every row"),
               Claim(lambda c: c.shape.causal and c.shape.q_len == c.shape.kv_len, "T = S")),
    "causal_alignment": (Claim(lambda c: c.shape.causal and c.shape.q_len < c.shape.kv_len,
                               "T < S"),
                         Claim(lambda c: c.shape.causal and c.shape.q_len > c.shape.kv_len,
                               "T > S"),
                         Claim(lambda c: c.shape.causal and c.shape.group > 1
                               and c.shape.padding == "none", "with grouped heads")),
    "padding": (Claim(lambda c: c.shape.padding != "none", _kinds),
                Claim(lambda c: c.shape.padding == "head" and c.shape.causal,
                      "left padding under causality")),
    "poisoned_padding": (Claim(lambda c: c.regime == "poisoned"
                               or (_related(c) and c.shape.padding != "none"),
                               "NaN and Inf in hidden keys stay there"),),
    "empty_row": (Claim(lambda c: c.shape.padding == "empty", "a batch entry without a key"),
                  Claim(lambda c: c.shape.causal and c.shape.q_len > c.shape.kv_len,
                        "rows before the first key")),
    "decode": (Claim(_filed("decode"), lambda cases: f"T in {_sizes('q_len')(cases)}"),
               Claim(_decoding(lambda c: c.shape.kv_len > 1024),
                     lambda cases: f"S to {max(c.shape.kv_len for c in cases)}"),
               Claim(_decoding(lambda c: c.shape.causal), "causal"),
               Claim(_decoding(lambda c: c.shape.padding != "none"), "padded"),
               Claim(_decoding(lambda c: c.shape.group > 1), "grouped")),
    "gqa_mapping": (Claim(lambda c: c.shape.group > 1,
                          lambda cases: "query heads over key heads: " + ", ".join(sorted(
                              {f"{c.shape.q_heads}/{c.shape.kv_heads}" for c in cases}))),),
    "layout": (Claim(_related, "a query changes its own row and no other"),),
    "multi_batch": (Claim(lambda c: _related(c) and c.shape.batch > 1,
                          "batch entries do not mix, and follow a permutation"),),
    "extreme_logits": (Claim(_regime("large_logits"), "logits of +-1e4"),
                       Claim(_regime("below_sentinel"), "all below -6e4")),
    "moving_max": (Claim(_regime("moving_max"), "the row's maximum moves to later blocks"),),
    "long_row": (Claim(_regime("equal_logits"), lambda cases: f"{_longest(cases)} equal keys"),
                 Claim(lambda c: c.shape.q_len > 16 and c.shape.kv_len > 1024,
                       lambda cases: f"many queries on {_sizes('kv_len')(cases)} keys"),
                 Claim(lambda c: c.shape.kv_len > 32768, "positions beyond 32768")),
    "tail_block": (Claim(lambda c: c.regime == "negative_logits" and c.shape.kv_len % 128 != 0,
                         lambda cases: f"negative logits, S of {_sizes('kv_len')(cases)}"),),
    "combined": (Claim(lambda c: c.shape.causal and c.shape.group > 1
                       and c.shape.padding != "none" and c.shape.q_len > 128,
                       "many blocks, grouped, causal and padded at once"),),
    "head_dim": (Claim(lambda c: c.shape.head_dim >= 64,
                       lambda cases: f"head widths {_sizes('head_dim')(cases)}"),),
    "weights": (Claim(_related, "weights read out by V sum to 1, powers of two pass through"),),
    "repeatable": (Claim(_related, "the same call gives the same bits"),),
}  # fmt: skip


def _longest(cases: Sequence[Case]) -> int:
    return max(case.shape.kv_len for case in cases)


def covered_by(check: str, cases: Sequence[Case]) -> str:
    """What these cases, all answered, entitle a card to say of a check that passed."""
    said = [words for claim in CLAIMS.get(check, ()) if (words := claim.said(cases))]
    return "; ".join(said) or f"held in {len(cases)} cases"

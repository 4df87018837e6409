"""Attention problems: shapes, masks, dtype policies and inputs that follow from a seed.

NumPy only. The same (shape, policy, regime, seed, scale) gives the same values on every machine.
The values do not depend on `causal`, on `padding` or, but for rounding, on the policy, so that
cases which differ in those alone can be compared.
"""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy the dtype name "bfloat16"
import numpy as np
from numpy.typing import DTypeLike, NDArray

from lab.errors import UserError
from lab.truth.regimes import REGIMES, Recipe, Streams

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]

__all__ = [
    "PADDINGS",
    "POLICIES",
    "REGIMES",
    "AttentionProblem",
    "DtypePolicy",
    "Shape",
    "SoftmaxProblem",
    "attention_problem",
    "poison",
    "softmax_problem",
    "visible",
]

PADDINGS = ("none", "tail", "head", "hole", "random", "mixed", "empty")
BLOCK = 128  # keys of the blocks that kernels skip; long masks hide whole ones
MAX_LENGTH = 1 << 20
MAX_PROBLEM_BYTES = 8 << 30


@dataclass(frozen=True)
class Shape:
    """Sizes and masks of one attention problem.

    `causal` is aligned bottom-right: query i sees key j when j <= i + kv_len - q_len. `padding`
    hides keys by a mask: `none`; `tail` (a length for each batch entry, different where kv_len
    allows); `head` (left padding: the first keys); `hole` (keys in the middle); `random` (scattered
    keys); `mixed` (batch entries in turn as tail, head, hole, random); `empty` (one batch entry has
    no key, the others as `tail`). Where there is room, the first `head` and `hole` hide whole
    blocks of 128 keys.

    Raises:
        UserError: a size below 1, a length above 2**20, q_heads no multiple of kv_heads, or an
            unknown padding.
    """

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    causal: bool
    padding: str

    def __post_init__(self) -> None:
        for field in fields(self)[:6]:
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(
                    f"{field.name}={value!r} is not a size: give an integer of at least 1"
                )
        for key, value in (("seq", self.kv_len), ("q_len", self.q_len)):  # q_len follows seq
            if value > MAX_LENGTH:
                raise UserError(
                    f"{key}={value} is too long: at most {MAX_LENGTH} is allowed; "
                    f"choose a shorter {key}"
                )
        if self.q_heads % self.kv_heads:
            raise UserError(
                f"q_heads={self.q_heads} is not a multiple of kv_heads={self.kv_heads}: each "
                "key/value head serves an equal group of query heads; change one of them"
            )
        if self.padding not in PADDINGS:
            raise UserError(f"padding={self.padding!r} is unknown: choose {_names(PADDINGS)}")

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.q_heads // self.kv_heads


@dataclass(frozen=True)
class DtypePolicy:
    """Dtype names: of the inputs, the logits, the normalisation and accumulation, the output.

    A masked softmax takes its logits in `input` and always gives float32 probabilities.
    """

    name: str
    input: str
    logits: str
    accumulation: str
    output: str


POLICIES = {
    "bf16": DtypePolicy("bf16", "bfloat16", "float32", "float32", "bfloat16"),
    "f32": DtypePolicy("f32", "float32", "float32", "float32", "float32"),
}


@dataclass(frozen=True, eq=False)
class AttentionProblem:
    """Inputs of one attention call and the cotangent of its result; the arrays are read-only.

    q [B, Hq, T, D] and k, v [B, Hkv, S, D] in the policy's input dtype; key_mask bool [B, S], True
    where a key may be attended, or None; cotangent [B, Hq, T, D] in the policy's output dtype.
    """

    q: Array
    k: Array
    v: Array
    key_mask: BoolArray | None
    causal: bool
    scale: float | None
    cotangent: Array
    policy: DtypePolicy
    regime: str
    seed: int

    @property
    def visible(self) -> BoolArray:
        """Which query sees which key: bool [T, S], or [B, 1, T, S] where keys are padded."""
        return visible(self.q.shape[2], self.k.shape[2], causal=self.causal, key_mask=self.key_mask)


@dataclass(frozen=True, eq=False)
class SoftmaxProblem:
    """Inputs of one masked softmax and the cotangent of its result; the arrays are read-only.

    logits [B, H, T, S] in the policy's input dtype; mask bool [T, S], or [B, 1, T, S] where keys
    are padded, True where a key may be attended; cotangent [B, H, T, S] float32.
    """

    logits: Array
    mask: BoolArray
    cotangent: Array
    policy: DtypePolicy
    regime: str
    seed: int


def attention_problem(
    shape: Shape,
    policy: DtypePolicy,
    *,
    regime: str = "normal",
    seed: int = 0,
    scale: float | None = None,
) -> AttentionProblem:
    """Draw q, k, v, key mask and cotangent.

    Args:
        shape: sizes and masks.
        policy: one of `POLICIES`; gives the dtypes.
        regime: a name in `REGIMES`.
        seed: any integer of at least 0.
        scale: factor of the logits, above 0; None means 1/sqrt(head_dim).

    Raises:
        UserError: an unknown regime, a bad seed or scale, a problem above 8 GiB, or `poisoned`
            with a shape that hides no key.
    """
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise UserError(f"scale={scale} is not allowed: give a finite number above 0, or null")
    B, Hq, Hkv, T, S, D = astuple(shape)[:6]
    _check_bytes(shape, 2 * B * D * (Hq * T + Hkv * S) * 4)
    streams, recipe = _start(shape, regime, seed)
    factor = scale if scale is not None else 1 / math.sqrt(D)
    q, k = recipe.q_and_k(streams, (B, Hq, T, D), (B, Hkv, S, D), factor)
    problem = AttentionProblem(
        q=_cast(q, policy.input),
        k=_cast(k, policy.input),
        v=_cast(recipe.values(streams, k.shape), policy.input),
        key_mask=_key_mask(shape, streams),
        causal=shape.causal,
        scale=scale,
        cotangent=_cast(streams.normal("cotangent", q.shape), policy.output),
        policy=policy,
        regime=regime,
        seed=seed,
    )
    return poison(problem) if recipe.poison else problem


def softmax_problem(
    shape: Shape, policy: DtypePolicy, *, regime: str = "normal", seed: int = 0
) -> SoftmaxProblem:
    """Draw logits [B, q_heads, q_len, kv_len], mask and cotangent of a masked softmax.

    Args and errors are those of `attention_problem`. The logits follow the regime directly, not
    through a product of q and k; regimes of V alone are like `normal`. `poisoned` puts NaN and
    Inf where the key mask hides a logit.
    """
    B, H, T, S = shape.batch, shape.q_heads, shape.q_len, shape.kv_len
    input_bytes = np.dtype(policy.input).itemsize
    _check_bytes(shape, B * H * T * S * (input_bytes + 4))
    streams, recipe = _start(shape, regime, seed)
    key_mask = _key_mask(shape, streams)
    hidden = _require_hidden(key_mask) if recipe.poison else None
    logits = np.empty((B, H, T, S), policy.input)
    cotangent = np.empty((B, H, T, S), np.float32)
    cotangent_rng = streams.rng("cotangent")
    # A plane at a time: float64 values of the whole would be the largest arrays of all.
    for (b, h), plane in recipe.logit_planes(streams, logits.shape):
        if hidden is not None:
            plane[:, hidden[b]] = _poison_values(T, int(hidden[b].sum()))
        logits[b, h] = _cast(plane, policy.input)
        cotangent[b, h] = cotangent_rng.standard_normal((T, S))
    mask = _frozen(visible(T, S, causal=shape.causal, key_mask=key_mask))
    return SoftmaxProblem(_frozen(logits), mask, _frozen(cotangent), policy, regime, seed)


def visible(
    q_len: int, kv_len: int, *, causal: bool, key_mask: BoolArray | None = None
) -> BoolArray:
    """Which query sees which key, with the causal mask aligned bottom-right.

    Returns:
        bool [T, S]; with a key_mask [B, S] it is [B, 1, T, S].
    """
    mask = np.ones((q_len, kv_len), bool)
    if causal:
        mask = np.tril(mask, kv_len - q_len)
    return mask if key_mask is None else mask & key_mask[:, None, None, :]


def poison(problem: AttentionProblem) -> AttentionProblem:
    """The same problem with NaN, Inf and huge values in the K and V that its key mask hides.

    Raises:
        UserError: the problem hides no key.
    """
    hidden = _require_hidden(problem.key_mask)
    k, v = np.array(problem.k), np.array(problem.v)
    for b in range(len(hidden)):
        values = _poison_values(k.shape[-1], int(hidden[b].sum())).T
        k[b][:, hidden[b]] = _cast(values, k.dtype)
        v[b][:, hidden[b]] = _cast(values[::-1], v.dtype)
    return replace(problem, k=_frozen(k), v=_frozen(v))


def _start(shape: Shape, regime: str, seed: int) -> tuple[Streams, Recipe]:
    """The streams that follow from sizes, regime and seed, and the regime's recipe."""
    if regime not in REGIMES:
        raise UserError(f"regime={regime!r} is unknown: choose {_names(REGIMES)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UserError(f"seed={seed!r} is not a seed: give an integer of at least 0")
    streams = Streams(f"{regime} {seed} {astuple(shape)[:6]}")
    return streams, REGIMES[regime](streams.rng("recipe"))


def _key_mask(shape: Shape, streams: Streams) -> BoolArray | None:
    B, S, padding = shape.batch, shape.kv_len, shape.padding
    if padding == "none":
        return None
    rng = streams.rng(padding)
    if S == 1:
        mask = np.ones((B, S), bool)
    elif padding == "random":
        mask = _scattered(rng, B, S)
    elif padding in _PARTS:
        kinds = _PARTS[padding]
        mask = np.stack([_visible_keys(kinds[b % len(kinds)], S, rng, b) for b in range(B)])
    else:
        lengths = rng.permutation(np.arange(max(1, S // 4), S))
        mask = np.arange(S) < np.resize(lengths, B)[:, None]
    if padding == "empty":
        mask[rng.integers(B)] = False
    return _frozen(mask)


_PARTS = {"head": ("head",), "hole": ("hole",), "mixed": ("tail", "head", "hole", "random")}


def _scattered(rng: np.random.Generator, batch: int, kv_len: int) -> BoolArray:
    mask: BoolArray = rng.uniform(size=(batch, kv_len)) < 0.7
    for row in mask:
        # At least one key of each kind, or the case shows nothing.
        row[rng.permutation(kv_len)[:2]] = True, False
    return mask


def _visible_keys(kind: str, kv_len: int, rng: np.random.Generator, entry: int) -> BoolArray:
    """The keys [S] that one batch entry may see; at least a quarter of them, S above 1."""
    if kind == "random":
        return np.asarray(_scattered(rng, 1, kv_len)[0])
    keys, most = np.arange(kv_len), max(1, 3 * kv_len // 4)
    blocks = most // BLOCK if entry < len(_PARTS["mixed"]) else 0  # of later ones, any number
    hidden = int(rng.integers(1, blocks + 1)) * BLOCK if blocks else int(rng.integers(1, most + 1))
    if kind == "tail":
        seen: BoolArray = keys < kv_len - min(hidden, most)
    elif kind == "head":
        seen = keys >= hidden
    else:
        start = min(BLOCK if blocks and hidden + BLOCK < kv_len else 1, max(kv_len - hidden, 1))
        seen = (keys < start) | (keys >= start + min(hidden, max(kv_len - start - 1, 1)))
    return seen


def _poison_values(rows: int, columns: int) -> NDArray[np.float64]:
    """NaN, both infinities and huge values, each column (a key) with several of them."""
    kinds = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38])
    chosen: NDArray[np.float64] = kinds[np.add.outer(np.arange(rows), np.arange(columns)) % 5]
    return chosen


def _require_hidden(key_mask: BoolArray | None) -> BoolArray:
    """The hidden keys [B, S], of which there must be one."""
    if key_mask is None or key_mask.all():
        raise UserError(
            "regime='poisoned' has no hidden key to poison: "
            "choose any padding but none, and more than one key"
        )
    return ~key_mask


def _check_bytes(shape: Shape, count: int) -> None:
    if count > MAX_PROBLEM_BYTES:
        raise UserError(
            f"batch={shape.batch} q_heads={shape.q_heads} kv_heads={shape.kv_heads} "
            f"q_len={shape.q_len} kv_len={shape.kv_len} head_dim={shape.head_dim} needs "
            f"{count / 2**30:.1f} GiB for its inputs: at most {MAX_PROBLEM_BYTES >> 30} GiB is "
            "allowed; choose a smaller seq, batch or head count"
        )


def _cast(values: Array, dtype: DTypeLike) -> Array:
    # By way of float32 under each policy, so that bf16 inputs are the rounded f32 inputs.
    return _frozen(values.astype(np.float32).astype(dtype))


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)

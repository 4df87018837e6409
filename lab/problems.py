"""Attention problems: shapes, masks, dtype policies and inputs that follow from a seed.

NumPy only. The same (shape, policy, regime, seed, scale) gives the same values on every machine.
The values do not depend on `causal`, on `padding` or, but for rounding, on the policy, so that
cases which differ in those alone can be compared.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy the dtype name "bfloat16"
import numpy as np
from numpy.typing import DTypeLike, NDArray

from lab.errors import UserError

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
Generator = np.random.Generator

PADDINGS = ("none", "tail", "random", "empty")
MAX_LENGTH = 1 << 20
MAX_PROBLEM_BYTES = 8 << 30


@dataclass(frozen=True)
class Shape:
    """Sizes and masks of one attention problem.

    `causal` is aligned bottom-right: query i sees key j when j <= i + kv_len - q_len. `padding`
    hides keys by a mask: `none`; `tail` (a length for each batch entry, different where kv_len
    allows); `random` (scattered keys); `empty` (one batch entry has no key, the others as `tail`).

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
        for name, key in (("q_len", "q_len"), ("kv_len", "seq")):
            if (value := getattr(self, name)) > MAX_LENGTH:
                raise UserError(
                    f"{name}={value} is too long: at most {MAX_LENGTH} is allowed; "
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


@dataclass(frozen=True)
class Recipe:
    """What an input regime does to independent N(0, 1) values; logits are meant after the scale.

    The first one or two columns of q and k carry `level` and `ramp`, the others the noise.
    """

    query_gain: float = 1.0  # multiplies q, and so the spread of a row's logits
    level: float = 0.0  # added to every logit ...
    flip: float = 0.0  # ... with the sign reversed for this fraction of the keys
    ramp: float = 0.0  # rise of the logits from the first key to the last
    key_spread: float = 1.0  # 0: all keys of a head are equal, so every logit of a row is
    v_positive: float = 0.0  # blend of V towards |V|
    v_one_hot: float = 0.0  # blend of V towards unit vectors, which read the weights out
    poison: bool = False  # NaN, Inf and huge values in the keys that the key mask hides


def _mixture(rng: Generator) -> Recipe:
    """A random point between the other regimes, so that none can be recognised."""
    return Recipe(
        query_gain=6.0 ** rng.uniform(),
        level=float(rng.choice([-1.0, 1.0])) * 10.0 ** rng.uniform(-1.0, math.log10(6.5e4)),
        flip=rng.uniform(0.0, 0.5),
        ramp=rng.uniform(0.0, 12.0),
        key_spread=rng.uniform(0.2, 1.0),
        v_positive=rng.uniform(),
        v_one_hot=rng.uniform(0.0, 0.5),
    )


def _fixed(recipe: Recipe) -> Callable[[Generator], Recipe]:
    return lambda _: recipe


REGIMES: dict[str, Callable[[Generator], Recipe]] = {
    "normal": _fixed(Recipe()),
    "peaky": _fixed(Recipe(query_gain=6.0)),
    "positive_v": _fixed(Recipe(v_positive=1.0)),
    # Overflows without a max subtraction; both signs, so that the max matters.
    "large_logits": _fixed(Recipe(level=1e4, flip=0.5)),
    # A key beyond the end that is read as zero scores 0 and would outweigh these.
    "negative_logits": _fixed(Recipe(level=-16.0)),
    # Below the finite stand-ins for -inf that kernels have used (-1e4, -5e4).
    "below_sentinel": _fixed(Recipe(level=-6.5e4)),
    # Each block of an online softmax meets a new maximum and must rescale what it has.
    "moving_max": _fixed(Recipe(ramp=12.0)),
    "one_hot_v": _fixed(Recipe(v_one_hot=1.0)),
    # A sum of equal weights saturates at 256 terms if it is kept in bfloat16.
    "equal_logits": _fixed(Recipe(key_spread=0.0)),
    "poisoned": _fixed(Recipe(poison=True)),
    "mixture": _mixture,
}


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
    draw = _Draw(shape, regime, seed)
    recipe = draw.recipe
    factor = scale if scale is not None else 1 / math.sqrt(D)

    q = recipe.query_gain * draw.normal("q", (B, Hq, T, D))
    k = recipe.key_spread * draw.normal("k", (B, Hkv, S, D))
    k += (1 - recipe.key_spread) * draw.normal("common key", (B, Hkv, 1, D))
    level, ramp = draw.level((B, Hkv, S)), np.broadcast_to(draw.ramp(S), (B, Hkv, S))
    for column, lift in enumerate([level, ramp] if D > 1 else [level + ramp]):
        if peak := float(np.abs(lift).max()):
            q[..., column] = math.sqrt(peak / factor)
            k[..., column] = lift / math.sqrt(peak * factor)
    if abs(recipe.level) >= 1e3:
        # Quarters make float32 dot products beside a large level exact in any order of summation:
        # otherwise correct kernels would differ by the rounding of the level alone.
        q, k = np.round(4 * q) / 4, np.round(4 * k) / 4

    v = draw.normal("v", (B, Hkv, S, D))
    v = (1 - recipe.v_positive) * v + recipe.v_positive * np.abs(v)
    if recipe.v_one_hot:
        first = draw.rng("one hot").integers(D, size=(B, Hkv, 1, 1))
        hot = np.arange(D) == (first + np.arange(S)[:, None]) % D
        v = (1 - recipe.v_one_hot) * v + recipe.v_one_hot * hot

    problem = AttentionProblem(
        q=_cast(q, policy.input),
        k=_cast(k, policy.input),
        v=_cast(v, policy.input),
        key_mask=draw.key_mask(),
        causal=shape.causal,
        scale=scale,
        cotangent=_cast(draw.normal("cotangent", (B, Hq, T, D)), policy.output),
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
    draw = _Draw(shape, regime, seed)
    recipe = draw.recipe
    key_mask = draw.key_mask()
    hidden = None if key_mask is None else ~key_mask
    if recipe.poison:
        _require_hidden(hidden)
    level, ramp = draw.level((B, H, S)), draw.ramp(S)
    noise, dresult = draw.rng("logits"), draw.rng("cotangent")
    logits = np.empty((B, H, T, S), policy.input)
    cotangent = np.empty((B, H, T, S), np.float32)
    # A plane at a time: float64 values of the whole would be the largest arrays of all.
    for b, h in np.ndindex(B, H):
        plane = noise.standard_normal((T, S))
        plane *= recipe.query_gain * recipe.key_spread
        plane += recipe.query_gain * (1 - recipe.key_spread) * noise.standard_normal((T, 1))
        plane += level[b, h] + ramp
        if recipe.poison and hidden is not None:
            plane[:, hidden[b]] = _poison_values(T, int(hidden[b].sum()))
        logits[b, h] = _cast(plane, policy.input)
        cotangent[b, h] = dresult.standard_normal((T, S))
    mask = visible(T, S, causal=shape.causal, key_mask=key_mask)
    for array in (logits, cotangent):
        array.setflags(write=False)
    return SoftmaxProblem(logits, mask, cotangent, policy, regime, seed)


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
    hidden = None if problem.key_mask is None else ~problem.key_mask
    where = _require_hidden(hidden)
    k, v = np.array(problem.k), np.array(problem.v)
    D = k.shape[-1]
    for b in range(len(where)):
        values = _poison_values(D, int(where[b].sum())).T
        k[b][:, where[b]] = _cast(values, k.dtype)
        v[b][:, where[b]] = _cast(values[::-1], v.dtype)
    for array in (k, v):
        array.setflags(write=False)
    return replace(problem, k=k, v=v)


class _Draw:
    """Independent random streams, one a name, that follow from sizes, regime and seed."""

    def __init__(self, shape: Shape, regime: str, seed: int) -> None:
        if regime not in REGIMES:
            raise UserError(f"regime={regime!r} is unknown: choose {_names(REGIMES)}")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise UserError(f"seed={seed!r} is not a seed: give an integer of at least 0")
        self.shape = shape
        self.key = f"{regime} {seed} {astuple(shape)[:6]}"
        self.recipe = REGIMES[regime](self.rng("recipe"))

    def rng(self, name: str) -> Generator:
        entropy = hashlib.sha256(f"{self.key} {name}".encode()).digest()
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(entropy))))

    def normal(self, name: str, size: tuple[int, ...]) -> NDArray[np.float64]:
        return self.rng(name).standard_normal(size)

    def level(self, size: tuple[int, ...]) -> NDArray[np.float64]:
        """The level of each key's logit, its sign reversed for a fraction of the keys."""
        flipped = self.rng("flip").uniform(size=size) < self.recipe.flip
        return np.where(flipped, -self.recipe.level, self.recipe.level)

    def ramp(self, kv_len: int) -> NDArray[np.float64]:
        return self.recipe.ramp * np.linspace(-0.5, 0.5, kv_len)

    def key_mask(self) -> BoolArray | None:
        B, S, padding = self.shape.batch, self.shape.kv_len, self.shape.padding
        if padding == "none":
            return None
        rng = self.rng(padding)
        if padding == "random":
            mask = rng.uniform(size=(B, S)) < 0.7
            for row in mask if S > 1 else ():
                # At least one key of each kind, or the case shows nothing.
                row[rng.permutation(S)[:2]] = True, False
            return mask if S > 1 else np.ones((B, S), bool)
        shortest = max(1, S // 4)
        choices = rng.permutation(np.arange(shortest, S)) if S > 1 else np.array([1])
        mask = np.arange(S) < np.resize(choices, B)[:, None]
        if padding == "empty":
            mask[rng.integers(B)] = False
        return mask


def _poison_values(rows: int, columns: int) -> NDArray[np.float64]:
    """NaN, both infinities and huge values, each column (a key) with several of them."""
    kinds = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38])
    chosen: NDArray[np.float64] = kinds[np.add.outer(np.arange(rows), np.arange(columns)) % 5]
    return chosen


def _require_hidden(hidden: BoolArray | None) -> BoolArray:
    if hidden is None or not hidden.any():
        raise UserError(
            "regime='poisoned' has no hidden key to poison: "
            "choose padding tail, random or empty, and more than one key"
        )
    return hidden


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
    array = values.astype(np.float32).astype(dtype)
    array.setflags(write=False)
    return array


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)

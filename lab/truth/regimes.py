"""Input regimes: what the values of a problem are like, and the random streams they come from.

A fault in an attention kernel shows on some inputs and on no others; each regime here is the input
without which a known class of fault cannot be seen.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Generator = np.random.Generator


@dataclass(frozen=True)
class Streams:
    """Independent random streams, one a name, that follow from a key."""

    key: str

    def rng(self, name: str) -> Generator:
        """The stream of that name, from its beginning."""
        entropy = hashlib.sha256(f"{self.key} {name}".encode()).digest()
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(entropy))))

    def normal(self, name: str, size: tuple[int, ...]) -> Float64:
        """N(0, 1) values of that stream."""
        return self.rng(name).standard_normal(size)


@dataclass(frozen=True)
class Recipe:
    """What a regime makes of independent N(0, 1) values; levels are those of the scaled logits.

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

    def q_and_k(
        self, streams: Streams, q: tuple[int, ...], k: tuple[int, ...], scale: float
    ) -> tuple[Float64, Float64]:
        """Queries of shape q [B, Hq, T, D] and keys of shape k [B, Hkv, S, D]."""
        B, Hkv, S, D = k
        queries = self.query_gain * streams.normal("q", q)
        keys = self.key_spread * streams.normal("k", k)
        keys += (1 - self.key_spread) * streams.normal("common key", (B, Hkv, 1, D))
        level = self._level(streams, (B, Hkv, S))
        ramp = np.broadcast_to(self._ramp(S), level.shape)
        for column, lift in enumerate([level, ramp] if D > 1 else [level + ramp]):
            if peak := float(np.abs(lift).max()):
                queries[..., column] = math.sqrt(peak / scale)
                keys[..., column] = lift / math.sqrt(peak * scale)
        if abs(self.level) >= 1e3:
            # Quarters make float32 dot products beside a large level exact in any order of the
            # sum: otherwise correct kernels would differ by the rounding of the level alone.
            queries, keys = np.round(4 * queries) / 4, np.round(4 * keys) / 4
        return queries, keys

    def values(self, streams: Streams, shape: tuple[int, ...]) -> Float64:
        """V of shape [B, Hkv, S, D]."""
        B, Hkv, S, D = shape
        v = streams.normal("v", shape)
        v = (1 - self.v_positive) * v + self.v_positive * np.abs(v)
        first = streams.rng("one hot").integers(D, size=(B, Hkv, 1, 1))
        hot = np.arange(D) == (first + np.arange(S)[:, None]) % D
        blended: Float64 = (1 - self.v_one_hot) * v + self.v_one_hot * hot
        return blended

    def logit_planes(
        self, streams: Streams, shape: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, int], Float64]]:
        """Logits of shape [B, H, T, S] without a product of q and k: (b, h) and its [T, S]."""
        B, H, T, S = shape
        offsets = self._level(streams, (B, H, S)) + self._ramp(S)
        rng = streams.rng("logits")
        for b, h in np.ndindex(B, H):
            plane = rng.standard_normal((T, S))
            plane *= self.query_gain * self.key_spread
            plane += self.query_gain * (1 - self.key_spread) * rng.standard_normal((T, 1))
            plane += offsets[b, h]
            yield (b, h), plane

    def _level(self, streams: Streams, size: tuple[int, ...]) -> Float64:
        flipped = streams.rng("flip").uniform(size=size) < self.flip
        return np.where(flipped, -self.level, self.level)

    def _ramp(self, kv_len: int) -> Float64:
        return self.ramp * np.linspace(-0.5, 0.5, kv_len)


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

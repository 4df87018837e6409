"""Random inputs for the fused kernels, and the oracle's answer to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lab import truth


@dataclass(frozen=True)
class Case:
    """Inputs of one call; `shown` names the key mask."""

    heads: tuple[int, int]
    q_len: int
    kv_len: int
    causal: bool
    shown: str = ""
    head_dim: int = 16
    batch: int = 2
    dtype: str = "float32"

    def arrays(self) -> tuple[Any, Any, Any]:
        import jax.numpy as jnp

        rng = np.random.default_rng(7)
        q_heads, kv_heads = self.heads
        q, k, v = (
            rng.standard_normal((self.batch, heads, length, self.head_dim))
            for heads, length in ((q_heads, self.q_len), *[(kv_heads, self.kv_len)] * 2)
        )
        return tuple(jnp.asarray(x, self.dtype) for x in (q, k, v))

    def key_mask(self) -> Any:
        keys, entry = np.arange(self.kv_len)[None], np.arange(self.batch)[:, None]
        masks = {
            "right": keys < self.kv_len - 9 - 5 * entry,
            "left": keys >= 11 + 3 * entry,
            "middle": (keys < self.kv_len // 4) | (keys >= 3 * self.kv_len // 4 + entry),
            "random": np.random.default_rng(3).random((self.batch, self.kv_len)) < 0.3,
            "first entry hidden": np.broadcast_to(entry > 0, (self.batch, self.kv_len)),
        }
        return masks[self.shown] if self.shown else None

    def truth(self) -> Any:
        arrays = [np.asarray(x).astype(np.float64) for x in self.arrays()]
        return truth.forward(
            *arrays, causal=self.causal, key_mask=self.key_mask(), scale=self.head_dim**-0.5
        )

    def assert_right(self, out: Any, lse: Any) -> None:
        want = self.truth()
        out, lse = (np.asarray(x).astype(np.float64) for x in (out, lse))
        seen = np.isfinite(want.lse)
        np.testing.assert_array_equal(np.isneginf(lse), ~seen)
        np.testing.assert_allclose(lse[seen], want.lse[seen], rtol=0, atol=2e-5)
        np.testing.assert_array_equal(out[~seen], 0)
        bound = 2.0**-18 if self.dtype == "float32" else 2.0**-7
        assert np.abs(out - want.out).max() <= bound * max(1.0, np.abs(want.out).max())

"""How the simple fused attention lies in memory: padded arrays, blocks, and the visible keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

# Pallas gives its references, and the numbers of a program in its grid, no usable types.
Ref = Any
Index = Any
IndexMap = Callable[..., tuple[Index, ...]]


def dot(a: Array, b: Array, axes: tuple[int, int]) -> Array:
    """The product of two tiles over one axis of each, in their own dtype."""
    dims = (((axes[0],), (axes[1],)), ((), ()))
    highest = lax.Precision.HIGHEST
    return lax.dot_general(a, b, dims, precision=highest, preferred_element_type=a.dtype)


def div(x: Index, by: int) -> Index:
    """Quotient of numbers that are not negative; `//` would not lower for a TPU that is absent."""
    return lax.div(x, jnp.int32(by))


def rem(x: Index, by: int) -> Index:
    """Remainder of numbers that are not negative; see `div`."""
    return lax.rem(x, jnp.int32(by))


@dataclass(frozen=True)
class Layout:
    """Sizes of one call: queries in blocks of block_q, keys in blocks of block_k."""

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    width: int
    block_q: int
    block_k: int
    interpret: bool

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.q_heads // self.kv_heads

    @property
    def q_blocks(self) -> int:
        """Blocks of queries, the last one padded."""
        return -(-self.q_len // self.block_q)

    @property
    def k_blocks(self) -> int:
        """Blocks of keys, the last one padded."""
        return -(-self.kv_len // self.block_k)

    def pad_queries(self, x: Array) -> Array:
        """Fill [B, Hq, T, D] with zeros to whole blocks."""
        return _pad(x, self.block_q, axis=2)

    def pad_keys(self, x: Array) -> Array:
        """Fill [B, Hkv, S, D] with zeros to whole blocks."""
        return _pad(x, self.block_k, axis=2)

    def shown(self, key_mask: Array | None, tail_visible: bool) -> Array:
        """The key mask as int32 [B, 1, S] in whole blocks: TPU kernels load no booleans."""
        whole = jnp.ones((self.batch, self.kv_len), bool) if key_mask is None else key_mask
        return _pad(whole.astype(jnp.int32)[:, None], self.block_k, axis=2, value=int(tail_visible))

    def visible(self, i: Index, j: Index, shown: Array, offset: int | None) -> Array:
        """Bool [block_q, block_k]: what query block i sees of key block j; no causality if None."""
        tile = (self.block_q, self.block_k)
        mask = jnp.broadcast_to(shown != 0, tile)
        if offset is None:
            return mask
        rows = i * self.block_q + lax.broadcasted_iota(jnp.int32, tile, 0)
        columns = j * self.block_k + lax.broadcasted_iota(jnp.int32, tile, 1)
        return mask & (columns <= rows + offset)

    def rows(self, index: IndexMap, width: int | None = None) -> pl.BlockSpec:
        """A block of queries; `index` gives batch entry, head and block."""
        return _heads_block(self.block_q, self.width if width is None else width, index)

    def keys(self, index: IndexMap) -> pl.BlockSpec:
        """A block of keys or values; `index` gives batch entry, head and block."""
        return _heads_block(self.block_k, self.width, index)

    def mask(self, index: IndexMap) -> pl.BlockSpec:
        """A block of the key mask; `index` gives batch entry, anything, and block."""

        def place(*program: Index) -> tuple[Index, ...]:
            entry, _, block = index(*program)
            return entry, 0, block

        return pl.BlockSpec((1, 1, self.block_k), place)

    def call(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, ...],
        inputs: Sequence[tuple[Array, pl.BlockSpec]],
        outputs: Sequence[tuple[tuple[int, ...], pl.BlockSpec]],
        scratch: Sequence[tuple[int, int]],
    ) -> list[Array]:
        """Run a kernel; outputs and scratch memory have the dtype of the last input."""
        dtype = inputs[-1][0].dtype
        result: list[Array] = pl.pallas_call(
            kernel,
            grid=grid,
            in_specs=[spec for _, spec in inputs],
            out_specs=[spec for _, spec in outputs],
            out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, _ in outputs],
            scratch_shapes=[pltpu.VMEM(shape, dtype) for shape in scratch],
            interpret=self.interpret,
        )(*[x for x, _ in inputs])
        return result


def _heads_block(length: int, width: int, index: IndexMap) -> pl.BlockSpec:
    return pl.BlockSpec((1, 1, length, width), lambda *program: (*index(*program), 0))


def _pad(x: Array, block: int, axis: int, value: int = 0) -> Array:
    fill = [(0, 0)] * x.ndim
    fill[axis] = (0, -x.shape[axis] % block)
    return jnp.pad(x, fill, constant_values=value)

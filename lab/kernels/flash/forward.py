"""Fused attention forward in one Pallas TPU kernel, scores transposed.

A block of keys against 128 queries gives S^T = K Q^T [keys, 128]: queries lie along lanes, so the
running maximum and the sum of a query cost one register for 128 of them, and the product with
the values is O^T = V^T P^T. (Online softmax: Dao 2023, FlashAttention-2, algorithm 1.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lab.kernels.flash.plan import LANES, LOG2_E, Blocks, Job, Plan, default_blocks, dot, make_plan

if TYPE_CHECKING:
    from lab.kernels import Interpret

SUBLANES = 8

# Pallas gives its references and the numbers of a program in its grid no usable types.
Ref = Any
Index = Any


def forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None = None,
    *,
    causal: bool,
    scale: float,
    blocks: Blocks | None = None,
    interpret: Interpret = False,
    with_lse: bool = False,
) -> tuple[jax.Array, jax.Array | None]:
    """Attention by one kernel.

    Args:
        q: [B, Hq, T, D], bf16 or fp32; so are k and v.
        k: [B, Hkv, S, D].
        v: [B, Hkv, S, D].
        key_mask: Bool [B, S], True where a key may be attended; None for all.
        causal: query i sees key j only where j <= i + S - T.
        scale: factor of the logits, above 0.
        blocks: sizes; None chooses by shape.
        interpret: as `pallas_call` takes it.
        with_lse: return the log-sum-exp as well.

    Returns:
        [B, Hq, T, D] in q's dtype, and fp32 [B, Hq, T], -inf where a row sees no key, or None.

    Raises:
        ValueError: a scale that is not above 0.
        UnsupportedCell: blocks that do not fit one another, or too many keys for VMEM.
    """
    if not scale > 0:
        raise ValueError(f"scale is {scale}; it must be above 0")
    q_len, kv_len = q.shape[2], k.shape[2]
    if causal and q_len > kv_len:
        # The first rows see nothing; the others are a square problem.
        blind = q_len - kv_len
        out, lse = forward(
            q[:, :, blind:],
            k,
            v,
            key_mask,
            causal=True,
            scale=scale,
            blocks=blocks,
            interpret=interpret,
            with_lse=with_lse,
        )
        out = jnp.pad(out, ((0, 0), (0, 0), (blind, 0), (0, 0)))
        if lse is not None:
            lse = jnp.pad(lse, ((0, 0), (0, 0), (blind, 0)), constant_values=-jnp.inf)
        return out, lse
    group = q.shape[1] // k.shape[1]
    blocks = blocks or default_blocks(
        q_len, kv_len, group, causal=causal, element_bytes=q.dtype.itemsize
    )
    plan = make_plan(q.shape, k.shape, blocks, causal=causal)
    return _call(plan, q, k, v, key_mask, scale, interpret, with_lse)


def _call(
    plan: Plan,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    key_mask: jax.Array | None,
    scale: float,
    interpret: Interpret,
    with_lse: bool,
) -> tuple[jax.Array, jax.Array | None]:
    pairs = plan.batch * plan.kv_heads
    q_padding = (plan.front, plan.q_rows - plan.front - plan.q_len)
    k_padding = (0, plan.k_rows - plan.kv_len)
    width, block_q = plan.head_dim, plan.blocks.block_q
    q = _pad(q, q_padding).reshape(pairs * plan.parts, plan.heads, plan.q_rows, width)
    k, v = (_pad(x, k_padding).reshape(pairs, plan.k_rows, width) for x in (k, v))

    def queries(index: Index) -> Index:
        return lax.min(index, plan.steps - 1)

    def rows(index: Index) -> tuple[Index, ...]:
        return lax.div(index, plan.q_blocks), 0, lax.rem(index, plan.q_blocks)

    def results(index: Index) -> tuple[Index, ...]:
        # A block is finished beside the start of the next one.
        return rows(lax.max(index - 1, 0))

    def pair(index: Index) -> Index:
        return lax.div(queries(index), plan.parts * plan.q_blocks)

    block = (1, plan.heads, block_q, width)
    keys = pl.BlockSpec((1, plan.k_rows, width), lambda n: (pair(n), 0, 0))
    inputs = [(q, pl.BlockSpec(block, lambda n: (*rows(queries(n)), 0))), (k, keys), (v, keys)]
    outputs = [
        (jax.ShapeDtypeStruct(q.shape, q.dtype), pl.BlockSpec(block, lambda n: (*results(n), 0)))
    ]
    scratch = [
        pltpu.VMEM((plan.tiles, plan.blocks.block_k, LANES), jnp.float32),
        pltpu.VMEM((width, plan.blocks.block_k), v.dtype),
        pltpu.VMEM((plan.tiles, 1, LANES), jnp.float32),
        pltpu.VMEM((plan.tiles, SUBLANES, LANES), jnp.float32),
        pltpu.VMEM((plan.tiles, width, LANES), jnp.float32),
    ]
    if key_mask is not None:
        shown = jnp.pad(key_mask.astype(jnp.float32), ((0, 0), k_padding))[:, None]
        spec = pl.BlockSpec((1, 1, plan.k_rows), lambda n: (lax.div(pair(n), plan.kv_heads), 0, 0))
        inputs.append((shown, spec))
        scratch += [
            pltpu.VMEM((plan.k_rows, LANES), jnp.float32),
            pltpu.VMEM((plan.k_rows, width), v.dtype),
        ]
    if with_lse:
        shape = jax.ShapeDtypeStruct(q.shape[:3], jnp.float32)
        outputs.append((shape, pl.BlockSpec(block[:3], results)))
    out, *rest = pl.pallas_call(
        functools.partial(_kernel, plan, scale, key_mask is not None, with_lse),
        grid=(plan.steps + 1,),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",),
            vmem_limit_bytes=plan.vmem_limit_bytes(q.dtype.itemsize, masked=key_mask is not None),
        ),
        interpret=interpret,
        name="flash_forward",
    )(*[x for x, _ in inputs])
    heads_of_batch = (plan.batch, -1, plan.q_rows)
    cut = slice(plan.front, plan.front + plan.q_len)
    out = out.reshape(*heads_of_batch, width)[:, :, cut]
    return out, rest[0].reshape(heads_of_batch)[:, :, cut] if with_lse else None


def _pad(x: jax.Array, padding: tuple[int, int]) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, 0), padding, (0, 0))) if any(padding) else x


def _kernel(plan: Plan, scale: float, masked: bool, with_lse: bool, *refs: Ref) -> None:
    """One block of queries: the block before is finished, then this one walks over its keys."""
    names = ["q", "k", "v", *["mask"] * masked, "out", *["lse"] * with_lse]
    names += ["scores", "turned", "peak", "total", "acc", *["shown", "values"] * masked]
    at = dict(zip(names, refs, strict=True))
    index = pl.program_id(0)
    block = lax.rem(lax.min(index, plan.steps - 1), plan.q_blocks)
    step = _Step(plan, scale, at["q"], at["k"], at["values" if masked else "v"], at)

    if masked:

        @pl.when(lax.rem(index, plan.parts * plan.q_blocks) == 0)
        def _prepare() -> None:
            _clean(plan, at)

    block_k = plan.blocks.block_k
    full: Index
    if plan.causal:
        full = lax.div(block * plan.blocks.block_q + plan.diagonal, block_k)
    else:
        full = plan.k_rows // block_k - 1

    for job in plan.full_jobs()[: plan.lookahead]:
        step.score(job, 0)
    step.finish(at["out"], at.get("lse"))
    step.turn(0)

    @pl.when(index < plan.steps)
    def _walk() -> None:
        def body(j: Index, carry: None) -> None:
            step.run(plan.full_jobs(), j * block_k, (j + 1) * block_k)
            return carry

        lax.fori_loop(0, full, body, None)
        step.run(plan.last_jobs(), full * block_k, None)


def _clean(plan: Plan, at: dict[str, Ref]) -> None:
    """Turn the mask to lie along sublanes, as keys do, and zero the values that it hides."""

    def tile(j: Index, carry: None) -> None:
        keys = pl.ds(pl.multiple_of(j * LANES, LANES), LANES)
        shown = jnp.broadcast_to(at["mask"][0, :, keys], (LANES, LANES)).T
        at["shown"][keys] = shown
        at["values"][keys] = jnp.where(shown[:, :1] > 0, at["v"][0, keys], 0)
        return carry

    lax.fori_loop(0, plan.k_rows // LANES, tile, None)


@dataclass(frozen=True)
class _Step:
    """The parts of one step; `at` holds the scratch memory."""

    plan: Plan
    scale: float
    q: Ref
    k: Ref
    v: Ref
    at: dict[str, Ref]

    def run(self, jobs: list[Job], start: Index, next_start: Index | None) -> None:
        """Take `jobs` on keys from `start`, and begin the block at `next_start`, if there is one.

        The scores of the first jobs are there already; the next block's are left behind.
        """
        plan = self.plan
        early = plan.full_jobs() if next_start is not None else []
        work = [(job, start) for job in jobs] + [(job, next_start) for job in early]
        for n, job in enumerate(jobs):
            if n + plan.lookahead < len(work):
                self.score(*work[n + plan.lookahead])
            self.gather(job, start)
        if next_start is not None:
            self.turn(next_start)

    def score(self, job: Job, start: Index) -> None:
        """S^T = K Q^T of a job into its place in memory."""
        head, tile = divmod(job.tile, self.plan.tiles_of_head)
        q = self.q[0, head, tile * LANES : (tile + 1) * LANES]
        k = self.k[0, self._keys(job, start)]
        self.at["scores"][job.tile, : job.keys] = dot(k, q, (1, 1))

    def gather(self, job: Job, start: Index) -> None:
        """Take a job's scores into the running maximum, sum and output."""
        at, tile, factor = self.at, job.tile, self.scale * LOG2_E
        masked = "shown" in at
        scores = at["scores"][tile, : job.keys]
        if job.hidden is not None:
            scores = jnp.where(self._visible(job), scores, -jnp.inf)
        if masked:
            scores = jnp.where(at["shown"][self._keys(job, start)] > 0, scores, -jnp.inf)
        before = at["peak"][tile]
        peak = jnp.maximum(before, jnp.max(scores, axis=0, keepdims=True))
        # Where nothing has been visible yet, subtract 0: exp gives 0 there, and not NaN.
        base = jnp.where(peak == -jnp.inf, 0.0, peak) if masked else peak
        weights = jnp.exp2((scores - base) * factor)
        correction = jnp.exp2((before - base) * factor)
        at["peak"][tile] = peak
        total = jnp.sum(weights.reshape(-1, SUBLANES, LANES), axis=0)
        at["total"][tile] = at["total"][tile] * correction + total
        weights = weights.astype(self.v.dtype)
        if job.first:
            product = dot(self._values(job, start), weights, (0, 0))
        else:
            product = dot(at["turned"][:, : job.keys], weights, (1, 0))
        at["acc"][tile] = at["acc"][tile] * correction + product

    def turn(self, start: Index) -> None:
        """V^T of the block of keys at `start`."""
        self.at["turned"][...] = self._values(self.plan.full_jobs()[0], start).T

    def _values(self, job: Job, start: Index) -> jax.Array:
        keys = self._keys(job, start)
        return self.v[keys] if "shown" in self.at else self.v[0, keys]

    def _kept(self, job: Job) -> tuple[jax.Array, jax.Array]:
        return self.at["weights"][job.tile], self.at["correction"][job.tile]

    def finish(self, out: Ref, lse: Ref | None) -> None:
        """Divide, turn and write the block that was gathered last, and start the next one."""
        at = self.at
        for tile in range(self.plan.tiles):
            head, part = divmod(tile, self.plan.tiles_of_head)
            place = slice(part * LANES, (part + 1) * LANES)
            total = jnp.sum(at["total"][tile], axis=0, keepdims=True)
            seen = total > 0
            divisor = jnp.where(seen, total, 1.0)
            result = at["acc"][tile] / divisor
            out[0, head, place] = result.T.astype(out.dtype)
            if lse is not None:
                value = at["peak"][tile] * self.scale + jnp.log(divisor)
                lse[0, head : head + 1, place] = jnp.where(seen, value, -jnp.inf)
            at["peak"][tile] = jnp.full((1, LANES), -jnp.inf, jnp.float32)
            at["total"][tile] = jnp.zeros((SUBLANES, LANES), jnp.float32)
            at["acc"][tile] = jnp.zeros(result.shape, jnp.float32)

    def _keys(self, job: Job, start: Index) -> Any:  # noqa: ANN401 - a slice of a reference
        first = start + job.first
        if not isinstance(first, int):
            first = pl.multiple_of(first, LANES)
        return pl.ds(first, job.keys)

    def _visible(self, job: Job) -> jax.Array:
        """Bool [keys, 128] of a job at the diagonal, or at the end of the keys."""
        plan = self.plan
        keys = lax.broadcasted_iota(jnp.int32, (job.keys, LANES), 0)
        if not plan.causal:
            return keys < plan.kv_len - (plan.k_rows - plan.blocks.block_k)
        queries = lax.broadcasted_iota(jnp.int32, (job.keys, LANES), 1)
        tile = job.tile % plan.tiles_of_head
        return keys + job.first <= queries + tile * LANES

"""The body of the forward kernel: one block of queries against the keys that it sees."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from lab.kernels.flash.arithmetic import LOG2_E, dot
from lab.kernels.flash.plan import Job, Plan
from lab.kernels.sizes import LANES, SUBLANES

# Pallas gives its references and the numbers of a program in its grid no usable types.
Ref = Any
Index = Any


def kernel(plan: Plan, scale: float, masked: bool, with_lse: bool, *refs: Ref) -> None:
    """One block of queries: the block before is finished, then this one walks over its keys."""
    names = ["q", "k", "v", *["mask"] * masked, "out", *["lse"] * with_lse]
    names += ["scores", "turned", "peak", "total", "acc", *["shown", "values"] * masked]
    at = dict(zip(names, refs, strict=True))
    index, span = pl.program_id(0), pl.program_id(1)
    block = lax.rem(lax.min(index, plan.steps - 1), plan.q_blocks)
    step = _Step(plan, scale, at["q"], at["k"], at["values" if masked else "v"], at)

    if masked:
        pl.when(_keys_are_new(plan, index))(functools.partial(_clean, plan, at))

    for job in plan.full_jobs()[: plan.lookahead]:
        step.score(job, 0)
    finish = functools.partial(step.finish, at["out"], at.get("lse"))
    if plan.spans == 1:
        finish()
    else:
        pl.when(span == 0)(finish)
    step.turn(0)

    @pl.when(index < plan.steps)
    def _walk() -> None:
        block_k, blocks = plan.blocks.block_k, plan.span // plan.blocks.block_k
        seen = block * plan.blocks.block_q + plan.diagonal
        full = (lax.div(seen, block_k) if plan.causal else plan.full_blocks) - span * blocks

        def loop(blocks_here: Index) -> None:
            def body(j: Index, carry: None) -> None:
                step.run(plan.full_jobs(), j * block_k, (j + 1) * block_k)
                return carry

            lax.fori_loop(0, blocks_here, body, None)

        def to_the_end() -> None:
            loop(full)
            rests = plan.rests()
            for rest in rests:
                last = functools.partial(step.run, plan.last_jobs(rest), full * block_k, None)
                if len(rests) == 1:
                    last()
                else:
                    pl.when(lax.rem(seen, block_k) == rest)(last)

        if plan.spans == 1:
            to_the_end()
            return
        pl.when((full >= 0) & (full < blocks))(to_the_end)

        @pl.when(full >= blocks)
        def _whole_span() -> None:
            loop(blocks - 1)
            step.run(plan.full_jobs(), (blocks - 1) * block_k, None)


def _keys_are_new(plan: Plan, index: Index) -> Index:
    """Whether this step has other keys in VMEM than the one before."""
    return lax.rem(index, plan.parts * plan.q_blocks) == 0 if plan.spans == 1 else True


def _clean(plan: Plan, at: dict[str, Ref]) -> None:
    """Turn the mask to lie along sublanes, as keys do, and zero the values that it hides."""

    def tile(j: Index, carry: None) -> None:
        keys = pl.ds(pl.multiple_of(j * LANES, LANES), LANES)
        shown = jnp.broadcast_to(at["mask"][0, :, keys], (LANES, LANES)).T
        at["shown"][keys] = shown
        at["values"][keys] = jnp.where(shown[:, :1] > 0, at["v"][0, keys], 0)
        return carry

    lax.fori_loop(0, plan.span // LANES, tile, None)


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
        assert job.hidden is not None
        if not plan.causal:
            return keys < plan.kv_len - plan.full_blocks * plan.blocks.block_k
        queries = lax.broadcasted_iota(jnp.int32, (job.keys, LANES), 1)
        return keys <= queries + job.hidden

"""What the plain interpreter forgives and a TPU does not: copies under way, blocks come back to.

The plain interpreter makes a copy when it is started and keeps an output whole, so a kernel that
reads a buffer before it waits for it, or adds to an output block that it had left, is right there
and wrong on a TPU. It is also faster than a right one.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import core

if TYPE_CHECKING:
    from collections.abc import Mapping


def copies_itself(params: Mapping[str, Any]) -> bool:
    """Whether a kernel starts copies of its own, so that its waits must count.

    Args:
        params: of a `pallas_call`.
    """
    return any(map(_copies, core.jaxprs_in_params(params)))


def steered(params: Mapping[str, Any]) -> bool:
    """Whether scalars that are prefetched choose a kernel's blocks."""
    return bool(params["grid_mapping"].num_index_operands)


def left_and_revisited(params: Mapping[str, Any]) -> int | None:
    """The output whose block a kernel leaves and comes back to; None where there is none.

    A TPU writes a block back when the grid moves on and does not read it again. Of a kernel that is
    `steered` it is not known before it runs.
    """
    mapping = params["grid_mapping"]
    grid = tuple(mapping.grid)
    if steered(params) or not grid or not all(isinstance(size, int) for size in grid):
        return None
    steps = np.indices(grid, dtype=np.int32).reshape(len(grid), prod(grid))
    outputs = mapping.block_mappings[mapping.num_inputs :]
    for number, block in enumerate(outputs[: mapping.num_outputs]):
        index = jax.vmap(core.jaxpr_as_fun(block.index_map_jaxpr))(*steps)
        places = np.stack([np.broadcast_to(i, steps.shape[1]) for i in index], axis=1)
        entered = np.r_[True, (places[1:] != places[:-1]).any(axis=1)]
        if len(np.unique(places[entered], axis=0)) < entered.sum():
            return number
    return None


def _copies(jaxpr: core.Jaxpr) -> bool:
    return any(
        equation.primitive.name == "dma_start"
        or any(map(_copies, core.jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )

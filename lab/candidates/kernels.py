"""Controls: the lab's own kernels, as candidates for its grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lab import kernels
from lab.candidates.assembly import Attention, Build

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy


def _kernel(config: Mapping[str, object]) -> Build:
    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        attention: Attention = kernels.load(config, policy=policy, interpret=interpret).attention
        return attention

    return build


_ROWS = {"literals": ["auto"], "type": "int", "minimum": 8, "multiple_of": 8}
_PALLAS = {"name": "pallas", "module": "lab.kernels.pallas_softmax"}

xla = _kernel({"name": "xla", "module": "lab.kernels.xla", "constraints": {}})
pallas = _kernel({**_PALLAS, "block_rows": "auto", "constraints": {"block_rows": _ROWS}})
pallas_8row = _kernel({**_PALLAS, "block_rows": 8, "constraints": {"block_rows": _ROWS}})

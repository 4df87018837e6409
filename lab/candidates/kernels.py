"""Controls: the lab's own kernels, as candidates for its grader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import kernels
from lab.candidates.assembly import Attention, Build
from lab.kernels.options import configuration

if TYPE_CHECKING:
    from lab.truth.problems import DtypePolicy


def _kernel(name: str) -> Build:
    def build(policy: DtypePolicy, interpret: bool) -> Attention:
        loaded = kernels.load(configuration(name), policy=policy, interpret=interpret)
        attention: Attention = loaded.attention
        return attention

    return build


xla = _kernel("xla")
pallas = _kernel("pallas")
pallas_8row = _kernel("pallas-8row")

"""Implementations of attention with a known verdict: wrong on purpose, or right but different.

One family of mistakes a file; the YAML beside it holds what is known about each candidate: kind,
fault class, the check meant to catch it (see `catalogue`). Importing this package does not import
jax; loading a candidate does.

Adding one is a factory `build(policy, interpret) -> attention` in the file of its family, usually a
line that replaces one part of `assembly.Parts` (forward), `gradients.Terms` (backward),
`online.Online` (blocks), `rowwise.Rowwise` or `fused_steps.Fused` (Pallas), and one
entry in its YAML.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lab.candidates import catalogue
from lab.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.candidates.assembly import Attention
    from lab.truth.problems import DtypePolicy


def configs() -> list[dict[str, Any]]:
    """The configurations of every candidate with an implementation here, by name."""
    return [asdict(entry) for entry in catalogue.entries().values()]


def load(candidate: Mapping[str, object], *, policy: DtypePolicy, interpret: bool) -> Attention:
    """The attention function of a candidate: `attention(q, k, v, *, causal, key_mask, scale)`.

    Args:
        candidate: an entry of the catalogue; `module` and `function` name its factory
            `build(policy, interpret)`.
        policy: dtypes to compute in. With one that is float64 throughout (under jax_enable_x64) the
            result is the candidate's *model*: its meaning, without its roundings.
        interpret: whether Pallas kernels run in interpret mode (values only, never speed).

    Raises:
        UserError: the candidate has no implementation here (`reference` stands for the configured
            kernel, `custom` for a file), or its module or function does not exist.
    """
    name, module, function = (candidate.get(key) for key in ("name", "module", "function"))
    if not module or not function:
        raise UserError(
            f"candidate={name} (kind {candidate.get('kind')}) has no implementation in "
            "lab.candidates: give its config a module and a function"
        )
    try:
        build = getattr(importlib.import_module(str(module)), str(function))
    except ModuleNotFoundError as error:
        raise UserError(f"candidate={name}: there is no module {error.name}") from error
    except AttributeError as error:
        raise UserError(f"candidate={name}: {module} has no function {function}") from error
    attention: Attention = build(policy, interpret)
    return attention

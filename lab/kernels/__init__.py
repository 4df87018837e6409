"""The registry: a kernel is one file here and one YAML in `conf/kernel`.

The YAML names the kernel, its module and its options. `constraints` says which values an option
may take: one of `literals`, or else a `type` (int, float, bool, str) within `minimum`, `maximum`
and `multiple_of`. The module defines `build(options, *, policy, interpret) -> Kernel`.

Nothing here imports jax, so that a configuration can be refused before a worker starts.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lab.errors import UserError

if TYPE_CHECKING:
    import jax
    from jax.experimental.pallas import tpu as pltpu

    from lab.truth.problems import DtypePolicy

    Interpret: TypeAlias = bool | pltpu.InterpretParams

_RESERVED = frozenset({"name", "module", "constraints"})
_TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
_RULES = frozenset({"literals", "type", "minimum", "maximum", "multiple_of"})


class MaskedSoftmax(Protocol):
    """Softmax over the last axis of what the mask shows."""

    def __call__(self, logits: jax.Array, mask: jax.Array) -> jax.Array:
        """Map logits [B, H, T, S] (input dtype) and Bool[broadcastable] to fp32 probabilities."""
        ...


class Attention(Protocol):
    """Attention, heads-major, with grouped queries, bottom-right causality and key padding."""

    def __call__(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        causal: bool,
        key_mask: jax.Array | None = None,
        scale: float | None = None,
    ) -> jax.Array:
        """Map q [B, Hq, T, D], k and v [B, Hkv, S, D], key_mask Bool[B, S] to [B, Hq, T, D]."""
        ...


@dataclass(frozen=True)
class Kernel:
    """One implementation in both scopes; both functions can be jitted and differentiated by vjp."""

    name: str
    masked_softmax: MaskedSoftmax
    attention: Attention


def check_options(config: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a kernel's configuration, or raise UserError on one not allowed."""
    name, module = config.get("name"), config.get("module")
    if not isinstance(name, str) or not isinstance(module, str):
        raise UserError(
            "a kernel's configuration needs `name` and `module`: see conf/kernel/*.yaml"
        )
    if not _exists(module):
        raise UserError(f"kernel {name}: there is no module {module}; correct kernel.module")
    options = {key: value for key, value in config.items() if key not in _RESERVED}
    constraints = config.get("constraints") or {}
    if not isinstance(constraints, Mapping):
        raise UserError(f"kernel {name}: `constraints` maps an option to its rules")
    for key, value in options.items():
        if key not in constraints:
            known = ", ".join(sorted(map(str, constraints))) or "none"
            raise UserError(f"kernel {name} has no option {key!r}; its options: {known}")
        _check(f"kernel {name}: kernel.{key}", value, constraints[key])
    if missing := sorted(set(constraints) - set(options)):
        raise UserError(f"kernel {name}: no value for option {missing[0]!r}; give it a default")
    return options


def load(
    config: Mapping[str, object], *, policy: DtypePolicy, interpret: Interpret = False
) -> Kernel:
    """Build the kernel that a configuration names.

    Args:
        config: name, module, options and constraints, as in `conf/kernel/*.yaml`.
        policy: the dtypes of inputs, logits, accumulation and output.
        interpret: run Pallas in interpret mode (values only, never speed); for TPU interpret
            mode with its checks pass `pltpu.InterpretParams(...)`.

    Raises:
        UserError: an option that the kernel does not have, or a value that it does not allow.
        UnsupportedCell: the kernel does not do what the policy asks.
    """
    options = check_options(config)
    build = getattr(importlib.import_module(str(config["module"])), "build", None)
    if build is None:
        raise UserError(
            f"kernel {config['name']}: {config['module']} has no function build; "
            "correct kernel.module, or add build(options, *, policy, interpret) to it"
        )
    kernel = build(options, policy=policy, interpret=interpret)
    if not isinstance(kernel, Kernel):
        raise UserError(f"{config['module']}.build must return a lab.kernels.Kernel")
    return Kernel(str(config["name"]), kernel.masked_softmax, kernel.attention)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _check(what: str, value: object, rules: object) -> None:
    if not isinstance(rules, Mapping) or set(rules) - _RULES:
        raise UserError(f"{what}: a constraint has the keys {', '.join(sorted(_RULES))}")
    literals = list(rules.get("literals") or [])
    if any(type(value) is type(literal) and value == literal for literal in literals):
        return
    kind = _TYPES.get(str(rules.get("type")))
    # bool is a subclass of int in Python; `block_rows=true` is a mistake all the same.
    fits = kind is not None and type(value) is kind
    if fits and isinstance(value, int | float):
        step = rules.get("multiple_of")
        fits = (
            value >= rules.get("minimum", value)
            and value <= rules.get("maximum", value)
            and (step is None or value % step == 0)
        )
    if not fits:
        raise UserError(f"{what} is {value!r}; allowed: {_describe(rules)}")


def _describe(rules: Mapping[str, object]) -> str:
    literals = rules.get("literals") or []
    allowed = [str(literal) for literal in literals] if isinstance(literals, list | tuple) else []
    if rules.get("type"):
        words = [str(rules["type"])]
        words += [f">= {rules['minimum']}"] if "minimum" in rules else []
        words += [f"<= {rules['maximum']}"] if "maximum" in rules else []
        words += [f"a multiple of {rules['multiple_of']}"] if "multiple_of" in rules else []
        allowed.append(", ".join(words))
    return "; or ".join(allowed)

"""From a command line to a cell: which options there are, and what a composition means."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from lab.candidates import catalogue
from lab.cells import config as lab_config
from lab.cells.cell import Cell
from lab.cells.config import LabConfig, check, field_names
from lab.command import axes, messages, usage
from lab.errors import UserError


def register() -> None:
    """Tell Hydra the schema, the candidates, and what `${cell_id:}` and `${groups:}` stand for."""
    lab_config.register()
    catalogue.register()
    axes.register()
    OmegaConf.register_new_resolver("groups", usage.groups, replace=True)
    OmegaConf.register_new_resolver("cell_id", _cell_id, replace=True)


def cell_from(composed: DictConfig, overrides: Sequence[str] = ()) -> Cell:
    """The cell of a composed Hydra configuration.

    Raises:
        UserError: a value is missing, out of range, or does not fit the others.
    """
    _refuse_added_keys(composed)
    own = OmegaConf.masked_copy(composed, list(field_names()))
    if missing := sorted(OmegaConf.missing_keys(own)):
        raise UserError(f"no value for {', '.join(missing)}: set it, as in {missing[0]}=VALUE")
    # Hydra has merged into the schema, so every value has its type, but what it interpolates.
    config = LabConfig(**cast("dict[str, Any]", OmegaConf.to_object(own)))
    if any("${" in word for word in overrides or messages.typed()):
        config = lab_config.from_plain(lab_config.to_plain(config))
    check(config)
    return Cell(config, tuple(overrides))


def _refuse_added_keys(composed: DictConfig) -> None:
    """A key that `+key=value` adds is read by nobody, however it is spelt."""
    known = {*field_names(), "hydra"}
    added = [str(key) for key in composed if key not in known]
    for section in field_names():
        node = composed._get_node(section)  # noqa: SLF001 - without resolving what is missing
        kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
        if isinstance(node, DictConfig) and dataclasses.is_dataclass(kind):
            names = {field.name for field in dataclasses.fields(kind)}
            added += [f"{section}.{key}" for key in map(str, node) if key not in names]
    if added:
        raise UserError(messages.unknown_key(added[0]))


def _cell_id(*, _root_: DictConfig) -> str:
    # `--cfg hydra --resolve` asks where nothing but Hydra's own section is left.
    return cell_from(_root_).id if "task" in _root_ else "CELL_ID"

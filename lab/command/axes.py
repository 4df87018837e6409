"""The jobs of a sweep over kernels and over an option that only some of them have.

`-m kernel=pallas,xla kernel.block_rows=32,64` is a tuning curve beside its baseline: `block_rows`
is set where the kernel can be given it, and xla, which has no such option, runs once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from hydra.core.config_store import ConfigStore

from lab.kernels.options import KERNELS

PREFIX = "kernel."
SWEEPER = "hydra_plugins.lab_sweeper.LabSweeper"


@dataclass(frozen=True)
class Fitted:
    """The jobs that are left, and what to say about options that were left out of some."""

    jobs: list[list[str]]
    notes: tuple[str, ...]


def register() -> None:
    """Make the sweeper an option of Hydra's group, chosen in conf/config.yaml."""
    node = {"_target_": SWEEPER, "max_batch_size": None, "params": None}
    ConfigStore.instance().store(group="hydra/sweeper", name="lab", node=node, provider="lab")


def fitted(jobs: Sequence[Sequence[str]]) -> Fitted:
    """Leave out an option where the kernel cannot be given it but another one of the sweep can.

    Jobs that are one job then are kept once. An option that no kernel here has stays, for Hydra to
    refuse.
    """
    kernels = {name for job in jobs if (name := _kernel(job))}
    kept: list[list[str]] = []
    shortened: set[tuple[str, ...]] = set()
    without: defaultdict[str, set[str]] = defaultdict(set)
    for job in jobs:
        name = _kernel(job)
        foreign = [
            override
            for override in job
            if name and not _takes(name, key := _option(override)) and _any_takes(kernels, key)
        ]
        for override in foreign:
            without[_option(override)].add(str(name))
        left = [override for override in job if override not in foreign]
        if foreign:
            if tuple(left) in shortened:
                continue
            shortened.add(tuple(left))
        kept.append(left)
    notes = tuple(
        f"{PREFIX}{key} is set for {_listed(k for k in kernels if _takes(k, key))}; "
        f"{_listed(names)} cannot be given it and is run without"
        for key, names in without.items()
    )
    return Fitted(kept, notes)


def _kernel(job: Sequence[str]) -> str | None:
    """The kernel that a job names, if it is one of ours."""
    names = [value for key, _, value in (o.partition("=") for o in job) if key == "kernel"]
    return names[-1] if names and names[-1] in KERNELS else None


def _option(override: str) -> str:
    """The kernel's option that an override sets, or nothing."""
    key = override.partition("=")[0]
    return key.removeprefix(PREFIX) if key.startswith(PREFIX) else ""


def _takes(kernel: str, option: str) -> bool:
    """Whether a kernel has an option that can have more than one value."""
    field = KERNELS[kernel].options.model_fields.get(option)
    if field is None:
        return False
    fixed = get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    return not fixed


def _any_takes(kernels: set[str], option: str) -> bool:
    return bool(option) and any(_takes(kernel, option) for kernel in kernels)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))

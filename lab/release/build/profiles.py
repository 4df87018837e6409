"""What a run must show to enter the release under a profile's name.

A profile is configuration (`conf/release/NAME.yaml`); the same file tells `task=release` what to
refuse and `task=verify` what to miss. `unmet` never stops at the first reason.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omegaconf import OmegaConf
from pydantic import Field, ValidationError

from lab.cells.config import config_directory
from lab.errors import UserError
from lab.records import EVIDENCE_ORDER, Evidence, Result
from lab.records.model import Model


class Device(Model):
    """The device a profile speaks of; a null says nothing."""

    platform: str | None = None
    kinds: list[str] | None = None
    count: int | None = Field(default=None, ge=1)


class Requirement(Model):
    """Cases that must be there and done: one task over a grid of cell fields."""

    task: str
    grid: dict[str, list[str | int]] = Field(default_factory=dict)
    evidence: list[Evidence] = Field(default_factory=list)
    # Fields of the cell that are the same for all cases of the grid.
    where: dict[str, str | int] = Field(default_factory=dict)
    warmups: int | None = None
    samples: int | None = None
    devices_used: int | None = None
    # True: exactly so many, not more.
    exact: bool = False
    # Names of checks that must stand in each correctness record, passed.
    checks: list[str] = Field(default_factory=list)


class Profile(Model):
    """One kind of measurement in the release."""

    name: str
    title: str
    summary: str
    device: Device = Field(default_factory=Device)
    # Levels that any record of the profile may have.
    evidence: list[Evidence]
    tasks: list[str]
    require: list[Requirement]
    # How the records and the release come about, for people.
    commands: list[str]
    # False: its page in evidence/ is made by another command.
    evidence_page: bool = True
    one_code: bool = True
    clean_commit: bool = False
    conclusions: list[str]
    limits: list[str]


@functools.cache
def load_all() -> dict[str, Profile]:
    """The profiles shipped with the lab, by name."""
    found = {}
    for path in sorted((config_directory() / "release").glob("*.yaml")):
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
        assert isinstance(plain, dict)
        found[str(plain["name"])] = parse(str(plain["name"]), plain["profile"])
    return found


def options() -> list[str]:
    """The values that release=NAME takes."""
    return sorted(path.stem for path in (config_directory() / "release").glob("*.yaml"))


def parse(name: str, definition: object) -> Profile:
    """A profile from its configuration.

    Raises:
        UserError: names each key that does not fit.
    """
    if not isinstance(definition, dict):
        raise UserError("task=release needs release=NAME; see conf/release for the profiles")
    try:
        return Profile.model_validate({"name": name, **definition})
    except ValidationError as error:
        reasons = "; ".join(
            f"release.profile.{'.'.join(str(part) for part in e['loc'])}: {e['msg']}"
            for e in error.errors(include_url=False)
        )
        raise UserError(f"release={name}: {reasons}") from None


def slug(text: str) -> str:
    """Lower-case letters, digits and single dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def instance_name(profile: Profile, results: Iterable[Result]) -> str:
    """The profile's name in a release; `{device}` in it stands for the device that was used."""
    kinds = {r.environment.device_kind for r in results if r.environment.device_kind}
    return profile.name.replace("{device}", slug(min(kinds)) if kinds else "unknown")


def template_of(name: str, profiles: dict[str, Profile]) -> Profile | None:
    """The profile that a name in a release stands for, or None."""
    for profile in profiles.values():
        pattern = re.escape(profile.name).replace(re.escape("{device}"), "[a-z0-9-]+")
        if re.fullmatch(pattern, name):
            return profile
    return None


def unmet(profile: Profile, results: Sequence[Result]) -> list[str]:
    """Every reason for which these records do not meet the profile; empty if they do."""
    return [
        *_grouped(_foreign(profile, results)),
        *_grouped(_device(profile, results)),
        *_code(profile, results),
        *(reason for required in profile.require for reason in _missing(required, results)),
    ]


def _grouped(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """(reason, record) pairs as one line a reason."""
    records: dict[str, list[str]] = {}
    for reason, record in found:
        records.setdefault(reason, []).append(record)
    for reason, names in records.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{reason}: {min(names)}{more}"


def _foreign(profile: Profile, results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    for result in results:
        if result.task not in profile.tasks:
            allowed = ", ".join(profile.tasks)
            yield f"task {result.task}, allowed are {allowed}", result.cell_id
        if result.evidence is not None and result.evidence not in profile.evidence:
            allowed = ", ".join(profile.evidence)
            yield f"evidence {result.evidence}, allowed is {allowed}", result.cell_id


def _device(profile: Profile, results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    wanted = profile.device
    for result in results:
        seen = result.environment
        # A failed first bootstrap may have seen no device, and stays in the data.
        if result.task == "doctor" or result.status != "done":
            continue
        if wanted.platform and seen.platform != wanted.platform:
            yield f"platform {seen.platform}, not {wanted.platform}", result.cell_id
        if wanted.kinds and seen.device_kind not in wanted.kinds:
            yield f"device {seen.device_kind}, not {' or '.join(wanted.kinds)}", result.cell_id
        if wanted.count and seen.device_count != wanted.count:
            yield f"{seen.device_count} devices visible, not {wanted.count}", result.cell_id


def _code(profile: Profile, results: Sequence[Result]) -> Iterator[str]:
    working = [r for r in results if r.task != "doctor"]
    if profile.one_code and len({r.code_sha256 for r in working}) > 1:
        yield "records of different code (code_sha256); run all cells with one version"
    if profile.one_code and len({(r.environment.jax, r.environment.jaxlib) for r in working}) > 1:
        yield "records of different versions of jax or jaxlib"
    dirty = [r.cell_id for r in working if r.environment.dirty]
    if profile.clean_commit and dirty:
        yield f"{len(dirty)} records ran uncommitted code, {min(dirty)} for one; commit, then run"


def cases(required: Requirement) -> list[dict[str, Any]]:
    """Every case of the grid, as cell fields."""
    names = sorted(required.grid)
    values = itertools.product(*(required.grid[name] for name in names))
    return [{**required.where, **dict(zip(names, chosen, strict=True))} for chosen in values]


def _missing(required: Requirement, results: Sequence[Result]) -> Iterator[str]:
    if required.task == "doctor":
        looks = [r.doctor for r in results if r.doctor is not None]
        if not any(look.ready for look in looks):
            yield f"doctor: {len(looks)} looks at the machine, none found it ready"
        return
    for case in cases(required):
        what = f"{required.task} {' '.join(f'{k}={v}' for k, v in sorted(case.items()))}"
        found = [r for r in results if r.task == required.task and _is(case, r)]
        done = [r for r in found if r.status == "done"]
        if not found:
            yield f"{what}: no record"
        elif not done:
            yield f"{what}: {found[0].status}: {found[0].reason}"
        for result in done:
            yield from (f"{what}: {reason}" for reason in _short(required, result))


def _is(case: dict[str, Any], result: Result) -> bool:
    return all(getattr(result.cell, name) == value for name, value in case.items())


def _short(required: Requirement, result: Result) -> Iterator[str]:
    if result.evidence not in required.evidence:
        allowed = " or ".join(sorted(required.evidence, key=EVIDENCE_ORDER.index))
        yield f"evidence {result.evidence}, not {allowed}"
    if result.benchmark is not None:
        timed = result.benchmark
        for what, have, want in (
            ("warm-ups", len(timed.warmups_ms), required.warmups),
            ("samples", len(timed.samples_ms), required.samples),
        ):
            if want is not None and (have != want if required.exact else have < want):
                limit = "exactly" if required.exact else "at least"
                yield f"{have} {what}, {limit} {want} required"
        if required.devices_used not in (None, timed.devices_used):
            yield f"{timed.devices_used} devices used, {required.devices_used} required"
        if not timed.gate.passed:
            yield "timed although its output was wrong"
    if result.correctness is not None:
        passed = {c.name: c.passed for c in result.correctness.checks}
        for check in required.checks:
            if not passed.get(check, False):
                yield f"check {check} {'failed' if check in passed else 'missing'}"

"""Do jax, jaxlib and libtpu fit each other? jax's own package metadata says which versions do.

A release of jax pins the jaxlib it needs, and under its extra `tpu` the libtpu that its Pallas
compiler was tested with. An older libtpu (such as one that came with a machine image) is what
Pallas rejects with "requires a libtpu version that's at most a month old". No jax is imported here.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lab.records import PairingPart

PACKAGES = ("jaxlib", "libtpu")
# What Pallas says when libtpu is too old for it (jax/_src/pallas/mosaic/lowering.py).
TOO_OLD = "requires a libtpu version"


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements() -> list[str]:
    """What the installed jax asks for; empty without jax."""
    try:
        return importlib.metadata.requires("jax") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def parts(
    asked: Sequence[str] | None = None, installed: Callable[[str], str | None] = version
) -> list[PairingPart]:
    """Hold jaxlib and libtpu against the pins of the installed jax.

    Args:
        asked: requirement lines, as in package metadata; those of the installed jax if None.
        installed: tells the version of a package.
    """
    found = [Requirement(line) for line in (requirements() if asked is None else asked)]
    made = []
    for package in PACKAGES:
        pins = [r.specifier for r in found if r.name == package and _for_tpu(r)]
        wanted = ",".join(sorted({str(one) for pin in pins for one in pin}))
        have = installed(package)
        fits = None if have is None else SpecifierSet(wanted).contains(have, prereleases=True)
        made.append(PairingPart(package=package, installed=have, wanted=wanted, fits=fits))
    return made


def _for_tpu(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": "tpu"})


def advice(jax: str | None, found: Sequence[PairingPart], *, tpu: bool) -> str | None:
    """What to install, with the versions that fit; None if all fits."""
    if jax is None:
        return (
            "jax is not installed: pip install '.[tpu]' on a TPU machine, pip install . elsewhere"
        )
    bad = [part for part in found if part.fits is False]
    missing = [p for p in found if p.installed is None and (tpu or p.package != "libtpu")]
    if not bad and not missing:
        return None
    said = [
        f"{p.package} {p.installed} does not fit jax {jax}, which needs {p.wanted}" for p in bad
    ]
    said += [f"{p.package} is missing; jax {jax} needs {p.wanted}" for p in missing]
    return (
        f"{'; '.join(said)}: pip install --upgrade 'jax[tpu]=={jax}' installs the pair that works"
    )

"""Checks of the folder as files: what is there, how large, unchanged, readable, private."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.release.build.assemble import CHECKSUMS, MANIFEST
from lab.release.format import canonical, privacy, rows
from lab.release.verify.folder import Problem
from lab.release.verify.opened import Opened

_ALWAYS = (
    "README.md", "CITATION.cff", "LICENSE-DATA", "CHANGELOG.md", "croissant.json", MANIFEST,
    CHECKSUMS,
)  # fmt: skip
_RAW = re.compile(r"raw/[a-z0-9-]+/[A-Za-z0-9._-]+\.json")
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")


def layout(opened: Opened) -> Iterator[Problem]:
    """Every file of a release is there, and nothing else: no links, no strangers."""
    yield from opened.folder.unsafe
    present = opened.folder.files
    tables = {name for name in rows.TABLES if f"{name}.jsonl" in present}
    needed = {*_ALWAYS, *(f"schema/{name}.json" for name in tables)}
    listed = opened.manifest.get("tables")
    if isinstance(listed, dict):
        needed |= {f"{name}.jsonl" for name in listed if isinstance(name, str)}
    for name in sorted(needed - present.keys()):
        yield Problem(name, "is missing")
    allowed = needed | {f"{name}.jsonl" for name in tables}
    for name in sorted(present.keys() - allowed):
        if not _RAW.fullmatch(name):
            yield Problem(name, "does not belong to a release")


def limits(opened: Opened) -> Iterator[Problem]:
    """No file, and not the whole, is larger than a release needs."""
    yield from opened.folder.oversized


def checksums(opened: Opened) -> Iterator[Problem]:
    """SHA256SUMS lists every file once, with the hash it has."""
    listed: dict[str, str] = {}
    text = opened.folder.files.get(CHECKSUMS, b"").decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), start=1):
        match = _SUM.fullmatch(line)
        place = f"{CHECKSUMS}:{number}"
        if match is None:
            yield Problem(place, "is no line of `sha256sum`")
        elif match.group(2).startswith("/") or ".." in match.group(2).split("/"):
            yield Problem(place, f"{match.group(2)!r} is outside the release")
        elif match.group(2) in listed:
            yield Problem(place, f"{match.group(2)} stands twice")
        else:
            listed[match.group(2)] = match.group(1)
    if list(listed) != sorted(listed):
        yield Problem(CHECKSUMS, "is not sorted by name")
    hashes = {n: canonical.sha256(d) for n, d in opened.folder.files.items() if n != CHECKSUMS}
    for name in sorted(hashes.keys() - listed.keys()):
        yield Problem(name, f"is not in {CHECKSUMS}")
    for name in sorted(listed.keys() - hashes.keys()):
        yield Problem(name, f"is in {CHECKSUMS}, but not there")
    for name in sorted(hashes.keys() & listed.keys()):
        if hashes[name] != listed[name]:
            yield Problem(name, f"was changed: its hash is not the one in {CHECKSUMS}")


def strict_json(opened: Opened) -> Iterator[Problem]:
    """Every JSON text is strict JSON: no NaN, no key twice, nothing cut short."""
    yield from opened.unreadable


def private(opened: Opened) -> Iterator[Problem]:
    """Nothing holds a host name, a user name or an absolute path."""
    for name, data in opened.folder.files.items():
        if name.endswith((".json", ".jsonl")):
            texts = [data.decode("utf-8", "replace")] if name.endswith(".json") else []
            texts = texts or data.decode("utf-8", "replace").splitlines()
            for number, text in enumerate(texts, start=1):
                place = f"{name}:{number}" if name.endswith(".jsonl") else name
                yield from (Problem(place, found) for found in _private_json(text))
        else:
            for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
                yield from (Problem(f"{name}:{number}", found) for found in privacy.find(line))


def _private_json(text: str) -> Iterator[str]:
    try:
        value = canonical.parse(text)
    except canonical.BadJson:
        yield from privacy.find(text)  # unreadable as JSON, still readable by eye
    else:
        yield from privacy.find_in(value)


CHECKS = {
    "layout": layout,
    "limits": limits,
    "checksums": checksums,
    "strict_json": strict_json,
    "private": private,
}

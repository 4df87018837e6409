"""What a release must not hold: absolute paths, host names, user names.

`find` is what `task=verify` looks with; `scrub` is what a record goes through when it is taken in:
the directories of absolute paths go, the file's own name stays. What cannot be taken out without
touching the meaning (a host name in a sentence) is refused by the builder, which calls `find` on
what is left.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

SCRUBBED_DIRECTORY = "<path>"

# A path starts a text, or follows a quote, a space, "=" (a flag's value) and the like. The two
# slashes of an URL do not match: their left neighbour is a colon, their right one a slash.
_POSIX = re.compile(r"(?:(?<=^)|(?<=[\s\"'`=:,;(\[{|]))/(?:[\w.+@~%-]+/)*[\w.+@~%-]*[\w~%-]")
_WINDOWS = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]:[\\/](?:[^\\/\s\"'<>|]+[\\/])*[^\\/\s\"'<>|]+")
_UNC = re.compile(r"\\\\[\w.-]+\\[^\s\"']+")
_FILE_URL = re.compile(r"file://\S+")
_TILDE = re.compile(r"(?:(?<=^)|(?<=[\s\"'`=:,;(\[{|]))~[\w.-]*/[\w./-]+")
# Also in the middle of a word, as in -I/home/someone.
_HOME = re.compile(r"/(?:home|Users|root)/[\w./-]+")
_PATHS = (_FILE_URL, _UNC, _WINDOWS, _TILDE, _POSIX, _HOME)
_PATH_KIND = "absolute path"

# Lengths are bounded (a label has at most 63 characters), so that no hostile text takes long.
_NAMES = {
    "user and host": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z][\w-]{0,62}(?:\.[\w-]+)*"),
    "host name": re.compile(
        r"(?i)\b(?:[\w-]{1,63}\.){1,8}(?:local|localdomain|internal|lan|corp|intranet|home\.arpa)\b"
        r"|\bt1v-n-[0-9a-f]+-w-\d+|\bip-\d+-\d+-\d+-\d+|\b(?:desktop|laptop)-[A-Z0-9]{6,}\b"
        r"|\b[\w-]{1,62}s-(?:macbook|imac|mac-mini)[\w-]*"
    ),
    "private address": re.compile(
        r"\b(?:192\.168|172\.(?:1[6-9]|2\d|3[01])|10\.\d{1,3})(?:\.\d{1,3}){2}\b"
    ),
}
# Without one of these no pattern matches.
_HINT = re.compile(r"[/\\~@.-]")
_URL = re.compile(r"https?://[^\s\"'<>)]+")
# Keys whose value names a person or a machine, whatever it looks like.
_KEYS = re.compile(
    r"(?i)^(?:host|host_?name|node_?name|fqdn|user|user_?name|login|home|cwd|pwd|ip|ip_?address)$"
)


@functools.lru_cache(maxsize=2**16)  # records repeat their texts
def find(text: str) -> tuple[str, ...]:
    """Each thing in the text that names a person, a machine or a place on it."""
    if not _HINT.search(text):
        return ()
    found = []
    rest = _URL.sub(" ", text)
    for pattern in _PATHS:
        found += [f"{_PATH_KIND} {match.group()!r}" for match in pattern.finditer(rest)]
        rest = pattern.sub(" ", rest)
    for kind, pattern in _NAMES.items():
        found += [f"{kind} {match.group()!r}" for match in pattern.finditer(rest)]
    return tuple(found)


def find_in(value: object, where: str = "") -> Iterator[str]:
    """The same for every text in a JSON value, keys included; each prefixed with its place."""
    for place, text in _texts(value, where):
        yield from (f"{place}: {problem}" for problem in find(text))
    for place, key in _keys(value, where):
        if _KEYS.match(key):
            yield f"{place}: key {key!r} names a person or a machine"


def scrub(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value with the directories of every absolute path replaced by `<path>`."""
    if isinstance(value, str):
        return _scrub_text(value)
    if isinstance(value, list):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return {key: scrub(item) for key, item in value.items()}
    return value


def users_in(value: object) -> set[str]:
    """User names that home directories in the value give away."""
    pattern = re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/])([\w.-]+)")
    generic = {"root", "user", "runner", "ubuntu", "jupyter", "colab", "shared", "public"}
    return {
        name
        for _, text in _texts(value, "")
        for name in pattern.findall(text)
        if len(name) > 2 and name.lower() not in generic
    }


def _scrub_text(text: str) -> str:
    urls: list[str] = []

    def put_aside(match: re.Match[str]) -> str:
        urls.append(match.group())
        return f"\x00{len(urls) - 1}\x00"

    rest = _URL.sub(put_aside, text)
    for pattern in _PATHS:
        rest = pattern.sub(_without_directory, rest)
    return re.sub("\x00(\\d+)\x00", lambda m: urls[int(m.group(1))], rest)


def _without_directory(match: re.Match[str]) -> str:
    name = re.split(r"[/\\]", match.group())[-1]
    return f"{SCRUBBED_DIRECTORY}/{name}"


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield where, str(key)
            yield from _texts(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{where}[{index}]")


def _keys(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield where, str(key)
            yield from _keys(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _keys(item, f"{where}[{index}]")

"""One text for one value: what makes a release the same bytes each time it is built.

Keys are sorted, floats are written as Python's `repr` (the shortest text that reads back as the
same number), and NaN and infinity, which JSON does not have, are errors in both directions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_DEPTH = 32


class BadJson(ValueError):  # noqa: N818 - names what the text is
    """A text that is no strict JSON; the message says why."""


def sha256(data: bytes) -> str:
    """Hex digest of the bytes."""
    return hashlib.sha256(data).hexdigest()


def line(value: object) -> str:
    """The value on one line, without the newline."""
    return json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False)


def page(value: object) -> bytes:
    """The value as an indented file."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1)
    return (text + "\n").encode()


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """JSON Lines: one object a line; columns keep the order of the mapping."""
    texts = (json.dumps(dict(row), allow_nan=False, ensure_ascii=False) for row in rows)
    return "".join(text + "\n" for text in texts).encode()


def parse(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read strict JSON: no NaN, no infinity (nor 1e999), no key twice, no deep nesting.

    Raises:
        BadJson: with the reason.
    """
    try:
        value = json.loads(
            text.decode("utf-8", "strict") if isinstance(text, bytes) else text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_no_twins,
        )
    except BadJson:
        raise
    except (ValueError, RecursionError) as error:
        raise BadJson(f"not JSON: {error}") from None
    if _depth(value) > MAX_DEPTH:
        raise BadJson(f"nested deeper than {MAX_DEPTH}")
    return value


def _no_constant(name: str) -> None:
    raise BadJson(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadJson(f"{text} is beyond a double's range")
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise BadJson(f"key {twin!r} stands twice in one object")
    return made


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level and deepest <= MAX_DEPTH:
        deepest += 1
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = inner
    return deepest

"""What the children may answer, checked field by field: they speak for a stranger."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from lab.grading.sandbox.inside.claims import Program
from lab.grading.sandbox.process import Stopped, one_line

STRICT = ConfigDict(strict=True, extra="forbid")
CARRIER = ("arrays", "nonce")  # the frame's own fields
T = TypeVar("T")


@checked(frozen=True, config=STRICT)
class Done:
    """A step worked, or why not; whether namespaces are in force."""

    ok: bool
    detail: str = ""
    isolated: bool = False


@checked(frozen=True, config=STRICT)
class Called:
    """How a call ended; its arrays travel beside it."""

    kind: Literal["ok", "unsupported", "error", "unrunnable", "bug"]
    detail: str = ""


@checked(frozen=True, config=STRICT)
class Traced:
    """How tracing one signature ended, and what the programs are made of."""

    kind: Literal["ok", "unsupported", "error", "unrunnable", "bug"]
    detail: str = ""
    backward_error: str | None = None
    exported: bool = False
    forward: Program | None = None
    with_gradients: Program | None = None


def parse(kind: type[T], header: dict[str, Any]) -> T:
    """A reply of this kind; Stopped if it is none. Texts become single, short, printable lines."""
    fields = {name: value for name, value in header.items() if name not in CARRIER}
    for name in ("detail", "backward_error"):
        if isinstance(fields.get(name), str):
            fields[name] = one_line(fields[name])
    try:
        reply: T = TypeAdapter(kind).validate_json(json.dumps(fields))
    except ValidationError:
        raise Stopped("answered with a malformed message") from None
    return reply

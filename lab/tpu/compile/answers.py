"""What the process that compiles a cell answers, and the names of the files it leaves."""

from __future__ import annotations

from pydantic import Field

from lab.records import CompileBoundary, Implementation
from lab.records.model import Model

STABLEHLO_FILE, HLO_FILE = "stablehlo.mlir", "hlo.txt"


class Refusal(Model):
    """The compiler's no: its stage and its words; `place` is the line of the kernel, if known."""

    stage: str
    type: str
    message: str
    place: str | None = None
    text: str


class Answer(Model):
    """Of a compile; `memory` (bytes) and `seconds` of the steps are empty where it was refused.

    `implementation` is what the kernel said of itself; `work_flops` and `work_bytes` are those of
    the traced program: see lab/tpu/work.py.
    """

    device_kind: str
    attached: bool
    versions: dict[str, str]
    boundary: CompileBoundary
    implementation: list[Implementation] = Field(default_factory=list)
    fingerprint: str | None = None
    work_flops: int = 0
    work_bytes: int = 0
    memory: dict[str, int] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    refusal: Refusal | None = None

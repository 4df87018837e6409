"""Thresholds of gate B: how far a correct row's rms error may exceed its expected deviation.

Measured, not derived: the controls of lab/candidates went through every case on calibration seeds,
and the threshold is the largest ratio seen, times a headroom for correct kernels not in the corpus.
A row that sums few terms has its error from few roundings, so its ratio strays further; it has a
threshold of its own. calibration.json holds the thresholds with the seeds, the corpus and a hash
over all of it; the audit judges on other seeds. `python -m lab.grading.audit.calibrate` remakes it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("calibration.json")
FEW_TERMS = 32
# Headroom over the largest ratio seen. float32 sums depend on order and hardware far more than a
# rounding to bfloat16 does.
HEADROOM = {"bf16": 1.2, "f32": 3.0}
# No threshold below these, however small a corpus looks: a row whose error is one rounding reaches
# sqrt(3) deviations, and float32's deviation is itself a third of a worst case.
FLOOR = {"bf16": {"many": 1.6, "few": 2.0}, "f32": {"many": 0.9, "few": 0.9}}
SEEDS = tuple(range(10_000, 10_004))  # the audit's begin at 20,000


def row_threshold(output: str, kind: str, *, few: bool) -> float:
    """The threshold of one output (`out`, `dq`, `dk`, `dv`).

    Args:
        output: which result.
        kind: `f32` where everything is float32 (tier fp32 of the f32 policy), else `bf16`.
        few: for rows that sum fewer than `FEW_TERMS` terms.
    """
    value: float = _table()["thresholds"][kind][output]["few" if few else "many"]
    return value


def content_hash(table: dict[str, Any]) -> str:
    """sha256 over everything in the table but the hash itself."""
    content = {key: value for key, value in table.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text())
    if table["sha256"] != content_hash(table):
        raise ValueError(
            f"{TABLE.name} was edited by hand: remake it with lab.grading.audit.calibrate"
        )
    return table

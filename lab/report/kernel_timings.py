"""Estimates of public kernels beside their public timings on a v5e, by what binds each.

    python -m lab.report.kernel_timings SWEEP_DIRECTORY OUT_DIRECTORY

writes kernels.csv, a row a point, and kernels.md. The timings are device times from a profiler's
trace, so nothing is added for the host.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from pathlib import Path

import pandas as pd

from lab import records
from lab.errors import UserError
from lab.records import CompileSection, Result
from lab.report.jinja import PAGES

SHORT_STEP_CYCLES = 1000
APART = 0.02
"""Timings closer than this have no order to predict: blocks of 2048 x 512 and of 512 x 2048, as
many and as large, are timed 1.3% apart, and nothing that a schedule shows tells them apart."""


@dataclass(frozen=True)
class KernelPoint:
    """A public timing and the estimate for it, milliseconds.

    `regime` is what binds the kernel by its estimate: `short steps` (below 1000 cycles a grid
    step), `MXU`, or `copies`.
    """

    kernel: str
    size: int
    options: str
    steps: int
    regime: str
    measured_ms: float
    estimated_ms: float

    @property
    def error(self) -> float:
        """Signed relative error of the estimate."""
        return self.estimated_ms / self.measured_ms - 1


def match(results: Sequence[Result]) -> list[KernelPoint]:
    """The points of lab/report/measured_v5e.json that the compiled cells hold an estimate for."""
    data = json.loads(Path(__file__).with_name("measured_v5e.json").read_text())
    wanted = {
        (p["function"], p["size"], json.dumps(p["options"], sort_keys=True)): p["measured_ms"]
        for p in data["points"]
    }
    found = []
    for result in results:
        candidate, made = result.config["candidate"], result.compile
        if made is None or made.estimated_ms is None or candidate.get("contract") != "function":
            continue
        size = int(next(iter(candidate["arguments"].values()))[-1])
        key = (candidate["function"], size, json.dumps(candidate["options"], sort_keys=True))
        if made.target == data["chip"] and key in wanted:
            options = " ".join(f"{name}={value}" for name, value in candidate["options"].items())
            steps = prod(made.boundary.pallas_calls[0].grid)
            point = (candidate["function"], size, options, steps, _regime(made, steps))
            found.append(KernelPoint(*point, wanted[key], made.estimated_ms))
    return sorted(found, key=lambda p: (p.kernel, p.size, p.measured_ms))


def _regime(made: CompileSection, steps: int) -> str:
    (op,) = [op for op in made.ops if op.kind == "pallas"]
    if (op.estimated_cycles or 0) / steps < SHORT_STEP_CYCLES:
        return "short steps"
    use = made.loops[0].use
    return "MXU" if use.get("MXU", 0) >= use.get("HBM", 0) else "copies"


def table(points: Sequence[KernelPoint]) -> pd.DataFrame:
    """A row a point."""
    return pd.DataFrame([vars(point) | {"relative_error": point.error} for point in points])


def summary(frame: pd.DataFrame) -> list[dict[str, object]]:
    """Mean and largest absolute error of each regime and of all."""
    groups = [*frame.groupby("regime"), ("all", frame)]
    return [
        {
            "regime": regime,
            "points": len(group),
            "mean": group["relative_error"].abs().mean(),
            "worst": group["relative_error"].abs().max(),
        }
        for regime, group in groups
    ]


@dataclass(frozen=True)
class Order:
    """How well the estimates order the block sizes of one kernel and size.

    Attributes:
        spearman: rank correlation of all of them, ties at their mean rank.
        right: pairs in the right order, of the
        pairs: whose timings differ by more than APART.
    """

    spearman: float
    right: int
    pairs: int


def orders(frame: pd.DataFrame) -> dict[str, Order]:
    """By kernel and size, where there are more than two block sizes."""
    found = {}
    for (kernel, size), group in frame.groupby(["kernel", "size"]):
        if len(group) < 3:
            continue
        spearman = group["measured_ms"].rank().corr(group["estimated_ms"].rank())
        points = sorted(zip(group["measured_ms"], group["estimated_ms"], strict=True))
        apart = [(a, b) for a, b in combinations(points, 2) if b[0] > a[0] * (1 + APART)]
        right = sum(b[1] > a[1] for a, b in apart)
        found[f"{kernel} {size}"] = Order(float(spearman), right, len(apart))
    return found


def write(sweep: Path, out: Path) -> pd.DataFrame:
    """Write the table and the page of the compiled cells under `sweep` into `out`.

    Raises:
        UserError: no cell of a public timing.
    """
    results = [records.read(path, Result) for path in sorted(sweep.rglob("result.json"))]
    points = match(results)
    if not points:
        raise UserError(
            f"{sweep} holds no estimate of a public kernel; run the sweeps of "
            "evidence/tpu-v5e-compiled/README.md first"
        )
    frame = table(points)
    page = PAGES.get_template("kernels.md").render(
        rows=frame.to_dict("records"),
        regimes=summary(frame),
        orders=orders(frame),
        apart=APART,
        versions=sorted({(r.compile.jax, r.compile.libtpu) for r in results if r.compile}),
    )
    out.mkdir(parents=True, exist_ok=True)
    csv = frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    records.write_atomically(out / "kernels.csv", csv)
    records.write_atomically(out / "kernels.md", page)
    return frame


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m lab.report.kernel_timings SWEEP_DIRECTORY OUT_DIRECTORY")
    try:
        write(Path(sys.argv[1]), Path(sys.argv[2]))
    except (UserError, records.InvalidRecord) as error:
        sys.exit(f"error: {error}")

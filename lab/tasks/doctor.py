"""`task=doctor`: what this machine is, what can be done on it, and what to do next.

Its record is what a data release keeps as the bootstrap: also, and above all, where the libraries
did not fit at first.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TypeVar

from lab import worker
from lab.cells.cell import Cell, Outcome
from lab.doctor import Canary, campaigns, pairing
from lab.doctor.campaigns import PROBE_LIMIT_S
from lab.records import Device, DoctorSection, PairingPart
from lab.worker import DeadlineExceeded, WorkerCrashed, WorkerFailed

M = TypeVar("M", Device, Canary)


def run(cell: Cell, directory: Path) -> Outcome:  # noqa: ARG001 - looks at the machine, not the cell
    """Look at the libraries, the devices and a canary kernel; nothing here raises."""
    parts = pairing.parts()
    canary = None
    seen, problem = _ask("lab.doctor.probe:devices", Device, directory)
    if seen:
        canary, problem = _ask("lab.doctor.probe:canary", Canary, directory)
    section = diagnose(
        jax=pairing.version("jax"),
        parts=parts,
        seen=seen,
        canary=canary,
        problem=problem,
    )
    return Outcome(section=section, evidence=None, device=seen or Device())


def _ask(target: str, answer: type[M], directory: Path) -> tuple[M | None, str | None]:
    """The answer of a worker, or why there is none, in one line."""
    try:
        return worker.call(target, {}, answer, deadline_s=PROBE_LIMIT_S, directory=directory), None
    except WorkerFailed as failure:
        return None, " ".join(f"{failure.type_name}: {failure.message}".split())[:500]
    except WorkerCrashed as crash:
        return None, crash.reason
    except DeadlineExceeded as late:
        return None, f"no answer from the device: {late}"


def diagnose(
    *,
    jax: str | None,
    parts: list[PairingPart],
    seen: Device | None,
    canary: Canary | None,
    problem: str | None,
) -> DoctorSection:
    """The record's section, from what was seen.

    Args:
        jax: the installed version, or None.
        parts: the packages that must fit it.
        seen: None if jax saw no device.
        canary: of lab.doctor.probe.canary, None if there was none.
        problem: why there was none.
    """
    on = seen.platform if seen else None
    needed = [p for p in parts if on == "tpu" or p.package != "libtpu"]
    rejected = problem is not None and pairing.TOO_OLD in problem
    fits = None if jax is None else not rejected and all(p.fits for p in needed)
    passed = canary.error == 0 if canary else None if problem is None else False
    ready = bool(fits and passed)
    advice = pairing.advice(jax, needed, tpu=on == "tpu")
    if rejected and advice is None:
        advice = (
            f"Pallas of jax {jax} rejects the libtpu that was loaded, though the installed package "
            "fits: unset TPU_LIBRARY_PATH, which points at the image's older one"
        )
    if not ready and advice is None:
        advice = problem or "the canary kernel gave wrong values: do not trust this machine"
    return DoctorSection(
        ready=ready,
        device=f"{seen.device_count} x {seen.device_kind}" if seen else None,
        pairing_fits=fits,
        pairing=parts,
        canary_passed=passed,
        canary=_canary_text(canary, problem),
        tasks=_tasks(on, parts, ready=ready),
        advice=advice,
        next_command=(
            f"lab task=campaign campaign={campaigns.fitting(seen)}"
            if ready and seen
            else "lab task=doctor   (again, after the advice was followed)"
        ),
    )


def _canary_text(canary: Canary | None, problem: str | None) -> str:
    if not canary:
        return f"none ran: {problem}"
    return f"{canary.what}: largest error {canary.error:g}"


def _tasks(on: str | None, parts: list[PairingPart], *, ready: bool) -> dict[str, str]:
    """What each task can do here, or why it cannot."""
    libtpu = next((p for p in parts if p.package == "libtpu" and p.fits), None)
    if platform.system() != "Linux":
        compiles = "no: the TPU compiler exists for Linux alone"
    elif libtpu is None:
        compiles = "no: it needs a fitting libtpu: pip install '.[tpu]'"
    else:
        compiles = f"yes, with no TPU needed: libtpu {libtpu.installed}"
    kernels = {
        "tpu": "yes, measured on the TPU",
        "gpu": "XLA measured on the GPU; Pallas TPU kernels are unsupported",
        "cpu": "yes; XLA measured on this CPU, Pallas kernels interpreted (values, never speed)",
    }.get(on or "", "no: jax found no device")
    kernels = kernels if ready else f"not before the advice is followed ({kernels})"
    values = "yes" if ready else "not before the advice is followed"
    return {
        "benchmark": kernels,
        "correctness": kernels,
        "rubric": values,
        "audit": values,
        "compile": compiles,
        "report": "yes",
        "compare": "yes",
        "release": "yes",
        "verify": "yes",
    }

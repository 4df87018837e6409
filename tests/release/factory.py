"""Synthetic records that fit the real schema, so that releases can be built without running jax."""

from __future__ import annotations

import random
from typing import Any

from lab.cells.cell import digest, without_outputs
from lab.records import Result

CHECKS = ("causal", "padding", "all_masked_row", "odd_key_width", "grad_q", "grad_k", "grad_v")
LENGTHS = (128, 256, 512, 1024, 2048)
CODE = "c0de" * 16


def _config(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "task": {"name": "benchmark"},
        "kernel": {"name": "xla", "module": "lab.kernels.xla"},
        "scope": {"name": "attention"},
        "dtype": {
            "name": "bf16",
            "input": "bfloat16",
            "logits": "float32",
            "accumulation": "float32",
            "output": "bfloat16",
        },
        "shape": {
            "name": "published",
            "batch": 1,
            "q_heads": 8,
            "kv_heads": 2,
            "head_dim": 128,
            "causal": True,
            "padding": "none",
        },
        "candidate": {"name": "reference", "kind": "reference", "expected": "accepted"},
        "target": {"name": "v5e", "clock_ghz": 1.5},
        "benchmark": {"warmups": 5, "samples": 20},
        "rubric": {"fail_under": None},
        "seq": 256,
        "q_len": 256,
        "seed": 0,
        "regime": "normal",
        "direction": "forward",
        "deadline_s": 600.0,
    }
    return {**base, **changes}


def record(
    task: str,
    *,
    kernel: str = "xla",
    scope: str = "attention",
    seq: int = 256,
    dtype: str = "bf16",
    candidate: str = "reference",
    kind: str = "reference",
    expected: str = "accepted",
    target: str | None = None,
    platform: str | None = "cpu",
    device_kind: str | None = "cpu",
    device_count: int | None = 1,
    evidence: str | None = None,
    section: dict[str, Any] | None = None,
    minute: int = 0,
    **changes: Any,
) -> dict[str, Any]:
    """One record as plain JSON."""
    pallas = kernel.startswith("pallas")
    interpret = pallas and platform == "cpu" and task != "compile"
    options = {"block_rows": 8 if kernel == "pallas-8row" else "auto"} if pallas else {}
    config = _config(
        task={"name": task},
        kernel={"name": kernel, "module": "m", **options},
        scope={"name": scope},
        dtype={**_config()["dtype"], "name": dtype},
        seq=seq,
        q_len=seq,
        candidate={"name": candidate, "kind": kind, "expected": expected},
    )
    level_free = task == "doctor"
    cell_id = "-".join(
        p for p in (task, kernel if candidate == "reference" else candidate, scope, f"s{seq}",
                    dtype, "forward", target) if p
    )  # fmt: skip
    plain = {
        "schema_version": 1,
        "task": task,
        "cell_id": f"{'doctor' if level_free else cell_id}-{digest(without_outputs(config))}",
        "status": "done",
        "reason": None,
        "evidence": None
        if level_free
        else evidence or ("interpreted" if interpret else "measured"),
        "cell": {
            "task": task,
            "kernel": kernel,
            "scope": scope,
            "seq": seq,
            "q_len": seq,
            "dtype": dtype,
            "shape": "published",
            "candidate": candidate,
            "direction": "forward",
            "target": target,
        },
        "config": config,
        "overrides": [f"kernel={kernel}", f"scope={scope}", f"seq={seq}"],
        "seed": 0,
        "regime": "normal",
        "interpret": None if level_free or task == "compile" else interpret,
        "cache_state": "cold",
        "code_sha256": CODE,
        "environment": {
            "python": "3.11.9",
            "jax": "0.10.2",
            "jaxlib": "0.10.2",
            "libtpu": "0.0.42.1",
            "hydra": "1.3.8",
            "omegaconf": "2.3.1",
            "numpy": "2.4.6",
            "platform": platform,
            "device_kind": device_kind,
            "device_count": device_count,
            "cpu_model": "Example CPU @ 2.00GHz",
            "cpu_count": 2,
            "commit": "ab" * 20,
            "dirty": False,
            "flags": {"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {},
        },
        "started_at": f"2026-11-30T17:{minute:02}:00.000+00:00",
        "finished_at": f"2026-11-30T17:{minute:02}:09.000+00:00",
        "error": None,
        **({task: section} if section is not None else {}),
        **changes,
    }
    Result.model_validate(plain)
    return plain


def timed(base_ms: float, *, rng: random.Random, samples: int = 20) -> dict[str, Any]:
    """A benchmark section with samples around a time."""
    drawn = [round(base_ms * (1 + 0.05 * rng.random()), 6) for _ in range(samples)]
    ordered = sorted(drawn)
    middle = samples // 2
    median = ordered[middle] if samples % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {
        "transfer_ms": 0.5,
        "lower_ms": 20.0,
        "compile_ms": 300.0,
        "first_call_ms": 2 * base_ms,
        "warmups_ms": [1.1 * base_ms] * 5,
        "samples_ms": drawn,
        "median_ms": median,
        "devices_used": 1,
        "gate": {"passed": True, "error": 0.25, "bound": 1.0, "measure": "units of the bound"},
    }


def checks(names: tuple[str, ...] = CHECKS) -> dict[str, Any]:
    """A correctness section in which all passes."""
    return {
        "checks": [
            {"name": n, "passed": True, "error": 0.25, "bound": 1.0, "margin": 4.0, "note": None}
            for n in names
        ]
    }


def graded(expected: str) -> dict[str, Any]:
    """A rubric section with the expected verdict."""
    good = expected == "accepted"
    items = [
        {"id": "causal", "points": 10.0, "earned": 10.0 if good else 0.0, "passed": good},
        {"id": "padding", "points": 5.0, "earned": 5.0, "passed": True},
        {"id": "precision", "points": 2.0, "earned": 2.0 if good else 0.0, "passed": good},
    ]
    return {
        "score": 17.0 if good else 5.0,
        "max_score": 17.0,
        "verdict": expected,
        "expected": expected,
        "tier": "bf16" if good else "bf16_scores" if expected == "accepted_lower_tier" else None,
        "fault_class": "causal" if expected == "rejected" else None,
        "worst": {"units": 0.5, "batch": 0, "head": 1, "row": 2},
        "items": items,
    }


def compiled(cycles: int | None, *, pallas: bool = False) -> dict[str, Any]:
    """A compile section of one op; without cycles, one with no estimate.

    XLA counts by its cost model and takes half as long by the schedule; Pallas has only the latter.
    """
    ms = None if cycles is None else cycles / 1.5 * 1e-6
    schedule = cycles if pallas or cycles is None else cycles // 2
    op = {
        "name": "fusion.1",
        "kind": "pallas" if pallas else "xla",
        "count": 1,
        "contains": [],
        "estimated_cycles": cycles,
        "source": None if not cycles else "schedule" if pallas else "cost_model",
        "cost_model_cycles": None if pallas else cycles,
        "static_profile_cycles": None,
        "schedule_cycles": schedule,
        "schedule_problem": None,
        "scoped_vmem_bytes": 4096,
    }
    return {
        "target": "v5e",
        "device_kind": "TPU v5 lite",
        "attached": False,
        "validated": True,
        "label": None,
        "jax": "0.10.2",
        "jaxlib": "0.10.2",
        "libtpu": "0.0.42.1",
        "seconds": {"compile": 2.5},
        "files": {"stablehlo": "stablehlo.mlir", "hlo": "hlo.txt"},
        "boundary": {"pallas_calls": [], "xla": {"dots": 2, "reductions": 2}},
        "memory": {
            "argument_bytes": 1000,
            "output_bytes": 2000,
            "temporary_bytes": 3000,
            "code_bytes": 400,
            "hbm_limit_bytes": 16 * 2**30,
        },
        "vmem": {
            "op": "fusion.1",
            "used_bytes": 4096,
            "limit_bytes": 16 * 2**20,
            "capacity_bytes": 128 * 2**20,
        },
        "work": {
            "flops": 197_000_000,
            "hbm_bytes": 1000,
            "intensity_flops_per_byte": 197_000.0,
            "peak_tflops": 197.0,
            "peak_hbm_gb_s": 819.0,
            "peak_source": "datasheet",
        },
        "floor_ms": 0.001,
        "floor_bound_by": "compute",
        "rule": "one rule",
        "cost_model_ms": None if pallas else ms,
        "static_profile_ms": None,
        "schedule_ms": None if schedule is None else schedule / 1.5 * 1e-6,
        "estimated_ms": ms,
        "no_estimate": None if ms else "control flow depends on data",
        "values_proved": True,
        "floor_share": None if ms is None else 0.001 / ms,
        "achieved_tflops": None if ms is None else 0.2 / ms,
        "ops": [op],
        "loops": [],
        "warnings": [],
    }


def benchmarks(kernels: tuple[str, ...], **changes: Any) -> list[dict[str, Any]]:
    """Both scopes, five lengths, each kernel."""
    rng = random.Random(7)
    return [
        record(
            "benchmark",
            kernel=kernel,
            scope=scope,
            seq=seq,
            section=timed(seq / 1000 * (1.5 if kernel != "xla" else 1), rng=rng),
            **changes,
        )
        for kernel in kernels
        for scope in ("softmax", "attention")
        for seq in LENGTHS
    ]


BAD = {
    "ignores-causal": "rejected",
    "ignores-padding": "rejected",
    "low-precision": "accepted_lower_tier",
    "wrong-gqa": "rejected",
    "top-left-causal": "rejected",
    "nan-on-empty-row": "rejected",
    "unsummed-group-gradient": "rejected",
}


def local_cpu() -> list[dict[str, Any]]:
    """Records that meet the profile local-cpu."""
    suites = [
        record("correctness", kernel=kernel, dtype=dtype, section=checks())
        for kernel in ("pallas", "xla")
        for dtype in ("bf16", "f32")
    ]
    verdicts = [record("rubric", kernel="pallas", section=graded("accepted"))]
    verdicts += [
        record(
            "rubric",
            kernel="pallas",
            candidate=name,
            kind="low-precision" if expected == "accepted_lower_tier" else "known-bad",
            expected=expected,
            section=graded(expected),
        )
        for name, expected in BAD.items()
    ]
    return benchmarks(("pallas", "xla")) + suites + verdicts


def tpu_compiled() -> list[dict[str, Any]]:
    """Records that meet the profile tpu-v5e-compiled."""
    return [
        record(
            "compile",
            kernel=kernel,
            scope=scope,
            seq=seq,
            target="v5e",
            evidence="estimated",
            platform=None,
            device_kind=None,
            device_count=None,
            section=compiled(seq * (900 if kernel != "xla" else 750), pallas=kernel != "xla"),
        )
        for kernel in ("pallas", "pallas-8row", "xla")
        for scope in ("softmax", "attention")
        for seq in LENGTHS
    ]


TPU = {"platform": "tpu", "device_kind": "TPU v5 lite", "device_count": 8}


def doctor(*, fits: bool, minute: int, **changes: Any) -> dict[str, Any]:
    """A look at the machine; a pairing that does not fit is a record too."""
    return record(
        "doctor",
        minute=minute,
        section={
            "ready": fits,
            "device": "8 x TPU v5 lite",
            "pairing_fits": fits,
            "pairing": [],
            "canary_passed": fits,
            "canary": "Pallas kernel",
            "tasks": {},
            "advice": None if fits else "install jax 0.6.2",
            "next_command": "lab task=doctor",
        },
        **{**TPU, **changes},
    )


def kaggle() -> list[dict[str, Any]]:
    """Records that meet the profile kaggle-v5e-8, a failed first pairing included."""
    suites = [
        record("correctness", kernel=kernel, section=checks(), **TPU)
        for kernel in ("pallas-8row", "xla")
    ]
    looks = [doctor(fits=False, minute=1, device_count=None), doctor(fits=True, minute=2)]
    return looks + suites + benchmarks(("pallas-8row", "xla"), **TPU)

"""A sweep over kernels and over an option that only some of them have."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

from commands import Lab

from lab.command.axes import fitted


def jobs(*axes: str) -> list[list[str]]:
    """The product that Hydra makes of `key=a,b` arguments."""
    pairs = (axis.split("=") for axis in axes)
    return [list(j) for j in product(*([f"{k}={v}" for v in vs.split(",")] for k, vs in pairs))]


def test_a_kernel_without_the_option_runs_once_and_that_is_said() -> None:
    found = fitted(jobs("kernel=pallas,xla", "kernel.block_rows=32,64", "seq=128,256"))
    xla = [job for job in found.jobs if "kernel=xla" in job]
    assert xla == [["kernel=xla", "seq=128"], ["kernel=xla", "seq=256"]]
    pallas = [job for job in found.jobs if "kernel=pallas" in job]
    assert pallas == jobs("kernel=pallas", "kernel.block_rows=32,64", "seq=128,256")
    assert found.notes == (
        "kernel.block_rows is set for pallas; xla cannot be given it and is run without",
    )


def test_a_fixed_option_is_none_that_can_be_swept() -> None:
    found = fitted(jobs("kernel=pallas,pallas-8row", "kernel.block_rows=32"))
    assert ["kernel=pallas-8row"] in found.jobs


def test_what_no_kernel_of_the_sweep_has_is_left_for_a_refusal() -> None:
    for axes in (
        ("kernel=xla", "kernel.block_rows=32,64"),
        ("kernel=pallas,xla", "kernel.block_row=32"),
        ("kernel=palas,xla", "kernel.block_rows=32"),
        ("kernel=pallas-8row", "kernel.block_rows=16"),
        ("seq=128,128",),
        ("kernel=pallas,pallas", "kernel.block_rows=32"),
    ):
        assert fitted(jobs(*axes)).jobs == jobs(*axes)
        assert not fitted(jobs(*axes)).notes


def test_the_command_runs_the_curve_beside_its_baseline(lab: Lab, tmp_path: Path) -> None:
    axes = ("kernel=pallas,xla", "kernel.block_rows=8,16")
    tiny = ("shape=tiny", "seq=16", "benchmark.quick=true", "hydra.sweep.dir=s")
    done = lab("-m", *axes, *tiny)
    assert done.returncode == 0, done.stderr
    assert "kernel.block_rows is set for pallas; xla cannot" in done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("s/*/result.json")]
    ran = sorted((r["cell"]["kernel"], r["config"]["kernel"].get("block_rows")) for r in records)
    assert ran == [("pallas", 8), ("pallas", 16), ("xla", None)]

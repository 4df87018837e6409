"""A machine's libraries and devices, told in plain words with the pair that works."""

from __future__ import annotations

import pytest

from lab import worker
from lab.doctor import Canary, pairing
from lab.records import Device, DoctorSection
from lab.tasks import doctor

ASKED = [
    "jaxlib<=0.10.2,>=0.10.1",
    "numpy>=2.0",
    'jaxlib<=0.10.2,>=0.10.2; extra == "tpu"',
    'libtpu==0.0.42.*; extra == "tpu"',
    'jax-cuda13-plugin<=0.10.2; extra == "cuda13"',
]
GOOD = {"jaxlib": "0.10.2", "libtpu": "0.0.42.1"}
JUNE_2025 = {"jaxlib": "0.10.2", "libtpu": "0.0.17"}
TOO_OLD = (
    "RuntimeError: Pallas TPU requires a libtpu version that's at most a month old. "
    "Found version string: TFRT TPU v5 lite, built on Jun 3 2025"
)


def look(
    installed: dict[str, str],
    *,
    on: str | None = "tpu",
    device: tuple[str, int] | None = ("TPU v5 lite", 8),
    jax: str | None = "0.10.2",
    canary: Canary | None = None,
    problem: str | None = None,
) -> DoctorSection:
    return doctor.diagnose(
        jax=jax,
        parts=pairing.parts(ASKED, installed.get),
        seen=Device(platform=on, device_kind=device[0], device_count=device[1]) if device else None,
        canary=canary,
        problem=problem,
    )


RIGHT = Canary(what="Pallas kernel", error=0.0)


def test_a_fitting_tpu_is_ready_for_the_campaign() -> None:
    found = look(GOOD, canary=RIGHT)
    assert (found.ready, found.pairing_fits, found.canary_passed) == (True, True, True)
    assert found.advice is None
    assert found.next_command == "lab task=campaign campaign=kaggle-v5e"


def test_an_old_libtpu_is_named_with_the_pair_that_works() -> None:
    found = look(JUNE_2025, problem=TOO_OLD)
    assert (found.ready, found.pairing_fits, found.canary_passed) == (False, False, False)
    assert found.advice is not None
    assert "libtpu 0.0.17 does not fit jax 0.10.2, which needs ==0.0.42.*" in found.advice
    assert "pip install --upgrade 'jax[tpu]==0.10.2'" in found.advice
    assert "month old" in found.canary


def test_a_libtpu_of_the_image_behind_a_fitting_package() -> None:
    found = look(GOOD, problem=TOO_OLD)
    assert not found.pairing_fits
    assert "TPU_LIBRARY_PATH" in (found.advice or "")


def test_another_tpu_has_a_campaign_too() -> None:
    found = look(GOOD, device=("TPU v6 lite", 1), canary=RIGHT)
    assert found.next_command == "lab task=campaign campaign=tpu"


def test_wrong_values_are_not_ready() -> None:
    found = look(GOOD, canary=Canary(what="Pallas kernel", error=2.0))
    assert (found.ready, found.canary_passed) == (False, False)
    assert "do not trust" in (found.advice or "")


def test_without_jax_there_is_one_thing_to_do() -> None:
    found = look({}, on=None, device=None, jax=None, problem="no module named jax")
    assert (found.ready, found.pairing_fits) == (False, None)
    assert "jax is not installed" in (found.advice or "")


def test_a_cpu_needs_no_libtpu() -> None:
    found = look({"jaxlib": "0.10.2"}, on="cpu", device=("cpu", 1), canary=RIGHT)
    assert found.ready
    assert found.tasks["compile"].startswith("no: ")
    assert "never speed" in found.tasks["benchmark"]
    assert found.next_command.endswith("campaign=local-cpu")


def test_a_gpu_runs_what_runs_there() -> None:
    found = look({"jaxlib": "0.10.2"}, on="gpu", device=("NVIDIA H200", 1), canary=RIGHT)
    assert found.next_command.endswith("campaign=gpu")
    assert "unsupported" in found.tasks["benchmark"]


@pytest.mark.parametrize(
    ("version", "fits"), [("0.0.42", True), ("0.0.42.9", True), ("0.0.5", False)]
)
def test_versions_are_compared_as_versions(version: str, fits: bool) -> None:
    parts = {p.package: p for p in pairing.parts(ASKED, {**GOOD, "libtpu": version}.get)}
    assert parts["libtpu"].fits is fits


def test_this_environment_fits_itself_and_its_canary_sings() -> None:
    jaxlib = pairing.parts()[0]
    assert jaxlib.fits
    answer = worker.call("lab.doctor.probe:canary", {}, Canary, deadline_s=120)
    assert answer.error == 0

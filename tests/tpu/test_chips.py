"""Targets as configured: what a chip says of itself."""

import pytest
import samples

from lab.tpu import chips

TARGETS = ("v4", "v5e", "v5p", "v6e", "tpu7x")


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_peaks_with_their_source(name: str) -> None:
    chip = samples.cell("task=compile", f"target={name}").config.target
    assert chip.name == name
    assert chip.kind.startswith("TPU")
    assert min(chip.bf16_tflops, chip.hbm_gb_s, chip.hbm_bytes) > 0
    assert chip.scoped_vmem_bytes <= chip.vmem_bytes
    assert len(chip.source) > 20


@pytest.mark.parametrize("name", TARGETS)
def test_only_v5e_by_the_validated_compiler_is_without_label(name: str) -> None:
    chip = samples.cell("task=compile", f"target={name}").config.target
    assert (chips.label(chip, "0.0.42.1") is None) == (name == "v5e")
    assert chips.label(chip, "0.0.50.1") == "estimates not validated"


def test_a_chip_without_a_public_clock_executes_cycles_at_a_nominal_one() -> None:
    chip = samples.cell("task=compile", "target=v6e").config.target
    assert chip.clock_ghz is None
    assert chips.machine(chip).clock_ghz == 1.5

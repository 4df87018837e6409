"""Programs that look fast for a wrong reason: each is refused or charged."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab.tpu.hlo import ops, overlap
from lab.tpu.proof.interpret import CannotInterpret, evaluate
from lab.tpu.schedule.bundles import Schedule
from lab.tpu.schedule.execute import NoEstimate, execute
from lab.tpu.schedule.timeline import Machine

# 32 bytes a cycle, so a granule a cycle; 100 cycles of latency.
MACHINE = Machine(clock_ghz=2.0, hbm_gb_s=64.0, dma_latency_ns=50.0, granule_bytes=32)
COPY = "%1 = dma.vmem_to_hbm %s1_s1, 4096, %s2_s2, [#allocation1]"
EMPTY = "%2 = sfence"


def test_a_copy_that_is_not_waited_for_ends_the_schedule_when_it_has_landed(
    program: Callable[..., Schedule],
) -> None:
    found = execute(program(COPY, EMPTY, EMPTY), MACHINE)
    assert not isinstance(found, NoEstimate)
    assert found.cycles == 4096 + 100
    assert found.stall_cycles == 4096 + 100 - 3


def test_a_semaphore_that_still_counts_at_the_kernel_s_end_is_refused(
    program: Callable[..., Schedule],
) -> None:
    read = "%3 = vsyncmov [#allocation1]"
    wait = "%4 = dma.done.wait [#allocation1], 4096"
    take = "%5 = vsyncadd [#allocation1], 4294963200"
    refused = execute(program(COPY, read), MACHINE)
    assert isinstance(refused, NoEstimate)
    assert "a semaphore holds 4096 at the kernel's end" in refused.reason
    assert not isinstance(execute(program(COPY, wait, take, read), MACHINE), NoEstimate)


@pytest.mark.parametrize(
    ("strides", "pieces"),
    [
        ("", 0),
        (", 16, 16, 1", 0),  # a step of 512 bytes after the other: together
        (", 128, 16, 1", 256),  # the same steps 4 KiB apart in HBM
        (", 128, 16, 8", 0),
        (", 256, 128, 8", 32),
        (", 512, 256, 16", 0),  # 8 KiB together: public timings show no cost
    ],
)
def test_each_piece_of_a_strided_copy_costs_time(
    program: Callable[..., Schedule], strides: str, pieces: int
) -> None:
    copy = f"%1 = dma.hbm_to_vmem %s1_s1, 4096, %s2_s2, [#allocation1]{strides}"
    machine = Machine(2.0, 64.0, dma_latency_ns=50.0, piece_ns=1.0)
    found = execute(program(copy, EMPTY), machine)
    assert not isinstance(found, NoEstimate)
    assert found.cycles == 4096 + 100 + 2 * pieces


HLO = """HloModule m

ENTRY %main (x.1: f32[1024,1024]) -> f32[1024,1024] {
  %x.1 = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %copy-start = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x.1)
  %other = f32[8,128]{1,0:T(8,128)S(1)} fusion(), kind=kLoop, calls=%f
  %copy-done = f32[1024,1024]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  ROOT %kernel.1 = f32[1024,1024]{1,0:T(8,128)} custom-call(%copy-done), custom_call_target="tpu_custom_call"
}
"""  # noqa: E501 - as the compiler writes it


@pytest.mark.parametrize(("beside", "waited"), [(0, 131_172), (31_172, 100_000), (200_000, 0)])
def test_an_operand_brought_to_vmem_is_waited_for_unless_other_work_hides_it(
    beside: int, waited: int
) -> None:
    found = overlap.waits(ops.read(HLO).ops, {"other": beside}, MACHINE)
    assert found == {"copy-done": pytest.approx(waited, abs=101)}


def test_a_program_that_chooses_by_the_platform_proves_nothing() -> None:
    def program(x: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(x, tpu=lambda x: x * 0, default=lambda x: x + 1)

    traced = jax.make_jaxpr(program)(jnp.ones(8))
    with pytest.raises(CannotInterpret, match="chooses by the platform"):
        evaluate(traced, [np.ones(8, np.float32)])


def test_a_program_that_leaves_the_device_proves_nothing() -> None:
    def program(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((8,), jnp.float32), x)

    traced = jax.make_jaxpr(program)(jnp.ones(8))
    with pytest.raises(CannotInterpret, match="leaves the device"):
        evaluate(traced, [np.ones(8, np.float32)])


@pytest.mark.parametrize(
    ("place", "mark", "reason"),
    [
        ("ROOT %kernel.1 = f32[1024,1024]{1,0:T(8,128)", "S(5)", "arrays lie on the host"),
        ("kind=kLoop, calls=%f", ', execution_thread="host"', "program runs on the host"),
    ],
)
def test_what_the_host_does_or_holds_is_not_free(place: str, mark: str, reason: str) -> None:
    assert not ops.read(HLO).problems
    assert reason in ops.read(HLO.replace(place, place + mark)).problems[0]

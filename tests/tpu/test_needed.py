from collections.abc import Callable

from lab.tpu.schedule.bundles import Schedule
from lab.tpu.schedule.needed import needed_names


def test_addresses_and_bounds_checks_are_not_needed(program: Callable[..., Schedule]) -> None:
    schedule = program(
        "%s1_s0 = inlined_call_operand.hbm [shape: f32[8,128], index: 0]",
        "%s2_s1 = scalar_lea.hbm %s1_s0, 64",
        "%p3_p0 = scmp.lt.s32.totalorder %s2_s1, %s1_s0",
        "%4 = shalt.err (!%p3_p0)",
        "%s5_s2 = smov 64 ;; %s6_s3 = scalar_lea.sflag [#allocation1], 1",
        "%p7_p1 = scmp.eq.s32.totalorder 0, 0",
        "%8 = dma.hbm_to_vmem [thread:$0] (%p7_p1), %s2_s1, %s5_s2, %s9_s4, %s6_s3",
    )
    assert needed_names(schedule) == {"%s5_s2", "%s6_s3", "%p7_p1"}


def test_all_that_a_branch_comes_from_is_needed(program: Callable[..., Schedule]) -> None:
    schedule = program(
        "%s1_s0 = smov 0 ;; %s9_s9 = smov 0",
        "LB %s2_s1 = sphi %s1_s0, %s3_s2 ;; %s10_s4 = sphi %s9_s9, %s11_s5",
        "%s3_s2 = sadd.s32 1, %s2_s1 ;; %s11_s5 = sadd.s32 1, %s10_s4",
        "%s6_s3 = sld [smem:[#allocation2 + %s3_s2]] ;; %7 = sdivrem.u32 %s6_s3, 3",
        "%s8_s6 = spop.drf %7",
        "%p4_p0 = scmp.ge.s32.totalorder %s8_s6, 4",
        "%5 = sbr.rel (!%p4_p0) target bundleno = 1 (0x1), region = 1",
        *[""] * 4,
    )
    counter = {"%s1_s0", "%s2_s1", "%s3_s2"}
    assert needed_names(schedule) == counter | {"%s6_s3", "%7", "%s8_s6", "%p4_p0"}


def test_a_copy_to_scalar_memory_needs_its_destination(program: Callable[..., Schedule]) -> None:
    schedule = program("%1 = dma.hbm_to_smem %s2_s0, 16, %s3_s1, [#allocation2]")
    assert needed_names(schedule) == {"%s3_s1"}

from collections.abc import Callable

import pytest

from lab.tpu.schedule.bundles import Schedule, UnrecognisedDump
from lab.tpu.schedule.execute import NoEstimate, ScheduleEstimate, execute
from lab.tpu.schedule.timeline import Machine

# 32 bytes a cycle, so a granule a cycle; 100 cycles of latency.
MACHINE = Machine(clock_ghz=2.0, hbm_gb_s=64.0, dma_latency_ns=50.0, granule_bytes=32)
Program = Callable[..., Schedule]


def estimate(schedule: Schedule) -> ScheduleEstimate:
    result = execute(schedule, MACHINE)
    assert isinstance(result, ScheduleEstimate), result
    return result


def reason(schedule: Schedule) -> str:
    result = execute(schedule, MACHINE)
    assert isinstance(result, NoEstimate), result
    return result.reason


def counted_loop(trips: int, *body: str) -> list[str]:
    """A bundle, then a loop of 8 bundles and the body."""
    return [
        "%s1_s0 = smov 0",
        "LB %s2_s1 = sphi %s1_s0, %s3_s2",
        "%s3_s2 = sadd.s32 1, %s2_s1",
        *body,
        f"%p4_p0 = scmp.ge.s32.totalorder %s3_s2, {trips} /* loop exit test */",
        "%5 = sbr.rel (!%p4_p0) target bundleno = 1 (0x1), region = 1",
        *[""] * 4,
    ]


def test_a_straight_line_takes_a_cycle_a_bundle(program: Program) -> None:
    result = estimate(program("%v1_v0 = vlaneseq", "", "%2 = vst [vmem:[#allocation0]] %v1_v0"))
    assert (result.cycles, result.runs, result.stall_cycles) == (3, (1, 1, 1), 0)
    assert result.ms == pytest.approx(3 / 2e6)


@pytest.mark.parametrize("trips", [1, 2, 1000])
def test_a_loop_takes_its_bundles_a_trip_delay_slots_included(program: Program, trips: int) -> None:
    result = estimate(program(*counted_loop(trips, "", ""), ""))
    assert result.cycles == 1 + 10 * trips + 1
    assert result.runs == (1, *[trips] * 10, 1)


def test_the_work_in_delay_slots_is_done_before_the_jump(program: Program) -> None:
    result = estimate(
        program(
            "%p1_p0 = scmp.eq.s32.totalorder 3, 3",
            "%2 = sbr.rel (%p1_p0) target bundleno = 7 (0x7), region = 1",
            "",
            "%s3_s1 = smov 5",
            "",
            "",
            "%4 = vdelay 1000",
            "%p5_p1 = scmp.ne.s32.totalorder %s3_s1, 5",
            "%6 = vdelay (%p5_p1), 1000",
        )
    )
    assert result.runs == (1, 1, 1, 1, 1, 1, 0, 1, 1)
    assert result.cycles == 8


def test_loop_values_change_together(program: Program) -> None:
    """A swap a trip: after three, the values have changed places."""
    lines = [
        "%s1_s0 = smov 0",
        "LB %s2_s1 = sphi %s1_s0, %s3_s2 ;; %s11_s6 = sphi 7, %s12_s7 ;; %s12_s7 = sphi 9, %s11_s6",
        "%s3_s2 = sadd.s32 1, %s2_s1",
        "%p4_p0 = scmp.ge.s32.totalorder %s3_s2, 4",
        "%5 = sbr.rel (!%p4_p0) target bundleno = 1 (0x1), region = 1",
        *[""] * 4,
        "%p6_p1 = scmp.eq.s32.totalorder %s11_s6, 9 ;; %p7_p2 = scmp.eq.s32.totalorder %s12_s7, 7",
        "%8 = vdelay (%p6_p1), 100 ;; %9 = vdelay (%p7_p2), 1000",
    ]
    assert estimate(program(*lines)).cycles == 1 + 4 * 8 + 2 + 1100


def test_values_pass_through_memory(program: Program) -> None:
    lines = (
        "%1 = sst [smem:[#allocation3 + $0x1]] 4294967295",
        "%p2_p0 = scmp.eq.s32.totalorder 0, 1",
        "%3 = sst [smem:[#allocation3 + $0x1]] (%p2_p0), 12",
        "%s4_s0 = smov [#allocation3]",
        "%s5_s1 = sld [smem:[%s4_s0 + 1]]",
        "%p6_p1 = scmp.eq.s32.totalorder %s5_s1, -1",
        "%7 = vdelay (%p6_p1), 100",
    )
    assert estimate(program(*lines)).cycles == 107


def test_a_division_gives_its_quotient_first(program: Program) -> None:
    lines = (
        "%1 = sdivrem.u32 17, 5 /* kDivAndRem */",
        "%s2_s0 = spop.drf %1",
        "%s3_s1 = spop.drf %1",
        "%p4_p0 = scmp.eq.s32.totalorder %s2_s0, 3 ;; %p5_p1 = scmp.eq.s32.totalorder %s3_s1, 2",
        "%6 = vdelay (%p4_p0), 100 ;; %7 = vdelay (%p5_p1), 1000",
    )
    assert estimate(program(*lines)).cycles == 1105
    only_one = program("%1 = sdivrem.u32 17, 5", *lines[1:])
    assert "the result of spop.drf at bundle 0x1" in reason(only_one)


def test_a_predicated_move_keeps_the_old_value_where_false(program: Program) -> None:
    lines = (
        "%p1_p0 = scmp.eq.s32.totalorder 0, 1 ;; %s2_s0 = smov 5",
        "%s3_s1 = smov (%p1_p0, %s2_s0), 6 ;; %s4_s2 = smov (!%p1_p0, %s2_s0), 7",
        "%p5_p1 = scmp.eq.s32.totalorder %s3_s1, 5 ;; %p6_p2 = scmp.eq.s32.totalorder %s4_s2, 7",
        "%7 = vdelay (%p5_p1), 100 ;; %8 = vdelay (%p6_p2), 1000",
    )
    assert estimate(program(*lines)).cycles == 1104


def test_copies_are_timed_from_their_bundle_and_stall_the_wait(program: Program) -> None:
    lines = (
        "",
        "%1 = dma.hbm_to_vmem [thread:$0] (%p9_p9), 0, 64, 0, [#allocation2]",
        "%p9_p9 = scmp.eq.s32.totalorder 0, 0",
        "%2 = dma.hbm_to_vmem [thread:$0] (%p9_p9), 0, 64, 0, [#allocation2]",
        "",
        "%3 = dma.done.wait [#allocation2], 64",
        "%4 = vsyncadd [#allocation2], 4294967232",
    )
    result = estimate(program(*lines[:1], *lines[2:]))
    assert result.cycles == 2 + 64 + 100 + 2
    assert result.stalls == {4: 2 + 164 - 4}
    assert result.traffic == {2: 64 * 32}
    assert (result.dma_bytes, result.dma_copies, result.stall_cycles) == (2048, 1, 162)


def test_a_strided_copy_is_told_from_a_copy_within_the_core(program: Program) -> None:
    lines = (
        "%s1_s0 = int_to_ptr.hbm [resolvable:$true] 0 ;; %s2_s1 = int_to_ptr.vmem 64",
        "%3 = dma.general %s1_s0, 8, %s2_s1, [#allocation1], [#allocation2], [#allocation3], 0, 0",
        "%4 = dma.general %s2_s1, 8, %s2_s1, [#allocation1], [#allocation2], [#allocation3], 0, 0",
    )
    assert estimate(program(*lines)).traffic == {1: 256, 2: 0}


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("%s1_s0 = sld [smem:[#allocation4]]", "a value loaded from memory at bundle 0x0"),
        ("%s1_s0 = spop.drf %0", "the result of spop.drf at bundle 0x0"),
        (
            "%s1_s0 = inlined_call_operand.hbm [shape: f32[8,128], index: 0]",
            "the result of inlined_call_operand.hbm at bundle 0x0",
        ),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        "%3 = sbr.rel (%p2_p0) target bundleno = 0 (0x0), region = 1",
        "%3 = dma.hbm_to_vmem [thread:$0] (%p2_p0), 0, 64, 0, [#allocation2]",
        "%3 = dma.hbm_to_vmem [thread:$0] 0, %s1_s0, 0, [#allocation2]",
        "%3 = dma.done.wait (%p2_p0), [#allocation2], 64",
        "%3 = vdelay (%p2_p0), 64",
    ],
)
def test_no_estimate_when_time_depends_on_data(
    program: Program, origin: str, said: str, use: str
) -> None:
    lines = (origin, "%p2_p0 = scmp.ge.s32.totalorder %s1_s0, 1", use, *[""] * 4)
    assert reason(program(*lines)) == f"control flow depends on data: {said}"


def test_data_that_decides_nothing_costs_no_estimate(program: Program) -> None:
    lines = (
        "%s1_s0 = sld [smem:[#allocation4]]",
        "%p2_p0 = scmp.ge.s32.totalorder %s1_s0, 1",
        "%3 = shalt.err (!%p2_p0)",
        "%4 = sst [smem:[#allocation5]] (%p2_p0), 3",
    )
    assert estimate(program(*lines)).cycles == 4


def test_a_copy_into_scalar_memory_brings_data(program: Program) -> None:
    lines = (
        "%1 = sst [smem:[#allocation4]] 3",
        "%2 = dma.hbm_to_smem 0, 16, [#allocation4], [#allocation2]",
        "%s3_s0 = sld [smem:[#allocation4]]",
        "%p4_p0 = scmp.ge.s32.totalorder %s3_s0, 1",
        "%5 = vdelay (%p4_p0), 64",
    )
    assert "loaded from memory at bundle 0x2" in reason(program(*lines))
    assert estimate(program(lines[0], "", *lines[2:])).cycles == 69


def test_the_program_of_core_0_stands_for_all(program: Program) -> None:
    lines = (
        "%s1_s0 = sld [smem:[#allocation0]] /* core id */",
        "%p2_p0 = scmp.ne.s32.totalorder %s1_s0, 0",
        "%3 = vdelay (%p2_p0), 64",
    )
    assert estimate(program(*lines)).cycles == 3


@pytest.mark.parametrize(
    "opcode", ["vwait.ge", "vsyncadd.remote", "dma.remote", "scall", "inlined_call"]
)
def test_what_is_not_modelled_is_named_when_it_is_reached(program: Program, opcode: str) -> None:
    line = f"%1 = {opcode} (%p9_p0), [#allocation1], 3"
    reached = program("%p9_p0 = scmp.eq.s32.totalorder 0, 0", line)
    skipped = program("%p9_p0 = scmp.eq.s32.totalorder 0, 1", line)
    assert reason(reached) == f"{opcode} at bundle 0x1 is not modelled"
    assert estimate(skipped).cycles == 2


def test_an_endless_loop_ends_without_an_estimate(program: Program) -> None:
    lines = ("%1 = sbr.rel target bundleno = 0 (0x0), region = 1", *[""] * 4)
    assert "not finished after" in reason(program(*lines))


def test_a_wait_for_nothing_has_no_estimate(program: Program) -> None:
    assert "more than was copied" in reason(program("%1 = dma.done.wait [#allocation2], 64"))


@pytest.mark.parametrize(
    "lines",
    [
        ("%1 = sbr.rel target bundleno = 0 (0x0)", "", ""),
        ("%1 = sbr.rel target bundleno = 0 (0x0)", "%2 = sbr.rel target bundleno = 0 (0x0)")
        + ("",) * 5,
        ("%s1_s0 = sadd.s32 1", "%2 = vdelay %s1_s0"),
        ("%s1_s0 = sadd.s32 1, %", "%2 = vdelay %s1_s0"),
        ("%1 = dma.done.wait [#allocation2]",),
        ("%1 = dma.hbm_to_vmem 1, 2",),
    ],
)
def test_a_program_that_makes_no_sense_is_refused(program: Program, lines: tuple[str]) -> None:
    with pytest.raises(UnrecognisedDump, match="expected"):
        execute(program(*lines), MACHINE)

import pytest

from lab.tpu.schedule.scalar import CannotFollowError, Unknown
from lab.tpu.schedule.timeline import Machine, Timeline

# 32 bytes a cycle, so a granule a cycle; 100 cycles of latency.
MACHINE = Machine(clock_ghz=2.0, hbm_gb_s=64.0, dma_latency_ns=50.0, granule_bytes=32)


def test_a_wait_ends_when_the_copy_has_moved_and_landed() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(10.0, 40, flag=1, ends="r", address=0xA)
    assert timeline.wait(20.0, 1, 40, 0xB) == 10 + 40 + 100
    assert timeline.stalls == {0xB: 130.0}
    assert timeline.traffic == {0xA: 40 * 32}


def test_a_copy_that_landed_costs_nothing() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(0.0, 40, flag=1, ends="r", address=0)
    assert timeline.wait(500.0, 1, 40, 0xB) == 500.0
    assert sum(timeline.stalls.values()) == 0


def test_copies_share_the_channel_but_not_the_latency() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(0.0, 300, flag=1, ends="r", address=0)
    timeline.copy(1.0, 200, flag=2, ends="r", address=1)
    assert timeline.wait(2.0, 2, 200, 0) == 300 + 200 + 100


def test_a_copy_within_the_core_leaves_the_channel_free() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(0.0, 300, flag=1, ends="", address=0)
    timeline.copy(0.0, 200, flag=2, ends="rw", address=1)
    assert timeline.wait(0.0, 1, 300, 0) == 100
    assert timeline.wait(0.0, 2, 200, 0) == 400 + 100
    assert timeline.traffic == {0: 0, 1: 200 * 32 * 2}


def test_a_flag_counts_granules_of_several_copies() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(0.0, 30, flag=1, ends="r", address=0)
    timeline.copy(0.0, 50, flag=1, ends="r", address=0)
    assert timeline.wait(0.0, 1, 80, 0) == 80 + 100
    timeline.add(0.0, 1, -80)
    timeline.copy(200.0, 30, flag=1, ends="r", address=0)
    assert timeline.wait(200.0, 1, 30, 0) == 200 + 30 + 100


def test_taking_granules_off_leaves_the_next_copy_to_wait_for() -> None:
    timeline = Timeline(MACHINE)
    for start in (0.0, 1000.0):
        timeline.copy(start, 30, flag=1, ends="r", address=0)
    assert timeline.wait(0.0, 1, 30, 0) == 130
    timeline.add(0.0, 1, -30)
    assert timeline.wait(0.0, 1, 30, 0) == 1130


def test_waiting_for_what_was_never_copied_is_refused() -> None:
    timeline = Timeline(MACHINE)
    timeline.copy(0.0, 30, flag=1, ends="r", address=0)
    for flag, granules in ((1, 31), (2, 1)):
        with pytest.raises(CannotFollowError, match="wait at 0xb is for more than was copied"):
            timeline.wait(0.0, flag, granules, 0xB)
    timeline.reset(1)
    with pytest.raises(CannotFollowError):
        timeline.wait(0.0, 1, 30, 0xB)


def test_the_program_can_signal_itself() -> None:
    timeline = Timeline(MACHINE)
    timeline.add(7.0, 1, 2)
    assert timeline.wait(3.0, 1, 2, 0) == 7.0


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(CannotFollowError, match="depends on data: a length"):
        Timeline(MACHINE).copy(0.0, Unknown("a length"), flag=1, ends="r", address=0)

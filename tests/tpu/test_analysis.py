"""From checked-in files of a compiled program to ops, cycles and loops; no compiler involved."""

import gzip
import shutil
from pathlib import Path

import pytest
import samples

from lab.tpu import analysis
from lab.tpu.estimate import choose, estimate
from lab.tpu.hlo.text import UnrecognisedHloError
from lab.tpu.roofline import Floor

PROGRAM = Path(__file__).parent / "programs" / "pallas-8row-softmax"
V5E = samples.cell("task=compile", "target=v5e").config.target
FLOOR = Floor(1e-3, "memory", 0)
CALL = "masked_softmax_rows.1"


def read(name: str) -> str:
    return gzip.decompress((PROGRAM / f"{name}.txt.gz").read_bytes()).decode()


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROGRAM / "dump", tmp_path / "dump"))


def test_both_sources_of_a_pallas_call_agree(dump: Path) -> None:
    program = analysis.analyse(read("hlo"), read("profile"), dump, V5E)
    call = next(op for op in program.ops if op.kind == "pallas")
    assert call.static_profile == 93_820
    assert call.schedule == pytest.approx(call.static_profile, rel=0.1)
    assert choose(call, V5E) == ("schedule", call.schedule)
    assert estimate(program.ops, program.problems, V5E, FLOOR).ms == pytest.approx(0.062, abs=6e-3)
    assert program.unread == ()


def test_loops_say_where_the_cycles_go(dump: Path) -> None:
    program = analysis.analyse(read("hlo"), None, dump, V5E)
    longest = program.loops[CALL][0]
    assert longest.trips >= 128  # one step for 8 rows of 8 heads of 128
    assert longest.share > 0.9
    assert longest.dma_bytes >= 8 * 128 * 128 * (2 + 4)


def test_without_a_dump_the_profile_takes_over_and_the_record_says_so() -> None:
    program = analysis.analyse(read("hlo"), read("profile"), None, V5E)
    call = next(op for op in program.ops if op.kind == "pallas")
    assert choose(call, V5E) == ("static_profile", 93_820)
    assert program.unread == ("no schedule was dumped",)
    assert program.loops == {}


@pytest.mark.parametrize("damage", ["cut", "another format", "not gzip", "absent"])
def test_a_damaged_schedule_says_so_and_the_rest_stands(dump: Path, damage: str) -> None:
    (path,) = dump.glob(f"*-{CALL}-*-packed-bundles-post-ra.txt.gz")
    whole = gzip.decompress(path.read_bytes())
    if damage == "cut":
        path.write_bytes(gzip.compress(whole[: len(whole) // 2]))
    elif damage == "another format":
        path.write_bytes(gzip.compress(b"bundle listing, version 2\n"))
    elif damage == "not gzip":
        path.write_bytes(whole[:100])
    else:
        path.unlink()
    program = analysis.analyse(read("hlo"), None, dump, V5E)
    call = next(op for op in program.ops if op.kind == "pallas")
    fusion = next(op for op in program.ops if op.kind != "pallas")
    assert call.schedule is None
    assert call.schedule_unread
    assert len(program.unread) == 1
    assert fusion.cost_model == 1857
    found = estimate(program.ops, program.problems, V5E, FLOOR)
    assert found.ms is None
    assert CALL in str(found.no_estimate)


def test_a_schedule_without_latencies_is_no_small_number(dump: Path) -> None:
    (path,) = dump.glob(f"*-{CALL}-*-packed-bundles-post-ra.txt.gz")
    lines = gzip.decompress(path.read_bytes()).decode().rstrip().splitlines()
    lines[-1] += " /* exit bundle: %f = g */"  # which the last pass alone writes
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    program = analysis.analyse(read("hlo"), read("profile"), dump, V5E)
    call = next(op for op in program.ops if op.kind == "pallas")
    assert call.schedule is None
    assert any("latencies" in line for line in program.unread)
    assert choose(call, V5E) == ("static_profile", 93_820)


def test_a_damaged_slot_file_costs_the_table_alone(dump: Path) -> None:
    (path,) = dump.glob(f"*-{CALL}-*-pre-delay_hlo-static-per-bundle-utilization.txt.gz")
    path.write_bytes(gzip.compress(b"== SOMETHING ELSE\n"))
    program = analysis.analyse(read("hlo"), None, dump, V5E)
    assert CALL not in program.loops
    assert "slot-use" in program.unread[0]
    assert estimate(program.ops, program.problems, V5E, FLOOR).ms is not None


def test_a_text_that_is_no_hlo_is_refused_and_a_broken_profile_is_passed_over(dump: Path) -> None:
    with pytest.raises(UnrecognisedHloError):
        analysis.analyse("garbage", None, dump, V5E)
    program = analysis.analyse(read("hlo"), "garbage", dump, V5E)
    assert all(op.static_profile is None for op in program.ops)

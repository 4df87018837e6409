import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.tpu.schedule import bundles
from lab.tpu.schedule.bundles import Instruction, Schedule, UnrecognisedDump

DUMPS = Path(__file__).parent / "dumps"
LEGEND = "= control target key start\nLB: loop body\n= control target key end\n\n"
END = " /* Start region 0 :: End region 0 */\n"
SOFTMAX = gzip.decompress(
    (DUMPS / "softmax-8row" / "1-softmax.1-01-packed-bundles-post-ra.txt.gz").read_bytes()
).decode()


def only(schedule: Schedule) -> Instruction:
    ((instruction,),) = [bundle.instructions for bundle in schedule.bundles]
    return instruction


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%s1_s0 = sadd.s32 1, %s2_s3", Instruction("%s1_s0", "sadd.s32", None, ("1", "%s2_s3"))),
        (
            "%s4_s1 = smov (!%p3_p0, %s1_s0), 7",
            Instruction("%s4_s1", "smov", None, ("(!%p3_p0", "%s1_s0)", "7")),
        ),
        (
            "%9 = sst [smem:[#allocation2 + $0x1]] (%p3_p0), %s1_s0",
            Instruction("%9", "sst", "%p3_p0", ("[smem:[#allocation2 + $0x1]]", "%s1_s0")),
        ),
        (
            "%9 = sst [smem:[#allocation2_spill]] %s1_s0",
            Instruction("%9", "sst", None, ("[smem:[#allocation2_spill]]", "%s1_s0")),
        ),
        (
            "%8 = dma.done.wait (!%p1_p2), [#allocation6], 4096",
            Instruction("%8", "dma.done.wait", "!%p1_p2", ("[#allocation6]", "4096")),
        ),
        (
            "%s5_s5 = int_to_ptr.hbm [resolvable:$true] %s4_s4",
            Instruction("%s5_s5", "int_to_ptr.hbm", None, ("%s4_s4",)),
        ),
        (
            "%s2_s6 = sld [smem:[#allocation0]] /* core id */",
            Instruction("%s2_s6", "sld", None, ("[smem:[#allocation0]]", bundles.CORE_ID)),
        ),
        (
            "%7 = dma.hbm_to_vmem [thread:$0]  (%p1_p0), /*hbm=*/%s9_s8, 64, %s10_s2, %s8_s3",
            Instruction("%7", "dma.hbm_to_vmem", "%p1_p0", ("%s9_s8", "64", "%s10_s2", "%s8_s3")),
        ),
        ("%v1_v0 = vadd.f32 %v2_v1, %v3_v2", Instruction("%v1_v0", "vadd.f32", None, ())),
    ],
)
def test_one_instruction(
    program: Callable[..., Schedule], line: str, expected: Instruction
) -> None:
    assert only(program(line)) == expected


def test_comments_nest_and_span_lines() -> None:
    text = LEGEND + " 0 : { %1 = sfence /* a /* b */ {c}\n 0x7 : d */ } /* Start region 1 */\n"
    text += " 0x1 : {} /* End region 1 */\n"
    schedule = bundles.parse(text)
    assert [len(bundle.instructions) for bundle in schedule.bundles] == [1, 0]


@pytest.mark.parametrize("target", ["target bundleno = 2 (0x2), region = 4", "target = $region4"])
def test_branch_targets_by_bundle_number_and_by_region(target: str) -> None:
    text = LEGEND + f" 0 : {{ %1 = sbr.rel (%p1_p0) {target} }}\n 0x1 : {{}}\n"
    text += " 0x2 PF: {} /* Start/End empty region 4 :: End region 0 */\n"
    (branch,) = bundles.parse(text).bundles[0].instructions
    assert (branch.target, branch.guard) == (2, "%p1_p0")


def test_the_last_pass_ends_in_an_exit_bundle_whose_region_is_not_named() -> None:
    text = LEGEND + " 0 : { %1 = sbr.rel target = $region9 }\n 0x1 : {} /* exit bundle: %f = g */\n"
    schedule = bundles.parse(text)
    assert schedule.bundles[0].instructions[0].target == 1
    assert not schedule.latencies


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected '= control target key start' on line 1, found 'nothing'"),
        ("HloModule jit_f\n", "found 'HloModule jit_f'"),
        (LEGEND, "found the end of file"),
        (LEGEND + " 0 : {}\n 0x2 : {}\n", "expected bundle 0x1, found 0x2"),
        (LEGEND + " 0 : {}\n one more thing\n", "expected a bundle, found 'one more thing'"),
        (LEGEND + " 0 : { 17 }\n", "expected '%result = opcode ...', found '17'"),
        (
            LEGEND + " 0 : { %1 = sbr.rel target = $region4 }" + END,
            "expected a known branch target",
        ),
        (LEGEND + " 0 : { %1 = sbr.rel target bundleno = 9 (0x9) }" + END, "leads out of the file"),
        (LEGEND + " 0 : {} /* Start region 1 */\n", "expected the end of every region"),
        (LEGEND + " 0 : {}\n", "expected the end of every region"),
        (LEGEND + " 0 : {} /* Start", "expected the end of a comment"),
    ],
)
def test_another_format_is_refused_with_what_was_expected(text: str, complaint: str) -> None:
    with pytest.raises(UnrecognisedDump) as refusal:
        bundles.parse(text, name="a.txt")
    assert complaint in str(refusal.value)
    assert str(refusal.value).startswith("a.txt: ")


@given(st.integers(0, len(SOFTMAX.rstrip()) - 1))
@settings(max_examples=60)
def test_a_dump_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(UnrecognisedDump):
        bundles.parse(SOFTMAX[:length])


def test_files_are_found_by_op_the_schedule_with_latencies_first(tmp_path: Path) -> None:
    for name in (
        "7-f.1-05-final_bundles.txt",
        "7-f.10-01-packed-bundles-post-ra.txt",
        "7-f.1-00-schedule-analysis_packed-bundles-post-ra.txt",
    ):
        (tmp_path / name).write_text("")
    found = bundles.find_dump(tmp_path, "f.1")
    assert found is not None
    assert found.name == "7-f.1-05-final_bundles.txt"
    for stamp in (7, 10, 9):
        (tmp_path / f"{stamp}-f.1-01-packed-bundles-post-ra.txt.gz").write_bytes(b"")
    found = bundles.find_dump(tmp_path, "f.1")
    assert found is not None
    assert found.name == "10-f.1-01-packed-bundles-post-ra.txt.gz"
    assert bundles.find_dump(tmp_path, "f") is None
    assert bundles.find_slots(tmp_path, "f.1") is None


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(SOFTMAX.encode())[:500])
    (tmp_path / "b.txt.gz").write_bytes(b"not gzip")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe")
    for name in ("a.txt.gz", "b.txt.gz", "c.txt", "missing.txt"):
        with pytest.raises(UnrecognisedDump, match=f"{name}: expected readable text"):
            bundles.read(tmp_path / name)

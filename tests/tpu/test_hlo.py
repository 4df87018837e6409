"""HLO of XLA:TPU: timed ops, their cycles, loops, and texts that are no HLO."""

import gzip
from pathlib import Path

import pytest

from lab.tpu.hlo import ops as hlo
from lab.tpu.hlo.text import UnrecognisedHloError

PROGRAMS = Path(__file__).parent / "programs"


def text(case: str, name: str = "hlo") -> str:
    return gzip.decompress((PROGRAMS / case / f"{name}.txt.gz").read_bytes()).decode()


def test_ops_of_xla_attention_with_their_cost_model_and_what_is_fused_in() -> None:
    program = hlo.read(text("xla-attention"))
    found = {
        c.op.name: (c.count, c.op.cost_model_cycles, c.contains)
        for c in program.ops
        if not (c.op.starts_copy or c.op.ends_copy)
    }
    assert found == {
        "iota_compare_fusion": (1, 2429, ()),
        "select_reduce_fusion": (1, 6122, ("dot", "reduce")),
        "fusion.5": (1, 6278, ("dot",)),
    }
    assert program.problems == ()


def test_a_pallas_call_has_no_cost_model_and_a_profile_only_where_it_was_dumped() -> None:
    plain = {c.op.name: c.op for c in hlo.read(text("pallas-8row-softmax")).ops}
    profiled = {c.op.name: c.op for c in hlo.read(text("pallas-8row-softmax", "profile")).ops}
    call = plain["masked_softmax_rows.1"]
    assert call.is_pallas
    assert call.cost_model_cycles is None
    assert call.static_profile_cycles is None
    assert profiled["masked_softmax_rows.1"].static_profile_cycles == 93_820
    # The profile repeats figures in the text; those of the cost model must not change by it.
    fusion = "convert_bitcast_fusion"
    assert plain[fusion].cost_model_cycles == profiled[fusion].cost_model_cycles == 1857


def test_an_op_in_a_loop_of_constant_length_counts_as_often_as_it_runs() -> None:
    program = hlo.read(text("loop"))
    found = {c.op.name: c.count for c in program.ops if "copy-" not in c.op.opcode}
    assert found == {"copy.1": 1, "multiply_add_fusion.2": 7}
    assert program.problems == ()


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("s32[]{:T(128)} constant(7)", "s32[]{:T(128)} constant(12)", 12),
        ("s32[]{:T(128)} constant(7)", "s32[]{:T(128)} constant(0)", 0),
        ("direction=LT", "direction=GT", None),
        ("s32[]{:T(128)} constant(7)", "s32[]{:T(128)} negate(%wide.arg_tuple.3)", None),
    ],
)
def test_a_loop_that_is_not_a_matter_of_constants_is_a_problem(
    old: str, new: str, count: int | None
) -> None:
    original = text("loop")
    assert old in original
    program = hlo.read(original.replace(old, new))
    if count is None:
        assert "number of times that the program computes" in program.problems[0]
    else:
        assert {c.op.name: c.count for c in program.ops}["multiply_add_fusion.2"] == count


def test_results_in_vmem_are_no_hbm_bytes() -> None:
    (call,) = (c.op for c in hlo.read(text("pallas-8row-softmax")).ops if c.op.is_pallas)
    assert call.hbm_output_bytes == 8 * 128 * 128 * 4
    in_vmem = text("pallas-8row-softmax").replace(
        "f32[1,8,128,128]{3,2,1,0:T(8,128)} custom-call",
        "f32[1,8,128,128]{3,2,1,0:T(8,128)S(1)} custom-call",
    )
    (moved,) = (c.op for c in hlo.read(in_vmem).ops if c.op.is_pallas)
    assert moved.hbm_output_bytes == 0


@pytest.mark.parametrize("junk", ["", "HloModule nothing", "\x00\x01binary", "{}"])
def test_what_is_no_module_is_refused(junk: str) -> None:
    with pytest.raises(UnrecognisedHloError, match="no ENTRY"):
        hlo.read(junk)


def test_a_broken_backend_config_is_refused_with_the_op_s_name() -> None:
    broken = text("xla-attention").replace('backend_config={"flag', 'backend_config={"flag" oops ')
    with pytest.raises(UnrecognisedHloError, match=r"backend_config of .* is not JSON"):
        hlo.read(broken)

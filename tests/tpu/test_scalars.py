"""Words in scalar memory: literals of the program and declared arguments, by their tiling."""

from lab.tpu.hlo import ops

HLO = """HloModule m

ENTRY %main (n.1: s32[3]) -> f32[8,128] {{
  %n.1 = s32[3]{{0:T(128)}} parameter(0)
  %constant.5 = {type} constant({literal})
  %copy-start = ({type}, {type}, u32[]{{:S(2)}}) copy-start(%constant.5)
  %copy-done = {type} copy-done(%copy-start)
  ROOT %kernel.1 = f32[8,128]{{1,0:T(8,128)}} custom-call(%copy-done, %n.1), custom_call_target="tpu_custom_call"
}}
"""  # noqa: E501 - as the compiler writes it


def words(type_: str, literal: str, **declared: list[int]) -> dict[int, dict[int, int]]:
    text = HLO.format(type=type_, literal=literal)
    return next(c for c in ops.read(text, declared).ops if c.op.is_pallas).words


def test_bytes_are_packed_by_rows_as_splash_attention_s_mask_info_is() -> None:
    found = words("s8[1,2,2]{2,1,0:T(4,128)(4,1)}", "{ { { 1, 0 }, { 2, 1 } } }")
    assert found == {0: {0: 1 | 2 << 8, 1: 0 | 1 << 8}}


def test_a_second_tile_and_negative_words_have_their_places() -> None:
    rows = ", ".join("{ " + ", ".join(str(-r) for _ in range(2)) + " }" for r in range(9))
    found = words("s32[9,2]{1,0:T(8,128)}", "{ " + rows + " }")[0]
    assert (found[7 * 128], found[8 * 128 + 1]) == (-7, -8)


def test_an_argument_is_known_only_where_it_is_declared() -> None:
    type_, literal = "s32[2]{0:T(128)}", "{7, 9}"
    assert words(type_, literal) == {0: {0: 7, 1: 9}}
    assert words(type_, literal, n=[5, 0, 4]) == {0: {0: 7, 1: 9}, 1: {0: 5, 1: 0, 2: 4}}


def test_what_is_not_written_out_or_tiled_otherwise_is_not_known() -> None:
    assert words("s32[2]{0:T(128)}", "{...}") == {}
    assert words("s8[4,2]{1,0:T(8,128)(4,1)}", "{ {1,2},{3,4},{5,6} }") == {}
    assert words("s8[8]{0:T(512)(128)(4,1)}", "{1,2,3,4,5,6,7,8}") == {}

"""The executor on dumps of real kernels, against libtpu's own estimates and exact traffic."""

import gzip
import importlib.util
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.tpu.schedule import bundles
from lab.tpu.schedule.bundles import UnrecognisedDump
from lab.tpu.schedule.execute import NoEstimate, ScheduleEstimate, execute
from lab.tpu.schedule.timeline import Machine

V5E = Machine(clock_ghz=1.5, hbm_gb_s=819)
DUMPS = Path(__file__).parent / "dumps"
SOFTMAX = gzip.decompress(
    (DUMPS / "softmax-8row" / "1-softmax.1-01-packed-bundles-post-ra.txt.gz").read_bytes()
).decode()
KIB, MIB = 1 << 10, 1 << 20


def run(directory: Path, op: str) -> ScheduleEstimate | NoEstimate:
    path = bundles.find_dump(directory, op)
    assert path is not None
    return execute(bundles.read(path), V5E)


def estimate(directory: Path, op: str) -> ScheduleEstimate:
    result = run(directory, op)
    assert isinstance(result, ScheduleEstimate), result
    return result


@pytest.mark.parametrize(
    ("case", "op", "tolerance"),
    [
        ("flash-512-causal-2048", "flash_attention.1", 0.05),
        ("flash-512-full-2048", "flash_attention.1", 0.05),
        ("softmax-8row", "softmax.1", 0.05),
        ("xla-attention", "iota_compare_fusion", 0.05),  # 28 cycles: no copies
    ],
)
def test_agrees_with_the_static_profile(
    dumps: Path,
    profiles: dict[str, dict[str, int | None]],
    case: str,
    op: str,
    tolerance: float,
) -> None:
    assert estimate(dumps / case, op).cycles == pytest.approx(profiles[case][op], rel=tolerance)


@pytest.mark.parametrize(
    ("case", "op", "expected"),
    [
        # Blocks of 128 KiB. Full: 32 of q and of the output, 128 of k and of v.
        ("flash-512-full-2048", "flash_attention.1", (32 + 32 + 2 * 128) * 128 * KIB),
        # Causal: the same for q and output; of k and of v 9 blocks a head, for JAX's index map
        # goes back to block 0 where it skips: 0 | 0 1 0 | 0 1 2 0 | 0 1 2 3.
        ("flash-512-causal-2048", "flash_attention.1", (32 + 32 + 2 * 72) * 128 * KIB),
        ("softmax-8row", "softmax.1", 1024 * 128 * (2 + 4)),
        ("softmax-8row-v5p", "softmax.1", 1024 * 128 * (2 + 4)),
        # Every operand once.
        ("packed", "packed.1", (8 + 2 + 2 + 8) * 512 * 128 * 2),
        # What XLA keeps in VMEM between its fusions is not copied: q or k, and the output.
        ("xla-attention", "fusion.6", 8 * 128 * 128 * 2),
        ("xla-attention", "fusion.4", 8 * 128 * 128 * 2),
    ],
)
def test_moves_exactly_the_bytes_of_its_blocks(
    dumps: Path, case: str, op: str, expected: int
) -> None:
    assert estimate(dumps / case, op).dma_bytes == expected


def test_strided_copies_have_an_estimate_where_the_profile_has_none(
    dumps: Path, profiles: dict[str, dict[str, int | None]]
) -> None:
    assert profiles["packed"]["packed.1"] == 0  # libtpu's zero: no estimate
    result = estimate(dumps / "packed", "packed.1")
    # Two key heads, 8 query blocks of 64 x 4 rows; causal: 12 of 16 key blocks of 256.
    flops = 2 * 12 * 4 * (64 * 4) * 256 * 128
    peak_flops_a_cycle = 4 * 2 * 128 * 128
    assert flops / peak_flops_a_cycle < result.cycles < 20 * flops / peak_flops_a_cycle


def test_splash_has_no_estimate_and_the_reason_names_the_load(dumps: Path) -> None:
    result = run(dumps / "splash", "splash_mha_fwd_no_residuals.1")
    assert isinstance(result, NoEstimate)
    assert result.reason.startswith(
        "control flow depends on data: a value loaded from memory at bundle 0x"
    )
    assert estimate(dumps / "splash", "iota.1").cycles > 0


def test_the_last_pass_has_lost_the_latencies(dumps: Path) -> None:
    whole = bundles.find_dump(dumps / "softmax-8row", "softmax.1")
    assert whole is not None
    last = next(whole.parent.glob("*-final_bundles.txt.gz"))
    kept, lost = (execute(bundles.read(path), V5E) for path in (whole, last))
    assert isinstance(kept, ScheduleEstimate)
    assert isinstance(lost, ScheduleEstimate)
    assert (kept.latencies, lost.latencies) == (True, False)
    assert lost.bundles_executed < kept.bundles_executed / 3
    assert lost.dma_bytes == kept.dma_bytes
    assert lost.cycles < kept.cycles


@given(st.data())
@settings(max_examples=80)
def test_a_damaged_dump_is_refused_or_still_executes(data: st.DataObject) -> None:
    """Never another exception, never a hang."""
    lines = SOFTMAX.splitlines()
    kind = data.draw(st.sampled_from(["drop", "swap", "letter", "number"]))
    at = data.draw(st.integers(9, len(lines) - 1))
    if kind == "drop":
        del lines[at]
    elif kind == "swap":
        other = data.draw(st.integers(9, len(lines) - 1))
        lines[at], lines[other] = lines[other], lines[at]
    elif lines[at]:
        place = data.draw(st.integers(0, len(lines[at]) - 1))
        letter = data.draw(st.sampled_from("0123456789" if kind == "number" else "{}[]();%,ps/*!"))
        lines[at] = lines[at][:place] + letter + lines[at][place + 1 :]
    try:
        result = execute(bundles.parse("\n".join(lines)), V5E)
    except UnrecognisedDump:
        return
    assert isinstance(result, ScheduleEstimate | NoEstimate)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]")
@pytest.mark.parametrize("length", [2048, 4096])
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("block", [512, 1024])
def test_flash_attention_compiled_now_agrees_with_the_static_profile(
    tmp_path: Path, block: int, mask: str, length: int
) -> None:
    dump = runpy.run_path(str(DUMPS.parent / "make_fixtures.py"))["dump"]
    (op, profile), *rest = dump(f"flash-{block}-{mask}-{length}", tmp_path).items()
    assert not rest
    assert profile is not None
    assert estimate(tmp_path, op).cycles == pytest.approx(profile, rel=0.2)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]")
def test_splash_and_packed_compiled_now(tmp_path: Path) -> None:
    dump = runpy.run_path(str(DUMPS.parent / "make_fixtures.py"))["dump"]
    dump("splash", tmp_path / "splash")
    assert isinstance(run(tmp_path / "splash", "splash_mha_fwd_no_residuals.1"), NoEstimate)
    assert dump("packed", tmp_path / "packed") == {"packed.1": 0}
    assert estimate(tmp_path / "packed", "packed.1").cycles > 0

"""task=compile: a few real compiles, and everything that can go wrong around them."""

import errno
import gzip
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import samples

from lab import records, tasks
from lab.cells.cell import Cell
from lab.command import runs
from lab.errors import UnsupportedCell, UserError
from lab.records import CompileSection, Result
from lab.tasks import compile as task
from lab.tpu.chips import VALIDATED_LIBTPU
from lab.worker import WorkerCrashed, WorkerFailed

real = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs the TPU compiler: pip install '.[tpu]'",
)
# Figures and dumps of one compiler; another makes other programs, and its estimates say so.
validated = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None
    or not importlib.metadata.version("libtpu").startswith(VALIDATED_LIBTPU),
    reason=f"figures of libtpu {VALIDATED_LIBTPU}*",
)
PROGRAM = Path(__file__).parent.parent / "tpu" / "programs" / "pallas-8row-softmax"
ABORT = "F1130 16:59:32.136780    6874 llo_dumper.cc:66] Check failed: it cannot be dumped\n"


def cell(*overrides: str) -> Cell:
    return samples.cell("task=compile", *overrides)


def custom(function: str, *overrides: str) -> Cell:
    path = Path(__file__).with_name("refused.py")
    given = ("candidate=custom", f"candidate.path={path}", f"candidate.function={function}")
    return cell(*given, "compile.prove=false", *overrides)


@real
def test_a_pallas_cell_is_compiled_and_estimated_and_its_files_are_kept(tmp_path: Path) -> None:
    asked = ("kernel=pallas-8row", "scope=softmax", "seq=128", "compile.profile=true")
    result = runs.run(cell(*asked, "compile.keep_dumps=true"), tmp_path)
    assert (result.status, result.evidence) == ("done", "estimated")
    found = result.compile
    assert found is not None
    assert found.floor_ms < float(found.estimated_ms or 0) < 1
    (call,) = found.boundary.pallas_calls
    assert (call.dots, call.reductions, found.boundary.xla.dots) == (0, 2, 0)
    (op,) = [op for op in found.ops if op.kind == "pallas"]
    assert op.source == "schedule"
    assert op.schedule_cycles == pytest.approx(op.static_profile_cycles, rel=0.2)
    assert found.memory.argument_bytes == 8 * 128 * 128 * 2 + 128 * 128
    assert found.memory.output_bytes == 8 * 128 * 128 * 4
    assert 0 < found.vmem.used_bytes < found.vmem.limit_bytes == 2**24
    assert found.loops[0].op == op.name
    assert found.values_proved
    assert found.proof is not None
    assert found.proof.rows == found.proof.of_rows == 8 * 128
    assert any(op.name in path.name for path in (tmp_path / str(found.files.dumps)).iterdir())
    assert "tpu_custom_call" in (tmp_path / found.files.stablehlo).read_text()
    hlo = (tmp_path / found.files.hlo).read_text()
    assert hlo.startswith("HloModule")
    assert str(Path.cwd()) not in hlo
    assert "Estimated device time" in (tmp_path / task.SUMMARY_FILE).read_text()


@real
@pytest.mark.parametrize(
    ("function", "overrides", "words"),
    [
        ("large_block", ("seq=32768",), ("VMEM overflow", "64.00 MiB", "limit is 16.00 MiB")),
        ("half_precision", (), ("dtype f16", "bfloat16")),
        ("odd_block", (), ("block shape", "12", "(8, 128)")),
        ("interpreted", (), ("interpret mode", "interpret=False")),
        ("gathered", (), ("gather", "one-hot", "in kernel: o_ref[...] = jnp.take(", "by an array")),
        ("unaligned", (), ("pl.multiple_of(start, 128)", "in kernel: o_ref[:, :64]", "from any")),
        ("halved", (), ("dtype f16", "bfloat16", "in kernel: half = ", "inside the kernel")),
    ],
)
def test_refusals_are_results_with_their_reason(
    function: str, overrides: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    result = runs.run(custom(function, *overrides), tmp_path)
    assert result.status == "unsupported"
    assert result.compile is None
    for word in words:
        assert word in str(result.reason)
    if function in ("odd_block", "gathered", "unaligned", "halved"):
        assert re.search(r"\(refused\.py:\d+, in \w+: ", str(result.reason))
    if function != "interpreted":
        assert len((tmp_path / task.ERROR_FILE).read_text()) > 200


@real
def test_less_than_the_work_is_no_small_number(tmp_path: Path) -> None:
    found = runs.run(custom("too_little_work", "seq=2048"), tmp_path)
    assert (found.status, found.evidence) == ("done", "compiled")
    assert found.compile is not None
    assert found.compile.estimated_ms is None
    assert "FLOP at the most" in str(found.compile.no_estimate)


@pytest.mark.parametrize(
    ("function", "estimated"), [("half_the_keys_on_a_tpu", True), ("one_block_on_a_tpu", False)]
)
def test_less_work_where_it_is_compiled_than_where_it_is_checked_shows(
    function: str, estimated: bool, tmp_path: Path
) -> None:
    """Both are right wherever a grader runs them, and skip keys on a TPU from 1024 on."""
    asked = custom(function, "seq=1024", "shape.kv_heads=8", "compile.prove=true")
    found = runs.run(asked, tmp_path).compile
    assert found is not None
    assert found.values_proved is False
    assert (found.estimated_ms is not None) == estimated
    assert estimated or "FLOP at the most" in str(found.no_estimate)


@real
def test_a_plain_function_is_compiled_and_explained(tmp_path: Path) -> None:
    result = runs.run(
        custom(
            "matmul",
            "candidate.contract=function",
            "candidate.arguments={a:[bfloat16,512,1024],b:[bfloat16,1024,512]}",
            "candidate.options={block:256}",
        ),
        tmp_path,
    )
    found = result.compile
    assert found is not None
    assert found.work.flops == 2 * 512 * 1024 * 512
    assert found.work.hbm_bytes == 2 * (512 * 1024 + 1024 * 512 + 512 * 512)
    assert found.boundary.pallas_calls[0].grid == [2, 2, 4]
    assert found.floor_ms < float(found.estimated_ms or 0)
    assert found.values_proved is None
    assert found.loops[0].bound_by
    assert "TFLOP/s" in (tmp_path / task.SUMMARY_FILE).read_text()


@validated
def test_splash_attention_runs_by_the_literals_in_scalar_memory(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "evidence" / "tpu-v5e-compiled" / "kernels.py"
    given = (f"candidate.path={path}", "candidate.function=splash", "shape.kv_heads=8", "seq=2048")
    found = runs.run(cell("candidate=custom", *given, "compile.prove=false"), tmp_path).compile
    assert found is not None
    (op,) = [op for op in found.ops if op.kind == "pallas"]
    assert op.schedule_cycles == pytest.approx(145_643, rel=0.05)
    assert found.label is None


@validated
@pytest.mark.parametrize(("scalars", "estimated"), [("null", False), ("{lengths:[5]}", True)])
def test_scalars_that_are_arguments_must_be_declared_and_label_the_estimate(
    scalars: str, estimated: bool, tmp_path: Path
) -> None:
    found = runs.run(
        custom(
            "ragged_sum",
            "candidate.contract=function",
            "candidate.arguments={lengths:[int32,1],x:[float32,512,128]}",
            f"compile.scalars={scalars}",
        ),
        tmp_path,
    ).compile
    assert found is not None
    assert (found.estimated_ms is not None) == estimated
    if estimated:
        assert found.scalars == {"lengths": [5]}
        assert found.label == "for the declared scalars of lengths"
    else:
        assert "control flow depends on data" in str(found.no_estimate)


@real
def test_a_mistake_in_a_candidate_is_a_failure_and_not_a_refusal(tmp_path: Path) -> None:
    result = runs.run(custom("mistaken"), tmp_path)
    assert result.status == "failed"
    assert re.search(r"no_such_name.* \(refused\.py, line \d+\)$", str(result.reason))


@pytest.mark.slow
@real
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("scope", ["softmax", "attention"])
@pytest.mark.parametrize("kernel", ["xla", "pallas"])
@pytest.mark.parametrize("target", ["v5e", "v5p", "v6e", "v4", "tpu7x"])
def test_every_kernel_scope_direction_and_target(
    target: str, kernel: str, scope: str, direction: str, tmp_path: Path
) -> None:
    asked = (f"target={target}", f"kernel={kernel}", f"scope={scope}", f"direction={direction}")
    result = runs.run(cell(*asked, "seq=256"), tmp_path)
    found = result.compile
    assert result.status == "done"
    assert found is not None
    assert found.label == (None if target == "v5e" else "estimates not validated")
    if target in ("v6e", "tpu7x"):
        assert found.estimated_ms is None
        assert found.no_estimate


def test_without_libtpu_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, find = cell(), importlib.util.find_spec
    monkeypatch.setattr(
        task.importlib.util, "find_spec", lambda name: None if name == "libtpu" else find(name)
    )
    with pytest.raises(UserError, match=r"pip install '\.\[tpu\]'"):
        tasks.preflight(asked)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Workers replaced by a checked-in program; `behaviour` may make them fail."""
    behaviour: dict[str, Any] = {"crash": [], "calls": []}
    answer = {
        "device_kind": "TPU v5 lite",
        "attached": False,
        "versions": {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"},
        "boundary": {
            "pallas_calls": [{"name": "k", "grid": [128], "dots": 0, "reductions": 2}],
            "xla": {"dots": 0, "reductions": 0},
        },
        "memory": dict.fromkeys(
            ("argument_bytes", "output_bytes", "temporary_bytes", "code_bytes"), 1
        ),
        "seconds": {"compile_s": 1.0},
        "fingerprint": "a program",
    }
    behaviour["proof"] = {"proved": True, "reason": None, "fingerprint": "a program"}

    def call(target: str, given: dict[str, Any], kind: Any, **options: Any) -> Any:
        behaviour["calls"].append((target, options["env"]))
        if target.endswith("prove_cell"):
            if isinstance(behaviour["proof"], Exception):
                raise behaviour["proof"]
            return kind(**behaviour["proof"])
        directory = given["directory"]
        profile = target.endswith("profile_cell")
        if not profile and behaviour["crash"]:
            raise behaviour["crash"].pop(0)
        if profile and "profile" in behaviour:
            raise behaviour["profile"]
        source = "profile" if profile else "hlo"
        text = gzip.decompress((PROGRAM / f"{source}.txt.gz").read_bytes())
        (directory / task.HLO_FILE).write_bytes(text)
        if profile:
            return ""
        (directory / task.STABLEHLO_FILE).write_text("module")
        if "dump" in options["env"]["LIBTPU_INIT_ARGS"]:
            for path in (PROGRAM / "dump").iterdir():
                (directory / "dump" / path.name).write_bytes(path.read_bytes())
        return kind.model_validate(answer)

    behaviour["answer"] = answer
    monkeypatch.setattr(task.compiler.worker, "call", call)
    monkeypatch.setattr(task.compiler.chips, "attached", lambda: False)
    return behaviour


def compiled(tmp_path: Path, *overrides: str) -> CompileSection:
    asked = ("kernel=pallas-8row", "scope=softmax", "seq=128", *overrides)
    section = task.run(cell(*asked), tmp_path).section
    assert isinstance(section, CompileSection)
    return section


def test_both_sources_come_together_in_one_record(compiler: dict[str, Any], tmp_path: Path) -> None:
    found = compiled(tmp_path, "compile.profile=true")
    assert found.estimated_ms == pytest.approx(0.057, abs=1e-3)
    (op,) = [op for op in found.ops if op.kind == "pallas"]
    assert (op.source, op.static_profile_cycles) == ("schedule", 93_820)
    for _, environment in compiler["calls"]:
        assert environment["TPU_SKIP_MDS_QUERY"] == "1"
        assert environment["JAX_PLATFORMS"] == "cpu"
        assert environment["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_a_source_below_the_floor_is_said_to_be_no_time(
    compiler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor = task.roofline.Floor(0.0600, "memory", 0)  # the profile has 0.0633, the schedule 0.057
    monkeypatch.setattr(task.roofline, "floor", lambda *_: floor)
    found = compiled(tmp_path, "compile.profile=true")
    assert next(w for w in found.warnings if "below the floor" in w).startswith("the schedule's")
    assert not any("static profile's" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("libtpu", "label"), [("0.0.42.1", None), ("0.0.50.1", "estimates not validated")]
)
def test_times_by_another_compiler_than_the_validated_one_are_labelled(
    compiler: dict[str, Any], tmp_path: Path, libtpu: str, label: str | None
) -> None:
    compiler["answer"]["versions"]["libtpu"] = libtpu
    found = compiled(tmp_path)
    assert (found.label, found.validated) == (label, label is None)
    assert any("do not quote the time" in w for w in found.warnings) == (label is not None)


def test_short_steps_are_warned_of(compiler: dict[str, Any], tmp_path: Path) -> None:
    found = compiled(tmp_path)
    assert any("trips around copies, of 6" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("proof", "proved", "words"),
    [
        ({"proved": True, "reason": None, "fingerprint": "a program"}, True, None),
        (
            {"proved": False, "reason": "out is off", "fingerprint": "a program"},
            False,
            "out is off",
        ),
        ({"proved": True, "reason": None, "fingerprint": "another"}, None, "it is two programs"),
        (WorkerCrashed("killed by SIGXCPU", ""), None, "compile.prove_cpu_s=40"),
        (WorkerFailed("ValueError", "no such thing", ""), None, "ValueError: no such thing"),
    ],
)
def test_what_the_proof_came_to_stands_in_the_record(
    compiler: dict[str, Any], tmp_path: Path, proof: Any, proved: bool | None, words: str | None
) -> None:
    compiler["proof"] = proof
    found = compiled(tmp_path)
    assert found.estimated_ms is not None
    assert found.values_proved is proved
    assert (
        any(words in w for w in found.warnings)
        if words
        else not any("proved" in w for w in found.warnings)
    )


def test_a_profile_that_fails_costs_the_cross_check_alone(
    compiler: dict[str, Any], tmp_path: Path
) -> None:
    compiler["profile"] = WorkerCrashed("the worker process was killed by SIGXCPU", "")
    found = compiled(tmp_path, "compile.profile=true")
    assert found.estimated_ms is not None
    assert found.static_profile_ms is None
    assert "too much CPU time" in found.warnings[0]


def test_a_compiler_that_dies_of_its_dump_compiles_again_without(
    compiler: dict[str, Any], tmp_path: Path
) -> None:
    compiler["crash"] = [WorkerCrashed("killed by SIGABRT", ABORT)]
    found = compiled(tmp_path, "compile.profile=true")
    assert any("ended itself while it wrote the schedule" in w for w in found.warnings)
    (op,) = [op for op in found.ops if op.kind == "pallas"]
    assert op.source == "static_profile"


def test_a_compiler_that_dies_of_the_program_is_a_refusal(
    compiler: dict[str, Any], tmp_path: Path
) -> None:
    compiler["crash"] = [WorkerCrashed("killed by SIGABRT", ABORT) for _ in range(2)]
    with pytest.raises(UnsupportedCell, match=r"ends itself on this program: llo_dumper\.cc:66"):
        compiled(tmp_path)
    assert "Check failed" in (tmp_path / task.ERROR_FILE).read_text()


def test_a_killed_compiler_is_a_failed_cell_without_a_section(
    compiler: dict[str, Any], tmp_path: Path
) -> None:
    compiler["crash"] = [WorkerCrashed("the worker process was killed by SIGKILL", "")]
    result = runs.run(cell("kernel=pallas-8row", "scope=softmax", "seq=128"), tmp_path)
    assert (result.status, result.compile) == ("failed", None)
    assert "SIGKILL" in str(result.reason)
    assert not (tmp_path / "hlo.txt").exists()


@pytest.mark.parametrize("text", ["", "not HLO at all"])
def test_corrupt_hlo_compiles_but_gives_no_estimate(
    compiler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    fake = task.compiler.worker.call

    def corrupt(target: str, given: dict[str, Any], kind: Any, **options: Any) -> Any:
        answer = fake(target, given, kind, **options)
        if "directory" in given:
            (given["directory"] / task.HLO_FILE).write_text(text)
        return kind.model_validate(answer)

    monkeypatch.setattr(task.compiler.worker, "call", corrupt)
    found = compiled(tmp_path)
    assert found.estimated_ms is None
    assert "no ENTRY" in str(found.no_estimate)


def test_a_temporary_directory_without_room_is_one_clear_error(
    compiler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task.compiler.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(UserError, match=r"1 MiB free.*set TMPDIR"):
        compiled(tmp_path)
    assert compiler["calls"] == []


def test_a_disk_that_fills_up_leaves_no_half_written_text(
    compiler: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.parent == tmp_path:
            whole(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    result = runs.run(cell("kernel=pallas-8row", "scope=softmax", "seq=128"), tmp_path)
    assert (result.status, result.compile) == ("failed", None)
    assert "No space left" in str(result.reason)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"status.json", "result.json", "error.txt"}


def test_large_texts_are_compressed_and_small_ones_are_not(tmp_path: Path) -> None:
    assert task._keep(tmp_path, "hlo.txt", "small") == "hlo.txt"
    large = "x" * (task.COMPRESS_ABOVE_BYTES + 1)
    assert task._keep(tmp_path, "hlo.txt", large) == "hlo.txt.gz"
    assert gzip.decompress((tmp_path / "hlo.txt.gz").read_bytes()).decode() == large


def test_the_record_is_read_back_as_it_was_written(
    compiler: dict[str, Any], tmp_path: Path
) -> None:
    made = runs.run(cell("kernel=pallas-8row", "scope=softmax", "seq=128"), tmp_path)
    assert records.read(tmp_path / "result.json", Result) == made
    data = json.loads((tmp_path / "result.json").read_text())
    data["compile"]["estimated_ms"] = data["compile"]["floor_ms"] / 2
    (tmp_path / "result.json").write_text(json.dumps(data))
    with pytest.raises(records.InvalidRecord, match="below the floor"):
        records.read(tmp_path / "result.json", Result)


def test_a_killed_worker_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real child, killed as a user or the kernel would kill it."""
    original = task.compiler.worker.subprocess.Popen

    def killed(*arguments: Any, **options: Any) -> Any:
        process = original(*arguments, **options)
        os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(task.compiler.worker.subprocess, "Popen", killed)
    with pytest.raises(WorkerCrashed, match="SIGKILL"):
        task.run(cell("kernel=xla", "seq=128"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"worker.log"}

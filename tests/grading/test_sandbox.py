"""One clear verdict for every way in which a stranger's file can go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from lab.cells.config import Supports
from lab.grading.executor import Answer, Call
from lab.grading.sandbox.executor import Sandbox
from lab.grading.sandbox.process import Child, Limits, Stopped, _family

EXPLOITS = Path(__file__).parent / "exploits"


def call(
    head_dim: int = 32,
    *,
    q_len: int = 24,
    kv_len: int = 40,
    masked: bool = False,
    gradients: bool = False,
    seed: int = 0,
) -> Call:
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return generator.standard_normal(shape).astype(ml_dtypes.bfloat16)

    q, k, v = (normal(1, h, t, head_dim) for h, t in ((2, q_len), (1, kv_len), (1, kv_len)))
    mask = np.arange(kv_len)[None] < kv_len - 3 if masked else None
    return Call(q, k, v, mask, True, None, normal(*q.shape) if gradients else None)


def run(
    path: Path, calls: list[Call] | None = None, **options: Any
) -> tuple[list[Answer], Sandbox]:
    with Sandbox(path, options.pop("function", "attention"), **options) as sandbox:
        answers = sandbox.run(calls or [call()])
    assert set(_family(os.getpid())) == {os.getpid()}, "a process was left behind"
    return answers, sandbox


def rejection(tmp_path: Path, text: str, **options: Any) -> str:
    path = tmp_path / "stranger.py"
    path.write_text(text)
    answers, sandbox = run(path, **options)
    assert sandbox.rejection is not None
    assert "\n" not in sandbox.rejection
    assert [(a.kind, a.detail) for a in answers] == [("error", sandbox.rejection)]
    return sandbox.rejection


def test_contract_violations_each_have_their_own_words(tmp_path: Path) -> None:
    """One file that fails in another way for every head width: one start for all of them."""
    (tmp_path / "stranger.py").write_text(
        """
import jax.numpy as jnp
import numpy as np
from plain_attention import attend


class UnsupportedCell(Exception):
    pass


def attention(q, k, v, *, causal, key_mask, scale):
    out = attend(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    width = q.shape[-1]
    if width == 8:
        raise ValueError("no such width")
    if width == 16:
        raise NotImplementedError("width 16 is not built yet")
    if width == 24:
        raise UnsupportedCell("width 24 is refused")
    return {
        32: out, 40: out[:, :, 1:], 48: out.astype(jnp.float32), 56: None, 64: (out, out),
        72: [out], 80: np.zeros(q.shape, q.dtype), 88: 3.0, 96: {"out": out},
    }[width]
"""
    )
    (tmp_path / "plain_attention.py").write_text((EXPLOITS / "plain_attention.py").read_text())
    widths = range(8, 97, 8)
    answers, sandbox = run(tmp_path / "stranger.py", [call(width) for width in widths])
    assert sandbox.rejection is None
    said = {width: (a.kind, a.detail) for width, a in zip(widths, answers, strict=True)}
    assert said == {
        8: ("error", "raises ValueError: no such width (stranger.py, line 15)"),
        16: ("unsupported", "width 16 is not built yet"),
        24: ("unsupported", "width 24 is refused"),
        32: ("ok", ""),
        40: ("error", "returns shape [1, 2, 23, 40], expected [1, 2, 24, 40]"),
        48: ("error", "returns dtype float32, expected bfloat16"),
        56: ("error", "returns None, not an array"),
        64: ("error", "returns a tuple, not one jax.Array"),
        72: ("error", "returns a list, not one jax.Array"),
        80: ("error", "returns a numpy.ndarray, not one jax.Array"),
        88: ("error", "returns a float, not one jax.Array"),
        96: ("error", "returns a dict, not one jax.Array"),
    }


def test_a_missing_file(tmp_path: Path) -> None:
    answers, sandbox = run(tmp_path / "nowhere.py")
    assert sandbox.rejection == f"there is no file {tmp_path / 'nowhere.py'}"
    assert answers[0].kind == "error"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def attention(:\n", "syntax error in stranger.py, line 1: "),
        ("def attend(q): return q\n", "stranger.py has no function 'attention': it defines attend"),
        ("attention = 1\n", "'attention' in stranger.py is not a function but of type int"),
        ("def attention(q, k, v): return q\n", "attention(q, k, v) has another signature: "),
        ("1 / 0\n", "stranger.py raises while it is imported: ZeroDivisionError"),
        ("import sys\nsys.exit(0)\n", "stranger.py raises while it is imported: SystemExit: 0"),
        ("import no_such_module\n", "stranger.py raises while it is imported: ModuleNotFoundError"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, reason: str) -> None:
    assert rejection(tmp_path, text).startswith(reason)


@pytest.mark.slow
def test_gradients_that_are_not_there(tmp_path: Path) -> None:
    text = """
import jax
from plain_attention import attend

@jax.custom_vjp
def forward_only(q, k, v):
    return attend(q, k, v, causal=True, key_mask=None, scale=None)

def refuse(*_):
    raise ValueError("no backward here")

forward_only.defvjp(refuse, refuse)

def attention(q, k, v, *, causal, key_mask, scale):
    return forward_only(q, k, v)
"""
    (tmp_path / "plain_attention.py").write_text((EXPLOITS / "plain_attention.py").read_text())
    (tmp_path / "stranger.py").write_text(text)
    wanted = [call(gradients=True)]

    ((answer,), sandbox) = run(tmp_path / "stranger.py", wanted, backward="auto")
    assert sandbox.rejection is None
    assert answer.kind == "ok"
    assert answer.dq is None
    assert answer.backward_error == "raises ValueError: no backward here (stranger.py, line 10)"

    ((answer,), sandbox) = run(tmp_path / "stranger.py", wanted, backward="none")
    assert answer.kind == "ok"
    assert answer.backward_error == "not offered (candidate.backward=none)"

    _, sandbox = run(tmp_path / "stranger.py", wanted, backward="required")
    assert (sandbox.rejection or "").startswith(
        "has no backward (candidate.backward=required): raises ValueError"
    )


def test_an_honest_file_is_answered_and_its_surroundings_are_bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, gradients, repeats, coverage, printing, environment, disk: one start for all."""
    monkeypatch.setenv("LAB_TEST_TOKEN", "very secret")
    (tmp_path / "plain_attention.py").write_text((EXPLOITS / "plain_attention.py").read_text())
    lab = Path(__file__).parents[2] / "lab"
    (tmp_path / "stranger.py").write_text(
        f"""
import os
import tempfile

import jax
from plain_attention import attend

values_seen = 0
print("environment", sorted(os.environ))
print("home is cwd is tmp", os.environ["HOME"] == os.getcwd() == tempfile.gettempdir())
print("lab holds", os.listdir({str(lab)!r}))
open("scratch.txt", "w").write("may be written")


def attention(q, k, v, *, causal, key_mask, scale):
    global values_seen
    values_seen += not isinstance(q, jax.core.Tracer)
    print("calls with values", values_seen)
    return attend(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
"""
    )
    calls = [
        call(gradients=True, seed=1),
        call(gradients=True, seed=2),
        call(gradients=True, seed=1),
        call(masked=True),
        call(head_dim=80),
    ]
    before = [c.q.tobytes() for c in calls]
    supports = Supports(head_dims=[32])
    answers, sandbox = run(tmp_path / "stranger.py", calls, supports=supports)
    report = sandbox.report
    assert sandbox.rejection is None
    assert [a.kind for a in answers] == ["ok", "ok", "ok", "ok", "unsupported"]
    assert [c.q.tobytes() for c in calls] == before
    first, second, repeat = answers[:3]
    for name in ("out", "dq", "dk", "dv"):
        got = getattr(first, name)
        assert got.dtype == np.dtype("bfloat16")
        assert got.tobytes() == getattr(repeat, name).tobytes()
        assert got.tobytes() != getattr(second, name).tobytes()
    assert first.dk.shape == calls[0].k.shape
    assert answers[3].dq is None

    log = report.log_tail
    assert "home is cwd is tmp True" in log
    assert "TOKEN" not in log
    # Only the calls in place had values, two of them, and none that is graded.
    assert report.in_place_calls == 3
    assert log.rstrip().endswith("calls with values 3")
    if report.namespaces:
        assert "lab holds []" in log
    assert set(report.execution.values()) == {"isolated"}
    assert len(report.programs) == 2
    assert all(dot["inside"] is None for dot in report.forward_dots)
    assert 0 < report.peak_bytes < 4 << 30
    assert report.to_json()["rejection"] is None


@pytest.mark.slow
def test_a_kernel_that_only_tpu_interpret_mode_can_run_is_run_in_place(tmp_path: Path) -> None:
    (tmp_path / "plain_attention.py").write_text((EXPLOITS / "plain_attention.py").read_text())
    (tmp_path / "stranger.py").write_text(
        """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from plain_attention import attend

def kernel(in_ref, out_ref):
    pltpu.prng_seed(0)
    bits = pltpu.prng_random_bits(in_ref.shape)
    out_ref[...] = in_ref[...] + 0 * bits.astype(in_ref.dtype)

def attention(q, k, v, *, causal, key_mask, scale):
    out = attend(q, k, v, causal=causal, key_mask=key_mask, scale=scale)
    return pl.pallas_call(kernel, jax.ShapeDtypeStruct(q.shape, q.dtype))(out)
"""
    )
    answers, sandbox = run(tmp_path / "stranger.py", [call(), call(seed=1)])
    assert sandbox.rejection is None
    assert [a.kind for a in answers] == ["ok", "ok"]
    assert set(sandbox.report.execution.values()) == {"in place"}
    assert "prng_seed" in sandbox.report.notes[0]
    plain, _ = run(EXPLOITS / "honest_plain.py", [call(), call(seed=1)])
    for one, other in zip(answers, plain, strict=True):
        np.testing.assert_allclose(
            one.out.astype(np.float32), other.out.astype(np.float32), atol=0.02
        )


def test_a_file_inside_the_lab_is_sent_elsewhere() -> None:
    path = Path(__file__).parents[2] / "lab" / "kernels" / "xla.py"
    _, sandbox = run(path)
    assert "lies in the lab's own package: move it elsewhere" in (sandbox.rejection or "")


def test_limits_say_what_was_exceeded(tmp_path: Path) -> None:
    """The parent's side alone: a child that never answers, for want of a request."""
    child = Child("it ", Limits())
    with pytest.raises(Stopped, match=r"^it did not finish waiting within 0.1 s$"):
        child.ask({"op": "start", "role": "nobody"}, seconds=0.1, doing="waiting")
    assert not child.scratch.exists()
    child.close()
    child = Child("it ", Limits(memory_bytes=1 << 20))
    with pytest.raises(Stopped, match=r"^it used more than 1 MiB of memory while starting$"):
        child.ask({"op": "start", "role": "tracer"}, seconds=60, doing="starting")
    child = Child("it ", Limits(output_bytes=10))
    with pytest.raises(Stopped, match=r"^it exited with code 1 while asked nonsense"):
        child.ask({"op": "nonsense"}, seconds=60, doing="asked nonsense")
    assert "KeyError" in child.log_tail()
    assert set(_family(os.getpid())) == {os.getpid()}


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to kill a child with its parent")
def test_children_do_not_outlive_a_judge_that_is_killed() -> None:
    program = """
import time
from lab.grading.sandbox.process import Child, Limits
child = Child("", Limits())
child.ask({"op": "start", "role": "tracer"}, seconds=60, doing="starting")
print("ready", flush=True)
time.sleep(600)
"""
    judge = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert judge.stdout is not None
    assert judge.stdout.readline() == "ready\n"
    children = set(_family(judge.pid)) - {judge.pid}
    assert children
    judge.kill()
    judge.wait()
    judge.stdout.close()
    patience = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < patience
        time.sleep(0.05)

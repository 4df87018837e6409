"""The documented template of a kernel runs, and what a new kernel may lack has a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest
import samples
from documents import ROOT, blocks

from lab import programs
from lab.errors import UnsupportedCell
from lab.grading.correctness import run_checks
from lab.kernels import options
from lab.records import CorrectnessSection

DECLARATION, TEMPLATE = blocks(ROOT / "docs/adding_a_kernel.md", "python")
TINY = ("kernel=whole", "task=correctness", "shape=tiny", "seq=24")


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template as a module and its declaration in the registry, as the page says."""
    path = tmp_path / "whole_kernel.py"
    path.write_text(TEMPLATE)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {**vars(options), "KERNELS": {}}
    exec(DECLARATION.replace("lab.kernels.whole", "whole_kernel"), names)
    monkeypatch.setitem(options.KERNELS, "whole", names["KERNELS"]["whole"])
    options.register()
    return path


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_the_template_passes_every_check(whole: Path, dtype: str) -> None:
    outcome = run_checks(samples.cell(*TINY, f"dtype={dtype}"))
    assert outcome.interpret
    assert isinstance(outcome.section, CorrectnessSection)
    assert [check.name for check in outcome.section.checks if not check.passed] == []
    assert len(outcome.section.checks) > 10


def test_a_fused_kernel_is_unsupported_in_the_softmax_scope(whole: Path) -> None:
    with pytest.raises(UnsupportedCell, match=r"whole is a fused attention.*scope=attention"):
        run_checks(samples.cell(*TINY, "scope=softmax"))


def test_a_forward_only_kernel_is_told_that_it_has_no_gradients(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whole_kernel  # type: ignore[import-not-found]

    monkeypatch.setattr(whole_kernel.jax, "custom_vjp", _undifferentiated)
    forward = programs.build(samples.cell(*TINY), interpret=True)
    jax.make_jaxpr(forward.function)(*forward.inputs.values())
    with pytest.raises(UnsupportedCell, match=r"it has no gradients.*jax\.custom_vjp.*forward"):
        run_checks(samples.cell(*TINY))


def _undifferentiated(function: Any) -> Any:
    """Stands in for custom_vjp: the rule is dropped."""

    def call(*arrays: Any) -> Any:
        return function(*arrays)

    call.defvjp = lambda *_: None  # type: ignore[attr-defined]
    return call

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import Field, model_validator

from lab import kernels
from lab.errors import UnsupportedCell, UserError
from lab.kernels import options
from lab.truth.problems import POLICIES, DtypePolicy

NAMES = sorted(options.KERNELS)
needs_tokamax = pytest.mark.skipif(
    importlib.util.find_spec("tokamax") is None,
    reason="kernel=tokamax needs its package: pip install 'attention-lab[tokamax]'",
)
LOADABLE = [pytest.param(n, marks=needs_tokamax) if n == "tokamax" else n for n in NAMES]


def configuration(name: str, **changes: object) -> dict[str, Any]:
    return options.configuration(name) | changes


def test_registry_imports_no_jax() -> None:
    code = "import sys, lab.kernels; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", LOADABLE)
def test_defaults_are_allowed_and_load(name: str) -> None:
    config = configuration(name)
    assert config["name"] == name
    kernel = kernels.load(config, policy=POLICIES["bf16"], interpret=True)
    assert kernel.name == name


def test_options_are_returned_without_the_registry_keys() -> None:
    assert options.check(configuration("pallas")) == options.RowBlocks()
    assert options.check(configuration("pallas", block_rows=64)) == options.RowBlocks(block_rows=64)
    assert options.check(configuration("xla")) == options.Options()


@pytest.mark.parametrize("rows", [12, 0, -8, 8.0, True, "8", "all", None, [8]])
def test_block_rows_must_be_auto_or_whole_tiles(rows: object) -> None:
    with pytest.raises(UserError) as error:
        options.check(configuration("pallas", block_rows=rows))
    assert str(error.value) == (
        f"kernel pallas: kernel.block_rows is {rows!r}; "
        "allowed: auto; or integer, >= 8, a multiple of 8"
    )


@pytest.mark.parametrize("rows", [16, "auto", True])
def test_the_published_kernel_has_one_block_size(rows: object) -> None:
    with pytest.raises(UserError, match=r"kernel\.block_rows is .*; allowed: 8$"):
        options.check(configuration("pallas-8row", block_rows=rows))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_rows": 8}, "kernel xla has no option 'block_rows'; its options: none"),
        ({"module": "os"}, "kernel.name=xla is in lab.kernels.xla, and kernel.module is os; "),
        ({"name": "nosuch"}, "kernel.name=nosuch: there is no such kernel; choose one by kernel="),
        ({"module": None}, "needs `name` and `module`"),
    ],
)
def test_a_bad_configuration_is_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        options.check(configuration("xla") | changes)


class Several(options.Options):
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    fused: bool = True
    order: Literal["rows", "columns"] = "rows"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.fused and self.order == "columns":
            raise ValueError("kernel.order=columns needs kernel.fused=false")
        return self


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 1.5}, "kernel.share is 1.5; allowed: number, >= 0, <= 1"),
        ({"fused": 1}, "kernel.fused is 1; allowed: boolean"),
        ({"order": "quick"}, "kernel.order is 'quick'; allowed: rows, columns"),
        ({"order": "columns"}, "kernel.order=columns needs kernel.fused=false"),
    ],
)
def test_a_refusal_says_what_is_allowed(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = options.Declared("lab.kernels.xla", Several)
    monkeypatch.setitem(options.KERNELS, "several", declared)
    config = options.configuration("several")
    assert options.check(config) == Several()
    with pytest.raises(UserError) as error:
        options.check(config | changes)
    assert str(error.value) == f"kernel several: {message}"


@pytest.mark.parametrize("name", LOADABLE)
@pytest.mark.parametrize(
    "policy",
    [
        DtypePolicy("f16", "float16", "float32", "float32", "float16"),
        DtypePolicy("low", "bfloat16", "bfloat16", "float32", "bfloat16"),
        DtypePolicy("lower", "bfloat16", "float32", "bfloat16", "bfloat16"),
    ],
    ids=lambda policy: policy.name,
)
def test_unsupported_policies_are_refused_with_a_reason(name: str, policy: DtypePolicy) -> None:
    with pytest.raises(UnsupportedCell, match=r"float16"):
        kernels.load(configuration(name), policy=policy, interpret=True)


def test_a_module_must_build_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_kernel.py").write_text("def build(options, *, policy, interpret): return 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(options.KERNELS, "none", options.Declared("no_kernel"))
    with pytest.raises(UserError, match=r"no_kernel\.build must return a lab\.kernels\.Kernel"):
        kernels.load(configuration("none"), policy=POLICIES["bf16"])

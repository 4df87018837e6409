from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import kernels
from lab.errors import UnsupportedCell, UserError
from lab.truth.problems import POLICIES, DtypePolicy

CONF = Path(__file__).parents[2] / "conf" / "kernel"
NAMES = sorted(path.stem for path in CONF.glob("*.yaml"))


def configuration(name: str, **changes: object) -> dict[str, Any]:
    return yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes


def test_registry_imports_no_jax() -> None:
    code = "import sys, lab.kernels; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_is_allowed_by_its_own_constraints_and_loads(name: str) -> None:
    config = configuration(name)
    assert config["name"] == name
    kernel = kernels.load(config, policy=POLICIES["bf16"], interpret=True)
    assert kernel.name == name


def test_options_are_returned_without_the_registry_keys() -> None:
    assert kernels.check_options(configuration("pallas")) == {"block_rows": "auto"}
    assert kernels.check_options(configuration("pallas", block_rows=64)) == {"block_rows": 64}
    assert kernels.check_options(configuration("xla")) == {}


@pytest.mark.parametrize("rows", [12, 0, -8, 8.0, True, "8", "all", None, [8]])
def test_block_rows_must_be_auto_or_whole_tiles(rows: object) -> None:
    with pytest.raises(UserError) as error:
        kernels.check_options(configuration("pallas", block_rows=rows))
    assert str(error.value) == (
        f"kernel pallas: kernel.block_rows is {rows!r}; "
        "allowed: auto; or int, >= 8, a multiple of 8"
    )


@pytest.mark.parametrize("rows", [16, "auto", True])
def test_the_published_kernel_has_one_block_size(rows: object) -> None:
    with pytest.raises(UserError, match=r"kernel\.block_rows is .*; allowed: 8$"):
        kernels.check_options(configuration("pallas-8row", block_rows=rows))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_rows": 8}, "kernel xla has no option 'block_rows'; its options: none"),
        ({"module": "lab.kernels.nothing"}, "there is no module lab.kernels.nothing"),
        ({"module": "no.such.package"}, "there is no module no.such.package"),
        ({"module": None}, "needs `name` and `module`"),
        ({"constraints": {"depth": {"type": "int"}}}, "no value for option 'depth'"),
        ({"constraints": ["depth"]}, "`constraints` maps an option to its rules"),
        ({"x": 1, "constraints": {"x": {"most": 3}}}, "a constraint has the keys"),
    ],
)
def test_a_bad_configuration_is_one_clear_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        kernels.check_options(configuration("xla", **changes))


@pytest.mark.parametrize(
    ("value", "rules", "allowed"),
    [
        (0.5, {"type": "float", "minimum": 0, "maximum": 1}, True),
        (1.5, {"type": "float", "minimum": 0, "maximum": 1}, False),
        (True, {"type": "bool"}, True),
        (1, {"type": "bool"}, False),
        ("fast", {"literals": ["fast", "slow"]}, True),
        ("quick", {"literals": ["fast", "slow"]}, False),
    ],
)
def test_constraints_of_other_types(value: object, rules: dict[str, Any], allowed: bool) -> None:
    config = configuration("xla", x=value, constraints={"x": rules})
    if allowed:
        assert kernels.check_options(config) == {"x": value}
    else:
        with pytest.raises(UserError, match=r"kernel\.x is"):
            kernels.check_options(config)


@pytest.mark.parametrize("name", NAMES)
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
    with pytest.raises(UserError, match=r"no_kernel\.build must return a lab\.kernels\.Kernel"):
        kernels.load(configuration("xla", module="no_kernel"), policy=POLICIES["bf16"])

"""The kernels there are: the module of each and its options, declared without jax.

Hydra's group `kernel` is made from here, so that a configuration is refused before a worker starts.
An option is a field with a default; its type is its rule, and the text of its refusal:

    class Blocks(Options):
        block_q: Annotated[int, Field(ge=8, multiple_of=8)] = 128
        order: Literal["rows", "columns"] = "rows"

    KERNELS["flash"] = Declared("lab.kernels.flash", Blocks)

A rule over several options is a `model_validator` that raises ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from hydra.core.config_store import ConfigStore
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.errors import UserError


class Options(BaseModel):
    """No options; the base of those of each kernel. Types are strict: `true` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RowBlocks(Options):
    """Rows of a block: `auto` fills the VMEM budget; a number must be whole tiles of 8 rows."""

    block_rows: Literal["auto"] | Annotated[int, Field(ge=8, multiple_of=8)] = "auto"


class OneTile(RowBlocks):
    """The published kernel's: one 8 x 128 tile of rows a block."""

    block_rows: Literal[8] = 8


Tiles = Literal["auto"] | Annotated[int, Field(ge=128, multiple_of=128)]


class FlashBlocks(Options):
    """Sizes of the fused kernel's blocks; `auto` takes the tuned table, else a rule by shape."""

    block_q: Tiles = "auto"
    block_k: Tiles = "auto"
    lookahead: Literal["auto"] | Annotated[int, Field(ge=0)] = "auto"
    backward_block_q: Tiles = "auto"
    backward_block_k: Tiles = "auto"
    backward_heads: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"


class OneBlock(Options):
    """JAX's flash attention: the length of all of its blocks, those of the backward too."""

    block: Annotated[int, Field(ge=128, multiple_of=128)] = 1024


class SplashBlocks(Options):
    """JAX's splash attention: queries and keys of a block, and the keys of one product in it."""

    block_q: Annotated[int, Field(ge=128, multiple_of=128)] = 1024
    block_kv: Annotated[int, Field(ge=128, multiple_of=128)] = 1024
    block_kv_compute: Annotated[int, Field(ge=128, multiple_of=128)] = 512


class Sdpa(Options):
    """Who owns jax.nn.dot_product_attention: XLA, or cuDNN on an NVIDIA GPU."""

    implementation: Literal["xla", "cudnn"] = "xla"


class Tokamax(Options):
    """What tokamax calls the implementation that is wanted; it may fall back to no other."""

    implementation: Literal["mosaic_tpu", "mosaic_gpu", "triton", "xla", "xla_chunked"] = (
        "mosaic_tpu"
    )


@dataclass(frozen=True)
class Declared:
    """The module that builds a kernel, and the model of its options."""

    module: str
    options: type[Options] = Options


KERNELS = {
    "xla": Declared("lab.kernels.xla"),
    "pallas": Declared("lab.kernels.pallas_softmax", RowBlocks),
    "pallas-8row": Declared("lab.kernels.pallas_softmax", OneTile),
    "flash": Declared("lab.kernels.flash", FlashBlocks),
    "jax_flash": Declared("lab.kernels.peers.jax_flash", OneBlock),
    "jax_splash": Declared("lab.kernels.peers.jax_splash", SplashBlocks),
    "jax_sdpa": Declared("lab.kernels.peers.jax_sdpa", Sdpa),
    "tokamax": Declared("lab.kernels.peers.tokamax", Tokamax),
}


def configuration(name: str) -> dict[str, Any]:
    """The option `kernel=NAME`: name, module and the default of each option."""
    declared = KERNELS[name]
    return {"name": name, "module": declared.module, **declared.options().model_dump()}


def register() -> None:
    """Make every declared kernel an option of the group `kernel`."""
    for name in KERNELS:
        ConfigStore.instance().store(group="kernel", name=name, node=configuration(name))


def check(config: Mapping[str, object]) -> Options:
    """The options of a kernel's configuration.

    Raises:
        UserError: no such kernel or option, another kernel's module, or a value that the option
            does not allow.
    """
    name, module = config.get("name"), config.get("module")
    if not isinstance(name, str) or not isinstance(module, str):
        raise UserError("a kernel's configuration needs `name` and `module`")
    if name not in KERNELS:
        raise UserError(
            f"kernel.name={name}: there is no such kernel; choose one by kernel=NAME, NAME one of "
            f"{', '.join(KERNELS)}"
        )
    declared = KERNELS[name]
    if module != declared.module:
        raise UserError(
            f"kernel.name={name} is in {declared.module}, and kernel.module is {module}; leave "
            "both alone and choose by kernel=NAME"
        )
    model = declared.options
    given = {key: value for key, value in config.items() if key not in ("name", "module")}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise UserError(f"kernel {name}{_refusal(model, given, error)}") from None


def _refusal(model: type[Options], given: Mapping[str, object], error: ValidationError) -> str:
    """What is wrong first: an unknown option, a value, or how several go together."""
    first = error.errors()[0]
    if not first["loc"]:
        return f": {first['msg'].removeprefix('Value error, ')}"
    key = str(first["loc"][0])
    if key not in model.model_fields:
        return f" has no option {key!r}; its options: {', '.join(model.model_fields) or 'none'}"
    schema = model.model_json_schema()["properties"][key]
    allowed = "; or ".join(map(_allowed, schema.get("anyOf", [schema])))
    return f": kernel.{key} is {given[key]!r}; allowed: {allowed}"


def _allowed(schema: Mapping[str, Any]) -> str:
    """One alternative of an option's JSON schema, in words."""
    if "const" in schema or "enum" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    words = {"minimum": ">= {}", "maximum": "<= {}", "multipleOf": "a multiple of {}"}
    rules = [text.format(schema[key]) for key, text in words.items() if key in schema]
    return ", ".join([str(schema["type"]), *rules])

"""Lowering for TPU, with no TPU and no libtpu: Mosaic accepts the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.truth.problems import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.kernels import Kernel


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["pallas", "pallas-8row"])
@pytest.mark.parametrize(("q_len", "kv_len"), [(256, 256), (24, 200)])
def test_both_scopes_lower_to_mosaic_forward_and_backward(
    name: str, policy: str, q_len: int, kv_len: int, load: Callable[..., Kernel]
) -> None:
    import jax
    import jax.numpy as jnp

    kernel = load(name, policy, interpret=False)
    dtype = jnp.dtype(POLICIES[policy].input)
    logits = jax.ShapeDtypeStruct((2, 4, q_len, kv_len), dtype)
    q = jax.ShapeDtypeStruct((2, 4, q_len, 64), dtype)
    k = jax.ShapeDtypeStruct((2, 2, kv_len, 64), dtype)
    key_mask = jax.ShapeDtypeStruct((2, kv_len), jnp.bool_)
    mask = jax.ShapeDtypeStruct((q_len, kv_len), jnp.bool_)

    def softmax(x: Any, mask: Any) -> Any:
        p, pullback = jax.vjp(lambda x: kernel.masked_softmax(x, mask), x)
        return p, pullback(p)

    def attention(q: Any, k: Any, v: Any, key_mask: Any) -> Any:
        out, pullback = jax.vjp(
            lambda *x: kernel.attention(*x, causal=True, key_mask=key_mask), q, k, v
        )
        return out, pullback(out)

    for function, inputs in ((softmax, (logits, mask)), (attention, (q, k, k, key_mask))):
        exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*inputs)
        module = exported.mlir_module()
        assert module.count("@tpu_custom_call") == 2
        assert "masked_softmax_gradient_rows" in module


def test_xla_lowers_to_no_custom_call(load: Callable[..., Kernel]) -> None:
    import jax
    import jax.numpy as jnp

    q = jax.ShapeDtypeStruct((1, 2, 64, 64), jnp.bfloat16)
    exported = jax.export.export(
        jax.jit(lambda q: load("xla", "bf16").attention(q, q, q, causal=True)), platforms=["tpu"]
    )(q)
    assert "stablehlo.custom_call" not in exported.mlir_module()

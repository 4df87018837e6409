"""The devices jax sees, as records name them. For worker processes: it imports jax."""

from __future__ import annotations

from typing import TypedDict

import jax


class Device(TypedDict):
    """The facts of the attached devices."""

    platform: str
    device_kind: str
    device_count: int
    matmul_precision: str


def attached() -> Device:
    """Platform and kind of the default device, and how many there are of its platform."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device_kind": device.device_kind,
        "device_count": jax.device_count(),
        "matmul_precision": str(jax.config.jax_default_matmul_precision or "default"),
    }

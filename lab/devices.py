"""The devices jax sees, as records name them. For worker processes: it imports jax."""

from __future__ import annotations

import jax

from lab.records import Device

_PRECISION = "jax_default_matmul_precision"


def attached() -> Device:
    """Platform and kind of the default device, and how many there are of its platform."""
    device = jax.devices()[0]
    return Device(
        platform=device.platform,
        device_kind=device.device_kind,
        device_count=jax.device_count(),
        # The attribute is made at run time, so that type checkers do not see it.
        matmul_precision=str(getattr(jax.config, _PRECISION) or "default"),
    )

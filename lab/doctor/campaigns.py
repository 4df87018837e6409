"""Which campaign fits a device; run as a program, it prints the one for the attached device."""

from __future__ import annotations

from lab import worker
from lab.records import Device

PROBE_LIMIT_S = 180.0  # the first contact with a TPU takes up to a minute


def fitting(seen: Device) -> str:
    """The name of a campaign (conf/campaign) for what jax sees."""
    if seen.platform == "tpu":
        published = seen.device_count == 8 and seen.device_kind in ("TPU v5 lite", "TPU v5e")
        return "kaggle-v5e" if published else "tpu"
    return "gpu" if seen.platform == "gpu" else "local-cpu"


def main() -> None:
    """Print the campaign that fits the attached device."""
    seen = worker.call("lab.doctor.probe:devices", {}, Device, deadline_s=PROBE_LIMIT_S)
    print(fitting(seen))  # noqa: T201 - for `make device-check`


if __name__ == "__main__":
    main()

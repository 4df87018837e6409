"""Which campaign fits a device; run as a program, it prints the one for the attached device."""

from __future__ import annotations

from lab import worker

PROBE_LIMIT_S = 180.0  # the first contact with a TPU takes up to a minute


def fitting(
    platform: str | None, device_kind: str | None, device_count: int | None, **_: object
) -> str:
    """The name of a campaign (conf/campaign) for what jax sees."""
    if platform == "tpu":
        published = device_count == 8 and device_kind in ("TPU v5 lite", "TPU v5e")
        return "kaggle-v5e" if published else "tpu"
    return "gpu" if platform == "gpu" else "local-cpu"


def main() -> None:
    """Print the campaign that fits the attached device."""
    seen = worker.call("lab.doctor.probe:devices", {}, deadline_s=PROBE_LIMIT_S)
    print(fitting(**seen))  # noqa: T201 - for `make device-check`


if __name__ == "__main__":
    main()

"""The base of every model that is written to disk or read from it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """No unknown fields, no NaN or infinity, immutable."""

    # "constants": a NaN in a free-form part is refused by `records.dump`, not turned into null.
    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, frozen=True, ser_json_inf_nan="constants"
    )

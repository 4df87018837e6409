"""The candidates run on the CPU, whatever the machine has."""

from __future__ import annotations

import jax

jax.config.update("jax_platforms", "cpu")

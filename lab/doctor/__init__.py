"""What this machine is, whether its libraries fit each other, and what can be done on it."""

from __future__ import annotations

from lab.records.model import Model


class Canary(Model):
    """What kind of program ran, and its largest error, which should be 0."""

    what: str
    error: float

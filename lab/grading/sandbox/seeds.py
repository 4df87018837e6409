"""Seeds that a candidate cannot know: committed to before it runs, revealed in the record after.

A plan is one secret. Its commitment, a hash, is published before the candidate's code starts; the
seed of each case follows from the secret and the case's name. Whoever reads the record can check
that the seeds were not chosen after the answers were seen, and can repeat the verdict.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

SECRET_BYTES = 16
SEED_BITS = 31  # numpy and jax both take such a seed


@dataclass(frozen=True)
class SeedPlan:
    """A secret, as 32 hex digits, and what follows from it."""

    secret: str

    @classmethod
    def draw(cls) -> SeedPlan:
        """A new plan from the operating system's randomness."""
        return cls(secrets.token_hex(SECRET_BYTES))

    @property
    def commitment(self) -> str:
        """sha256 of the secret: says nothing about the seeds, and fits no other plan."""
        return hashlib.sha256(f"plan:{self.secret}".encode()).hexdigest()

    def seed(self, case: str) -> int:
        """The seed of a case, 0 <= seed < 2**31."""
        digest = hashlib.sha256(f"seed:{self.secret}:{case}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)

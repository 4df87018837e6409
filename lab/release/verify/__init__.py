"""Recomputes all that a release says: independent checks, each named, none stopping the next."""

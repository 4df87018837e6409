"""Fused attention, forward and backward, in Pallas."""

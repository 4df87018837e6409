"""Attention lab: check, grade, compile for TPU, time and publish JAX/Pallas attention kernels."""

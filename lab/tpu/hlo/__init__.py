"""Reads optimised HLO text: its timed ops, their trip counts and what the cost model says."""

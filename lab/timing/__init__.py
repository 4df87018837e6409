"""Clocks, sampling, statistics: how a program's time is measured.

docs/timing.md says what a time means.

`measure` times a cell: `prepare` compiles, `sampling` takes samples by a `budget`, `chain` and
`trace` find the device's part of a time, `statistics` and `paired` say how sure a figure is,
`verdict` whether a difference is one; `conditions` and `disturbance` give the `flags` beside it.
"""

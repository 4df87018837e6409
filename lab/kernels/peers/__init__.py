"""Public attention kernels behind the lab's interface: thin adapters, so that ours meet the best.

An adapter passes arrays on and declares what the implementation does not do: it refuses that with
`UnsupportedCell`, never falls back to another one. What stands between the interface and the
implementation (repeated heads, a scaled query) is part of what is timed, and its docstring says so.
"""

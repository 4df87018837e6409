"""Executes the scalar half of the compiler's final VLIW schedule, to count a kernel's cycles.

`bundles` parses a dump; `needed` keeps what control flow and copies hang on; `emit` and `blocks`
turn it into Python; `timeline` keeps the clock and the DMA queue; `execute` runs it; `utilization`
counts the units' slots.
"""

"""Runs a stranger's file where it can neither see an expected value nor touch the grader.

`executor` speaks with two children through `process` and checks their `replies`; what runs inside
of the children lies in `inside/`. docs/untrusted.md says what this stops and what it cannot.
"""

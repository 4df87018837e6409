"""Proves that the very program that was compiled gives the right values, with no TPU.

`interpret` evaluates the traced program on the CPU; `sample` draws the query rows that are judged;
`prove` does both for a cell, in a process of its own.
"""

"""Clocks, sampling, statistics: how a program's time is measured."""

"""Runs the real TPU compiler in a child process, no TPU attached; explains its refusals."""

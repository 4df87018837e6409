"""What stands between the command line and a task: sweeps, runs, messages, help.

A command line is looked at by `overrides`, becomes jobs (`axes`) and cells (`compose`), which
`sweeps` starts or resumes and `runs` runs, one directory each; `messages` words what goes wrong,
`usage` prints `--help` (its text is in conf/config.yaml).
"""

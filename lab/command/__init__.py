"""What stands between the command line and a task: sweeps, runs, messages, help."""

"""What runs in the sandbox's child: loaded by path there, so nothing here imports the lab."""

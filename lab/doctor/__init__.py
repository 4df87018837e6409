"""What this machine is, whether its libraries fit each other, and what can be done on it."""

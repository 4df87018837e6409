"""What a cell is: its configuration, its identity, what is expected of it, where it runs."""

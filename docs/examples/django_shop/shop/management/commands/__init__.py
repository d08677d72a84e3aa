"""Each is a process."""

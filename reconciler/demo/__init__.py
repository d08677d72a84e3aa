"""The demonstration: whole processes, injected losses, repairs, and a count of its own."""

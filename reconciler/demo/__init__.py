"""The demonstration: whole processes, injected losses, repairs, and an independent count."""

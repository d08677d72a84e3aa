"""Makes adapters from the settings and hands them to the policy."""

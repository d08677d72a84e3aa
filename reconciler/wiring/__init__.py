"""Makes adapters from the settings, and gives them to the policy."""

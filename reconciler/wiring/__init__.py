"""Adapters are made here from the settings and handed to the policy."""

"""Step 6: moves announced keys from the unique-key topic into the half sets of the shards."""

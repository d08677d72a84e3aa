"""Step 6: announced keys go from the unique-key topic into the half sets of the shards."""

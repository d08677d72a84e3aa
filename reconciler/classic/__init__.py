"""The original algorithm as it was written, for comparison: rounds.mode = "classic"."""

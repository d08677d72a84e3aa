"""The original algorithm as it was written, for comparison: `reconciler demo --classic`."""

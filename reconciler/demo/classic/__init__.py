"""The original design, unchanged, for comparison: `reconciler demo --classic`."""

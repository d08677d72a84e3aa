"""The checks of `reconciler doctor`."""

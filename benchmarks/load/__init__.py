"""What one reconciler carries: real processes under load, on one machine."""

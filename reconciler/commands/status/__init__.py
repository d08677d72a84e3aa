"""What `reconciler status` says."""

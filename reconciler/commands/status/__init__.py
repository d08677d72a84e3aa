"""What `reconciler status` and `reconciler explain` say."""

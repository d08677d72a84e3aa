"""What producers, consumers, the reconciler and the audit must agree on. Standard library only."""

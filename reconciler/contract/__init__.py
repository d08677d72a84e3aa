"""What producers, consumers, the service and the audit must agree on. Standard library only."""

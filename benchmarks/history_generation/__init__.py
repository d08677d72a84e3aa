"""Makes histories with known accidents, for tests and benchmarks of the audit; knows the contract, not the audit."""

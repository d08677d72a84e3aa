"""The audit: an independent answer from outbox, inbox, ledger and history. Spark or one process computes the answer."""

"""The audit: an independent answer from outbox, inbox, ledger and history, on Spark or in one process of its own."""

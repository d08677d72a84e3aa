"""The Spark audit: an independent answer from outbox, inbox, ledger and history; a process of its own."""

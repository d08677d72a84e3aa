"""SQL ground shared by outbox, inbox and ledger: tables from contract/, engines, database time."""

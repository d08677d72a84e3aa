"""Migrations of the reconciler's ledger."""

"""Migrations of the producers' outbox and the identity of its database."""

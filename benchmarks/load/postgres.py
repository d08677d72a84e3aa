"""Questions to a run's PostgreSQL, by SQLAlchemy's URLs."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.services.postgres import PostgresServer


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection of the driver."""
    return psycopg.connect(url.replace("+psycopg", ""))


def ask(url: str, sql: str) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    with connect(url) as connection:
        return connection.execute(sql.encode()).fetchall()


def tell(url: str, sql: str) -> None:
    """One statement."""
    with connect(url) as connection:
        connection.execute(sql.encode())


def make_shop(server: PostgresServer) -> tuple[str, str, str]:
    """Databases of the producing service, of the consuming one and of the ledger, with the services' own tables."""
    outbox, inbox, ledger = (server.create_database(name) for name in ("orders", "billing", "ledger"))
    tell(outbox, "CREATE TABLE orders (unique_key varchar(64) PRIMARY KEY, amount integer NOT NULL)")
    tell(inbox, "CREATE TABLE effects (unique_key varchar(64) NOT NULL, amount integer NOT NULL)")
    return outbox, inbox, ledger

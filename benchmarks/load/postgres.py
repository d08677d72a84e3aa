"""Questions to a run's PostgreSQL, by SQLAlchemy's URLs."""

from __future__ import annotations

from typing import Any

import psycopg


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

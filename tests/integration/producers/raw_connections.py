"""DB-API connections of each driver, opened as services open them."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pymysql
from sqlalchemy.engine import make_url


@contextlib.contextmanager
def raw_connection(url: str, *, autocommit: bool = False) -> Iterator[Any]:
    """A connection of the driver itself."""
    parsed = make_url(url)
    connection: Any
    if parsed.get_backend_name() == "sqlite":
        connection = sqlite3.connect(parsed.database or "", timeout=5)
        if autocommit:
            connection.isolation_level = None
    elif parsed.get_backend_name() == "postgresql":
        connection = psycopg.connect(
            host=parsed.host, port=parsed.port, user=parsed.username, dbname=parsed.database, autocommit=autocommit
        )
    else:
        connection = pymysql.connect(
            host=parsed.host,
            port=parsed.port or 0,
            user=parsed.username,
            password=str(parsed.password),
            database=parsed.database,
            autocommit=autocommit,
        )
    try:
        yield connection
    finally:
        connection.close()

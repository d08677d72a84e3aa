"""Reads a statement's rows from PostgreSQL by COPY as CSV. No value becomes a Python object.

COPY has the snapshot, TLS and time-outs of the other statements, because COPY runs on the same connection in the same
transaction. This module needs psycopg.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import pq

#: Size of the CSV text at which the rows so far are yielded as a piece.
PIECE_BYTES = 4 * 1024 * 1024
#: Interval at which a wait looks for SIGTERM.
_WAIT_SECONDS = 1.0
#: Kind of column (contract/schema.py) -> PostgreSQL types whose text in COPY equals the driver's value.
_OIDS = {
    "key": frozenset({25, 1042, 1043}),  # text, char, varchar
    "name": frozenset({25, 1042, 1043}),
    "digest": frozenset({17}),  # bytea
    "bigint": frozenset({20, 21, 23}),
    "integer": frozenset({20, 21, 23}),
}


def is_copied(kind: str, oid: object) -> bool:
    """True if COPY gives a column of this type in the form of the evidence."""
    return oid in _OIDS[kind]


def copied(connection: sa.Connection, statement: sa.Select[Any]) -> Iterator[bytearray]:
    """Yields the statement's rows in pieces of CSV. NULL is an empty field. An empty text has quotes.

    Raises SQLAlchemyError.

    The connection must have run a statement of the transaction. If the caller stops early, the connection is closed.
    """
    driver: Any = connection.connection.driver_connection
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    # Every encoding of a database becomes UTF-8. The bytes of SQL_ASCII stay as they are.
    text = f"COPY ({compiled}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
    is_whole = False
    try:
        query = psycopg.ClientCursor(driver).mogrify(text, compiled.params)
        yield from _pieces(driver.pgconn, query.encode())
        is_whole = True
    except psycopg.Error as error:
        raise sa.exc.OperationalError("COPY", None, error) from error
    finally:
        if not is_whole:
            connection.invalidate()


def _pieces(server: pq.abc.PGconn, query: bytes) -> Iterator[bytearray]:
    """Yields pieces of whole rows. The driver's own generator yields single rows, which takes three times as long."""
    server.send_query(query)
    while server.flush():
        select.select([], [server.socket], [], _WAIT_SECONDS)
    _require(server, pq.ExecStatus.COPY_OUT)
    rows, data_of = bytearray(), server.get_copy_data
    while True:
        length, row = data_of(1)
        if length > 0:
            rows += row
            if len(rows) >= PIECE_BYTES:
                yield rows
                rows = bytearray()
        elif length == 0:
            _wait(server)
        else:
            break
    _require(server, pq.ExecStatus.COMMAND_OK)
    while server.get_result() is not None:
        pass
    if rows:
        yield rows


def _require(server: pq.abc.PGconn, status: int) -> None:
    """Waits for the statement's next result. Raises psycopg.Error if it has another status."""
    while server.is_busy():
        _wait(server)
    result = server.get_result()
    if result is None:
        raise psycopg.OperationalError("COPY has no result")
    if result.status != status:
        raise psycopg.errors.error_from_result(result)


def _wait(server: pq.abc.PGconn) -> None:
    select.select([server.socket], [], [], _WAIT_SECONDS)
    server.consume_input()

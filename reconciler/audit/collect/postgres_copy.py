"""A statement's rows from PostgreSQL by COPY, as CSV: no Python object a value.

COPY runs in the transaction, and on the connection, that the other statements have: their snapshot, TLS and time-outs.
Needs psycopg.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import pq

#: What is given at once.
PIECE_BYTES = 4 * 1024 * 1024
#: How often a wait looks for SIGTERM.
_WAIT_SECONDS = 1.0
#: By kind of column (contract/schema.py), the types that COPY's text says the same of as the driver.
_OIDS = {
    "key": frozenset({25, 1042, 1043}),  # text, char, varchar
    "name": frozenset({25, 1042, 1043}),
    "digest": frozenset({17}),  # bytea
    "bigint": frozenset({20, 21, 23}),
    "integer": frozenset({20, 21, 23}),
}


def is_copied(kind: str, oid: object) -> bool:
    """Whether COPY gives a column of this type as the evidence has it."""
    return oid in _OIDS[kind]


def copied(connection: sa.Connection, statement: sa.Select[Any]) -> Iterator[bytearray]:
    """The statement's rows, some at a time: NULL is nothing, an empty text has quotes. Raises SQLAlchemyError.

    On a connection that has run a statement of the transaction. One that is left early is closed.
    """
    driver: Any = connection.connection.driver_connection
    compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"render_postcompile": True})
    # UTF-8 whatever the database's encoding is; SQL_ASCII gives its bytes as they are.
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
    """Whole rows. The driver's own way takes a generator's turn for each row, three times as long as all of this."""
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
    """Waits for the statement's next result. Raises psycopg.Error for another one than this."""
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

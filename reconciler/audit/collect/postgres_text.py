"""Encodings of a PostgreSQL database. Needs psycopg."""

from __future__ import annotations

from typing import Any

from psycopg.adapt import Buffer, Loader

from reconciler.contract.row_values import text_or_bytes


class _UncheckedText(Loader):
    def load(self, data: Buffer) -> str | bytes:
        return text_or_bytes(bytes(data))


def read_text(connection: Any, _record: object) -> None:
    """Makes a connection return UTF-8 texts, which services write, as str. Other texts of SQL_ASCII stay bytes.

    A listener of the event `connect`. A database in UTF8 may begin sessions with another encoding.
    """
    if connection.info.parameter_status("server_encoding") == "UTF8" and connection.info.encoding != "utf-8":
        connection.execute("SET client_encoding TO 'UTF8'")  # poolers notice this setting, and keep it per client
        connection.commit()
    if connection.info.encoding == "ascii":
        for kind in ("text", "varchar", "bpchar", "name"):
            connection.adapters.register_loader(kind, _UncheckedText)

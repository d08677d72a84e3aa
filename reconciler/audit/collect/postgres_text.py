"""Texts of a PostgreSQL database in SQL_ASCII, which has no encoding. Needs psycopg."""

from __future__ import annotations

from typing import Any

from psycopg.adapt import Buffer, Loader

from reconciler.contract.row_values import text_or_bytes


class _UncheckedText(Loader):
    def load(self, data: Buffer) -> str | bytes:
        return text_or_bytes(bytes(data))


def read_text(connection: Any, _record: object) -> None:
    """Makes a connection return UTF-8 texts, which services write, as str. Other texts stay bytes.

    A listener of the event `connect`.
    """
    if connection.info.encoding == "ascii":
        for kind in ("text", "varchar", "bpchar", "name"):
            connection.adapters.register_loader(kind, _UncheckedText)

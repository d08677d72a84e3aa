"""TLS files of a MySQL or MariaDB URL. PyMySQL reads them for each new connection, and raises what Python's ssl raises.

A file may be missing or half written while somebody renews a certificate. The database then counts as away until a new
connection finds files that can be used.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from reconciler.errors import DatabaseAway

REMEDY = "a TLS file of its URL cannot be used: correct ssl_ca, ssl_cert or ssl_key"


def tell_unusable_files(engine: sa.Engine, name: str) -> None:
    """Makes new connections of the engine raise DatabaseAway for TLS files that cannot be used. `name`: the database,
    for people."""
    connect_as_usual = engine.dialect.connect

    def connect(*arguments: Any, **parameters: Any) -> Any:
        password = parameters.get("password")
        if isinstance(password, str):  # PyMySQL would send Latin-1, or fail; servers and their tools have UTF-8
            parameters["password"] = password.encode()
        try:
            return connect_as_usual(*arguments, **parameters)
        except OSError as error:  # PyMySQL has classes of its own for what the network does
            raise DatabaseAway(f"{name}: {error}", remedy=REMEDY) from error

    # SQLAlchemy and changing_login.py both open the engine's connections by dialect.connect().
    engine.dialect.connect = connect  # type: ignore[method-assign]  # no event lets the login pass

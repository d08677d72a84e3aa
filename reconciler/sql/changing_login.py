"""Logins that change while the process runs: each new connection uses the present user and password.

Open connections are kept, because no server closes them after a change of the password.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import make_url

from reconciler.contract.secret import SecretText
from reconciler.contract.urls import read_database_url, shown_url
from reconciler.errors import ConfigurationError

#: Texts by which PostgreSQL, pgbouncer, MySQL and MariaDB refuse a user or password.
_REFUSED = re.compile(r"authentication failed|no such user|role \S+ does not exist|\(1045,", re.IGNORECASE)
_SECRET = "reconciler_secret"  # noqa: S105 - a name
#: The parameters of psycopg and PyMySQL for user and password.
_LOGIN = ("user", "password")


def take_login_of(secret: SecretText, engine: sa.Engine) -> None:
    """Makes each new connection of the engine use the login that the secret's URL has at that time.

    If a server refuses the login, the secret is read once more. If the URL leads to another database, connecting raises
    ConfigurationError, because the rows of two databases must not be mixed. If the URL cannot be read, the former login
    is used.
    """
    engine.update_execution_options(**{_SECRET: secret})
    place = _place(secret.reveal())

    def connect(dialect: Any, _record: object, arguments: list[Any], parameters: dict[str, Any]) -> Any:
        text = secret.reveal()
        _write_login(parameters, text, place)
        try:
            return dialect.connect(*arguments, **parameters)
        except dialect.loaded_dbapi.Error as error:
            if not _REFUSED.search(str(error)) or not secret.ask_again(text):
                raise
            _write_login(parameters, secret.reveal(), place)
            return dialect.connect(*arguments, **parameters)

    event.listen(engine, "do_connect", connect)


def secret_of(engine: sa.Engine) -> SecretText | None:
    """Returns the secret of an engine's login. None: the login is in the engine's URL and never changes."""
    found = engine.get_execution_options().get(_SECRET)
    return found if isinstance(found, SecretText) else None


def _place(text: str) -> tuple[object, ...]:
    url = make_url(text)
    return url.get_backend_name(), url.host, url.port, url.database, url.query


def _write_login(parameters: dict[str, Any], text: str, place: tuple[object, ...]) -> None:
    try:
        read_database_url(text)
    except ValueError:
        return  # the file may be half written, so the former login is used
    if _place(text) != place:
        raise ConfigurationError(
            f"the secret of a database names {shown_url(text)} now, which is another place or has other parameters: "
            "restart the process to use it"
        )
    url = make_url(text)
    for name, value in zip(_LOGIN, (url.username, url.password), strict=True):
        if value is None:
            parameters.pop(name, None)
        else:
            parameters[name] = value

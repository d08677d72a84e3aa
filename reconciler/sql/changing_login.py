"""Logins that change while the process runs: each new connection takes user and password as they are then.

Connections that are open stay: no server closes them because a password was changed.
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

#: What PostgreSQL, pgbouncer, MySQL and MariaDB say about a wrong user or password.
_REFUSED = re.compile(r"authentication failed|no such user|role \S+ does not exist|\(1045,", re.IGNORECASE)
_SECRET = "reconciler_secret"  # noqa: S105 - a name
#: Names under which psycopg and PyMySQL take user and password.
_LOGIN = ("user", "password")


def take_login_of(secret: SecretText, engine: sa.Engine) -> None:
    """From now on the engine connects with the login that the secret's URL has at that time.

    A server that refuses the login makes the secret be read again, once. A URL of another place raises
    ConfigurationError: rows of two databases must not be mixed. One that cannot be read leaves the login as it was.
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
    """The secret that an engine takes its login from; None: the login is in its URL, for good."""
    found = engine.get_execution_options().get(_SECRET)
    return found if isinstance(found, SecretText) else None


def _place(text: str) -> tuple[object, ...]:
    url = make_url(text)
    return url.get_backend_name(), url.host, url.port, url.database, url.query


def _write_login(parameters: dict[str, Any], text: str, place: tuple[object, ...]) -> None:
    try:
        read_database_url(text)
    except ValueError:
        return  # half written: the login of before is used
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

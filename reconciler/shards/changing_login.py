"""A Redis login that changes while the process runs: each new connection uses the present user and password.

Open connections stay logged in: Redis closes them only if the user is switched off or deleted.
"""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qsl, unquote, urlencode

from redis.credentials import CredentialProvider

from reconciler.contract.secret import Secret, SecretText
from reconciler.contract.urls import read_redis_url

#: URL parameters that mean the same as user and password before the host.
_PARAMETERS = ("username", "password")
#: URL parameters of the login at the Sentinels; no URL has that login before the host.
SENTINEL_PARAMETERS = ("sentinel_username", "sentinel_password")


class ChangingLogin(CredentialProvider):
    """Gives redis-py the login for each connection. Shared by threads."""

    def __init__(self, secret: SecretText, *, is_of_sentinels: bool = False) -> None:
        self._secret = secret
        self._read = _login_at_sentinels if is_of_sentinels else _login
        self._text = secret.reveal()
        self._login = self._read(self._text)

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Returns user and password, or the password alone. If the URL cannot be read, the previous login is
        returned."""
        text = self._secret.reveal()
        if text != self._text:
            with suppress(ValueError):  # the file with the URL may be half written
                self._text, self._login = text, self._read(text)
        username, password = self._login
        return (username, password) if username else (password,)

    def ask_again(self) -> bool:
        """Returns True if the secret has another text now. Called after Redis refused the login."""
        return self._secret.ask_again(self._text)


def changing_login(url: Secret, *, is_of_sentinels: bool = False) -> ChangingLogin | None:
    """Returns the login of a URL that may change. None: the URL never changes, or it has neither user nor password."""
    if not isinstance(url, SecretText) or not url.changes:
        return None
    login = ChangingLogin(url, is_of_sentinels=is_of_sentinels)
    return login if any(login.get_credentials()) else None


def without_login(text: str) -> str:
    """Returns the URL without user and password, because redis-py refuses a provider beside a login in the URL."""
    scheme, _, rest = text.partition("://")
    place, mark, query = rest.partition("?")
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in _PARAMETERS]
    return f"{scheme}://{place.rpartition('@')[2]}{mark if kept else ''}{urlencode(kept)}"


def _login_at_sentinels(text: str) -> tuple[str, str]:
    given = dict(read_redis_url(text).parameters)
    username, password = (given.get(name, "") for name in SENTINEL_PARAMETERS)
    return username, password


def _login(text: str) -> tuple[str, str]:
    url = read_redis_url(text)
    given = dict(url.parameters)
    username = unquote(url.username or "") or given.get("username", "")
    return username, unquote(url.password or "") or given.get("password", "")

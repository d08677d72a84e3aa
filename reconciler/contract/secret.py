"""A *secret* is a text that is never shown and may change while the process runs (its source: secret_sources.py)."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, Self, TypeAlias

HIDDEN_SECRET = "**********"  # noqa: S105 - what is shown instead


class SecretSource(Protocol):
    """The place from which a secret comes. Threads share it."""

    def current(self) -> str:
        """Returns the present secret, or the last secret that could be read. Raises nothing."""

    def ask_again(self, refused: str) -> bool:
        """Returns True if the source has another secret now. Call this after a server refused the secret."""


class SecretText:
    """A secret. Two secrets are equal if their first texts were equal, so that one service has one connection pool. The
    text appears in neither repr(), str(), format() nor a pickle. Threads share a secret."""

    __slots__ = ("_first", "_source")

    def __init__(self, first: str, source: SecretSource | None = None) -> None:
        """`first`: the present text. `source`: the source of all later texts. None: the text never changes."""
        self._first = first
        self._source = source

    @property
    def changes(self) -> bool:
        """True if the text may change later."""
        return self._source is not None

    def reveal(self) -> str:
        """Returns the present text."""
        return self._first if self._source is None else self._source.current()

    #: The remoting client takes functions that return a secret. The client does not know this class.
    __call__ = reveal

    def ask_again(self, refused: str) -> bool:
        """Returns True if the source has another text now. Call this after a server refused the text."""
        return self._source is not None and self._source.ask_again(refused)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SecretText):
            return self._first == other._first
        return self._first == other if isinstance(other, str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._first)

    def __repr__(self) -> str:
        return f"SecretText('{HIDDEN_SECRET}')"

    def __str__(self) -> str:
        return HIDDEN_SECRET

    def __format__(self, _specification: str) -> str:
        return HIDDEN_SECRET

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a secret is written nowhere")


#: The type of a parameter that takes a secret. A plain text is accepted, too.
Secret: TypeAlias = str | SecretText


def secret_text(secret: Secret) -> SecretText:
    """Returns a plain text as a secret that never changes."""
    return secret if isinstance(secret, SecretText) else SecretText(secret)


def revealed(secret: Secret) -> str:
    """Returns the present text."""
    return secret.reveal() if isinstance(secret, SecretText) else secret

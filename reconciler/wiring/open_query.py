"""One query on the business's own tables, as the threads of a process ask it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from reconciler.halves.business_key import key_in, without_key
from reconciler.policy.commit_query import KEYS_MAX, BusinessAnswer, BusinessQuery, KeyValue
from reconciler.policy.evidence import StoredMessage

if TYPE_CHECKING:
    from reconciler.evidence.business_query import SqlBusinessQuery  # loads SQLAlchemy

Q = TypeVar("Q", bound=BusinessQuery)


class OpenQuery(Generic[Q]):
    """A query with its adapter. One thread at a time asks it."""

    def __init__(self, query: Q, adapter: SqlBusinessQuery) -> None:
        self.query = query
        self.adapter = adapter
        self.lock = Lock()

    def values(self, copies: Mapping[str, StoredMessage]) -> dict[str, KeyValue | None]:
        """Returns unique key -> query key of its copy, in the type that the database compares. None: the copy has no
        such key."""
        return {key: self.query.key_type.value_of(text_of(self.query, copy)) for key, copy in copies.items()}

    def ask(self, copies: Mapping[str, StoredMessage]) -> dict[str, BusinessAnswer | None]:
        """Returns unique key -> the answer for the query key of its copy. None: the primary has no row. One statement
        asks for KEYS_MAX keys."""
        values = self.values(copies)
        keys = list(dict.fromkeys(value for value in values.values() if value is not None))
        rows: dict[KeyValue, BusinessAnswer | None] = {}
        with self.lock:
            for start in range(0, len(keys), KEYS_MAX):
                rows |= self.adapter.ask(keys[start : start + KEYS_MAX])
        return {key: without_key(self.query) if value is None else rows[value] for key, value in values.items()}


def text_of(query: BusinessQuery, copy: StoredMessage) -> str:
    """Returns the text of the query key in a copy. Empty: the copy has no key, or several."""
    return key_in(query.key, unique_key=copy.unique_key, properties=copy.properties, body=lambda: copy.body)

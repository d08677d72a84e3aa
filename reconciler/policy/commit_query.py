"""The meaning of a *commit query's* rows for halves. A commit query is SQL on the business's own tables. For many keys
at once, it returns two columns: key and state. Pure.

A half proves no commit. A business key proves only that some transaction with this key was committed. So an answer
counts only if it is exactly as declared. A row of another key or type, or too many rows, make all rows of the statement
void. A state that is NULL, that no list contains, or that differs between two rows of a key makes this key UNKNOWN.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from reconciler.contract.answers import HALVES_LEFT, HALVES_SILENT, HALVES_UNPROVED, HALVES_UNREAD
from reconciler.contract.facts import Fact
from reconciler.contract.query_answers import (
    COLUMNS,
    KEY_NOT_ASKED,
    KEY_OF_OTHER_TYPE,
    NULL_STATE,
    OTHER_STATE,
    ROWS_TOO_MANY,
    STATES_DIFFER,
    YOUNG,
)

#: Maximum number of keys in one statement, as for the outbox.
KEYS_MAX = 500
#: The number of columns: key and state.
COLUMNS_MAX = 2
#: Maximum number of rows of one key. More rows are an error and no answer.
ROWS_A_KEY_MAX = 2
_KEY_CHARACTERS_MAX = 255
#: Characters that JSON may contain but no database takes: NUL and surrogates.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_INTEGER_MAX = 1 << 63
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Maximum number of characters that are shown of a word from a database.
_SHOWN_CHARACTERS_MAX = 60

#: A key in the form that the database takes.
KeyValue: TypeAlias = str | int | UUID
#: A state as the query declares it. True differs from 1.
State: TypeAlias = str | int | bool


class KeyType(StrEnum):
    """The type of a key in the database. The key is converted here, because databases that convert by themselves find 0
    for 'order-x', and 17 for '17abc'."""

    TEXT = "text"
    INTEGER = "integer"
    UUID = "uuid"

    def value_of(self, text: str) -> KeyValue | None:
        """Returns the key that a text contains. None: the text is no key of this type."""
        match self:
            case KeyType.TEXT:
                return text if 0 < len(text) <= _KEY_CHARACTERS_MAX and _NO_TEXT.search(text) is None else None
            case KeyType.INTEGER:
                number = int(text) if _INTEGER.fullmatch(text) else None
                return number if number is not None and -_INTEGER_MAX <= number < _INTEGER_MAX else None
            case KeyType.UUID:
                return UUID(text) if _UUID.fullmatch(text) else None

    @property
    def example(self) -> KeyValue:
        """Returns a key that no row has, for a statement that is only looked at."""
        if self is KeyType.UUID:
            return UUID(int=0)
        return 0 if self is KeyType.INTEGER else ""

    def returned(self, value: object) -> KeyValue | None:
        """Returns the key that a database returned. None: the key is of another type."""
        if self is KeyType.UUID:
            return value if isinstance(value, UUID) else self.value_of(value) if isinstance(value, str) else None
        if self is KeyType.INTEGER:
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        return value if isinstance(value, str) else None


class BusinessState(StrEnum):
    """What the business's own tables say about a half, or about a message."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    #: The message took effect.
    APPLIED = "applied"
    #: A row exists, and says that the message took no effect yet.
    NOT_APPLIED = "not-applied"
    #: No row was found, and no running transaction could still bring one.
    NO_ROW = "no-row"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BusinessAnswer:
    """The state of one half or message, and why that state is unknown."""

    state: BusinessState
    why: Fact | None = None


def unknown(why: Fact) -> BusinessAnswer:
    """Returns an answer from which nothing is concluded."""
    return BusinessAnswer(BusinessState.UNKNOWN, why)


def is_committed(answer: BusinessAnswer | None) -> bool:
    """Returns True if the row says that the transaction was committed."""
    return answer is not None and answer.state is BusinessState.COMMITTED


#: The fact about siblings if no half queue was read for them.
UNREAD = HALVES_UNREAD()


def halves_left(broker: str, number: int) -> Fact | None:
    """Returns the fact that this number of a broker's halves are still to be read. None: all halves are read."""
    return HALVES_LEFT(broker=broker, number=number) if number > 0 else None


def halves_silent(broker: str, why: str) -> Fact:
    """Returns the fact that the halves of a broker cannot be read."""
    return HALVES_SILENT(broker=broker, why=why)


def halves_unproved(broker: str) -> Fact:
    """Returns the fact that a broker may have stored a half that its queue does not show yet."""
    return HALVES_UNPROVED(broker=broker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Other messages with the same business key and tag as a half. A row of that key may belong to any of them."""

    #: Unique keys of these messages, beginning with the youngest message.
    unique_keys: tuple[str, ...] = ()
    #: When a broker stored the youngest of these messages.
    newest_ms: int = 0
    #: When a broker stored the oldest of these messages. The copy of this message may have been deleted by age.
    oldest_ms: int = 0
    #: Messages with the same business key but another tag. A query sees no tag, so a row proves none of these.
    of_other_tags: tuple[str, ...] = ()
    #: False: the ledger cannot tell which siblings exist.
    are_known: bool = True
    #: Why more siblings may exist: a half queue was not read to its end after the row was read. None: there are no
    #: more.
    unread: Fact | None = UNREAD


def digest_of(text: str) -> bytes:
    """Returns the digest that the ledger stores in place of a key or a tag. All queries of a topic make the same digest
    of one key."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def digest_of_key(key: KeyValue) -> bytes:
    """Returns the digest that the ledger stores in place of a key. All keys that a collation may take for one another
    have the same digest. So a message may be called a sibling wrongly, but no sibling is missed."""
    return digest_of(folded(key))


def in_statements(keys: Sequence[KeyValue]) -> list[Sequence[KeyValue]]:
    """Returns the keys, divided among statements so that no collation can mix two keys of one statement up. In one
    statement, a row of one key could be taken for the row of another key."""
    statements: list[dict[str, KeyValue]] = []
    for key in keys:
        name = folded(key)
        free = next((one for one in statements if name not in one), None)
        if free is None:
            statements.append({name: key})
        else:
            free[name] = key
    return [list(one.values()) for one in statements]


def folded(key: KeyValue) -> str:
    """Returns the key without what collations may ignore: case, accents, width, and blanks at the ends."""
    text = str(key).casefold()
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one)).casefold()
    return text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class BusinessQuery(ABC):
    """A declared query of the business's own tables. It gives key and state of a message's row."""

    topic: str
    #: The statement, which contains `:keys` once, behind IN.
    sql: str
    #: The place of the key in a message: UNIQ_KEY, KEYS, property:NAME, or body:PATH.
    key: str
    key_type: KeyType

    @property
    @abstractmethod
    def meanings(self) -> tuple[tuple[Collection[State], BusinessState], ...]:
        """The declared states, and what each of them means."""

    @property
    def meaning(self) -> str:
        """Returns in one text everything on which an answer depends. Two queries with the same text answer alike. The
        order of the states has no meaning."""
        states = [sorted(json.dumps(one) for one in some) for some, _ in self.meanings]
        return json.dumps([self.topic, self.sql, self.key, self.key_type.value, *states])

    @property
    def states(self) -> Iterator[State]:
        """Yields every declared state."""
        return (state for some, _ in self.meanings for state in some)

    @property
    def rows_max(self) -> int:
        """Returns the number of rows to fetch: one more than a statement may return."""
        return KEYS_MAX * ROWS_A_KEY_MAX + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitQuery(BusinessQuery):
    """The query that proves the commits of one topic."""

    committed: Collection[State]
    rolled_back: Collection[State]
    #: If a half is younger than this, its transaction may still be running.
    longest_transaction_seconds: float

    @property
    def meanings(self) -> tuple[tuple[Collection[State], BusinessState], ...]:
        """The states of committed halves, and of halves that were rolled back."""
        return (self.committed, BusinessState.COMMITTED), (self.rolled_back, BusinessState.ROLLED_BACK)


def judge_rows(
    query: BusinessQuery, asked: Collection[KeyValue], rows: Sequence[Sequence[object]]
) -> dict[KeyValue, BusinessAnswer | None]:
    """Returns the answer of one statement's rows about each key that was asked for. None: the key has no row."""
    unfit = _unfit(query, asked, rows)
    if unfit is not None:
        return dict.fromkeys(asked, unknown(unfit))
    answers: dict[KeyValue, BusinessAnswer | None] = dict.fromkeys(asked)
    for found, state in rows:
        key = query.key_type.returned(found)
        if key is not None:
            answer, before = _of_state(query, state), answers[key]
            answers[key] = answer if before is None or before == answer else unknown(STATES_DIFFER())
    return answers


def _unfit(query: BusinessQuery, asked: Collection[KeyValue], rows: Sequence[Sequence[object]]) -> Fact | None:
    """Returns why no row of the statement counts. None: the rows count."""
    if len(rows) > len(asked) * ROWS_A_KEY_MAX:
        return ROWS_TOO_MANY(keys=len(asked))
    for row in rows:
        if len(row) != COLUMNS_MAX:
            return columns(len(row))
        key = query.key_type.returned(row[0])
        if key is None:
            return KEY_OF_OTHER_TYPE(found=type(row[0]).__name__, declared=query.key_type.value)
        if key not in asked:  # because of a collation, a joined table or a wrong column
            return key_not_asked(key)
    return None


def key_not_asked(key: KeyValue) -> Fact:
    """Returns the fact that a statement returned, or would return, a key that was not asked for."""
    return KEY_NOT_ASKED(key=str(key)[:_SHOWN_CHARACTERS_MAX])


def asked_apart(
    query: BusinessQuery, asked: Sequence[KeyValue], rows: Sequence[Sequence[object]]
) -> list[Sequence[KeyValue]]:
    """Returns the keys to ask for again, in parts, if rows of some keys spoil the answers of the other keys. Such rows
    belong to a key that was not asked for, as when a collation mixes texts up, or are too many for one key. Empty: no
    part could say more."""
    of_asked = set(asked)
    unfit = _unfit(query, of_asked, rows)
    if unfit is None or unfit.code not in (KEY_NOT_ASKED, ROWS_TOO_MANY):
        return []
    found = Counter(query.key_type.returned(row[0]) for row in rows)
    strange = {folded(key) for key in found if key is not None and key not in of_asked}
    spoiling = {key for key in asked if found[key] > ROWS_A_KEY_MAX or folded(key) in strange}
    others = [key for key in asked if key not in spoiling]
    if spoiling:
        return [others] if others else []
    half = len(asked) // 2
    return [asked[:half], asked[half:]] if half else []


def _of_state(query: BusinessQuery, state: object) -> BusinessAnswer:
    if state is None:
        return unknown(NULL_STATE())
    for words, meant in query.meanings:
        if any(type(word) is type(state) and word == state for word in words):
            return BusinessAnswer(meant)
    return unknown(OTHER_STATE(state=repr(state)[:_SHOWN_CHARACTERS_MAX]))


def columns(number: int) -> Fact:
    """Returns the fact that a query returns more or fewer columns."""
    return COLUMNS(number=number)


def without_row(query: CommitQuery, *, stored_ms: int, now_ms: int) -> BusinessAnswer:
    """Returns the conclusion from a missing row at the primary. `stored_ms`: when a broker stored the half."""
    if now_ms - stored_ms < query.longest_transaction_seconds * 1000:
        return unknown(YOUNG(seconds=round(query.longest_transaction_seconds)))
    return BusinessAnswer(BusinessState.NO_ROW)

"""What a *commit query* says of halves: SQL on the business's own tables that gives two columns, key and state, for
many keys at once. Pure.

A half proves no commit, and a business key only that some transaction of it committed. So nothing is concluded from
what is not exactly as declared: a row of another key or type, or too many of them, and no row of the statement counts;
a state that is NULL, in no list, or different in two rows of one key, and that key is UNKNOWN.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
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

#: Keys of one statement, as of the outbox.
KEYS_MAX = 500
#: Key and state.
COLUMNS_MAX = 2
#: More rows of a key are an error, not an answer.
ROWS_A_KEY_MAX = 2
_KEY_CHARACTERS_MAX = 255
#: What no database takes: NUL, and halves of characters, which JSON can spell.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_INTEGER_MAX = 1 << 63
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Of a word that a database returned, so much is shown.
_SHOWN_CHARACTERS_MAX = 60

#: A key as the database takes it.
KeyValue: TypeAlias = str | int | UUID
#: A state as it is declared. True is another one than 1.
State: TypeAlias = str | int | bool


class KeyType(StrEnum):
    """What a key is in the database. It is converted before the database sees it: databases that convert by themselves
    find 0 for 'order-x', and 17 for '17abc'."""

    TEXT = "text"
    INTEGER = "integer"
    UUID = "uuid"

    def value_of(self, text: str) -> KeyValue | None:
        """The key that a text is; None: it is none of this type."""
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
        """A key that no row has, for a statement that is only looked at."""
        if self is KeyType.UUID:
            return UUID(int=0)
        return 0 if self is KeyType.INTEGER else ""

    def returned(self, value: object) -> KeyValue | None:
        """The key that a database returned; None: it is of another type."""
        if self is KeyType.UUID:
            return value if isinstance(value, UUID) else self.value_of(value) if isinstance(value, str) else None
        if self is KeyType.INTEGER:
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        return value if isinstance(value, str) else None


class BusinessState(StrEnum):
    """What the business's own tables say of a half."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    #: No row, and no transaction may be running that could still bring it.
    NO_ROW = "no-row"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BusinessAnswer:
    """The state of one half, and why it is unknown."""

    state: BusinessState
    why: Fact | None = None


def unknown(why: Fact) -> BusinessAnswer:
    """Nothing is concluded."""
    return BusinessAnswer(BusinessState.UNKNOWN, why)


def is_committed(answer: BusinessAnswer | None) -> bool:
    """Whether the row says so."""
    return answer is not None and answer.state is BusinessState.COMMITTED


#: What is said of siblings that no half queue was read for.
UNREAD = HALVES_UNREAD()


def halves_left(broker: str, number: int) -> Fact | None:
    """That so many halves of a broker are still to be read; None: all are."""
    return HALVES_LEFT(broker=broker, number=number) if number > 0 else None


def halves_silent(broker: str, why: str) -> Fact:
    """That halves of a broker cannot be read."""
    return HALVES_SILENT(broker=broker, why=why)


def halves_unproved(broker: str) -> Fact:
    """That a broker may have stored a half which its queue does not show yet."""
    return HALVES_UNPROVED(broker=broker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Other messages with the business's key and the tag of a half: a row of that key may be of any of them."""

    #: The youngest first.
    unique_keys: tuple[str, ...] = ()
    #: When a broker stored the youngest of these.
    newest_ms: int = 0
    #: When a broker stored the oldest of them: its copy may have been deleted by age.
    oldest_ms: int = 0
    #: Those of the key whose tag is another one. A query sees no tag: a row proves none of them.
    of_other_tags: tuple[str, ...] = ()
    #: False: the ledger cannot tell.
    are_known: bool = True
    #: Why there may be more: a half queue was not read to its end since the row was read. None: there are no more.
    unread: Fact | None = UNREAD


def digest_of(text: str) -> bytes:
    """What the ledger keeps of a key or a tag. Two queries of a topic make the same of one key."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def digest_of_key(key: KeyValue) -> bytes:
    """What the ledger keeps of a key: one digest for all that a collation may take for the same key. Then a message too
    many is a sibling, and none too few."""
    return digest_of(folded(key))


def in_statements(keys: Sequence[KeyValue]) -> list[Sequence[KeyValue]]:
    """The keys in statements of their own where a collation may take some for one another: what comes back for one
    would hide that the other was taken for it."""
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
    """The key without what collations leave out of account: case, accents, width, blanks at the ends."""
    text = str(key).casefold()
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one)).casefold()
    return text.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitQuery:
    """The query of one topic, as it is declared."""

    topic: str
    #: Has `:keys` once, behind IN.
    sql: str
    #: Where the key stands in a half: UNIQ_KEY, KEYS, property:NAME, or body:PATH.
    key: str
    key_type: KeyType
    committed: Collection[State]
    rolled_back: Collection[State]
    #: A half that was stored since may have a transaction that still runs.
    longest_transaction_seconds: float

    @property
    def meaning(self) -> str:
        """All that an answer depends on, in one text: two queries of one meaning answer alike. The order of states
        means nothing."""
        states = [sorted(json.dumps(one) for one in some) for some in (self.committed, self.rolled_back)]
        return json.dumps([self.topic, self.sql, self.key, self.key_type.value, *states])

    @property
    def rows_max(self) -> int:
        """One more than a statement may return."""
        return KEYS_MAX * ROWS_A_KEY_MAX + 1


def judge_rows(
    query: CommitQuery, asked: Collection[KeyValue], rows: Sequence[Sequence[object]]
) -> dict[KeyValue, BusinessAnswer | None]:
    """What the rows of one statement say of each key that it asked for. None: it has no row."""
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


def _unfit(query: CommitQuery, asked: Collection[KeyValue], rows: Sequence[Sequence[object]]) -> Fact | None:
    """Why no row of the statement counts."""
    if len(rows) > len(asked) * ROWS_A_KEY_MAX:
        return ROWS_TOO_MANY(keys=len(asked))
    for row in rows:
        if len(row) != COLUMNS_MAX:
            return columns(len(row))
        key = query.key_type.returned(row[0])
        if key is None:
            return KEY_OF_OTHER_TYPE(found=type(row[0]).__name__, declared=query.key_type.value)
        if key not in asked:  # a collation that takes texts for one another, a joined table, a wrong column
            return key_not_asked(key)
    return None


def key_not_asked(key: KeyValue) -> Fact:
    """That a statement returned, or would return, a key that it was not asked for."""
    return KEY_NOT_ASKED(key=str(key)[:_SHOWN_CHARACTERS_MAX])


def asked_apart(
    query: CommitQuery, asked: Sequence[KeyValue], rows: Sequence[Sequence[object]]
) -> list[Sequence[KeyValue]]:
    """Which keys are to be asked for again, each part by itself, because rows of other keys spoil theirs: rows that
    nobody asked for, as where a collation takes texts for one another, or too many of one key. None where no part
    could say more.
    """
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


def _of_state(query: CommitQuery, state: object) -> BusinessAnswer:
    if state is None:
        return unknown(NULL_STATE())
    for words, meant in ((query.committed, BusinessState.COMMITTED), (query.rolled_back, BusinessState.ROLLED_BACK)):
        if any(type(word) is type(state) and word == state for word in words):
            return BusinessAnswer(meant)
    return unknown(OTHER_STATE(state=repr(state)[:_SHOWN_CHARACTERS_MAX]))


def columns(number: int) -> Fact:
    """That a query returns more or fewer columns."""
    return COLUMNS(number=number)


def without_row(query: CommitQuery, *, stored_ms: int, now_ms: int) -> BusinessAnswer:
    """What it means that the primary has no row of a half that a broker stored then."""
    if now_ms - stored_ms < query.longest_transaction_seconds * 1000:
        return unknown(YOUNG(seconds=round(query.longest_transaction_seconds)))
    return BusinessAnswer(BusinessState.NO_ROW)

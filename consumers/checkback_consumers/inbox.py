"""The inbox: one row a (group, unique key), written first in the transaction of the effect.

The row is what makes an effect happen once, under any redelivery, repair or loss of Redis, and the only evidence
that it happened. Two writers of one key meet at the primary key: the second waits for the first one's commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from checkback_consumers.sql_session import SqlSession
from reconciler.contract.tables import FORMER_NAMES_TOPIC
from reconciler.errors import Collision, InvalidValue, TransientError
from reconciler.sql.engines import now_ms_sql

#: Values of the column source.
SOURCE_CONSUMER = "consumer"
SOURCE_HAND_OVER = "hand-over"

DEDUPE_KEY_CHARACTERS_MAX = 160

_COLUMNS = "consumer_group, unique_key, topic, dedupe_key, duplicate_of, content_digest, source, applied_at_ms"
_SELECT_BY_KEY = (
    "SELECT content_digest FROM reconciler_inbox WHERE consumer_group = :consumer_group AND unique_key = :unique_key"
)
_SELECT_BY_BUSINESS = (
    "SELECT unique_key, dedupe_key, topic FROM reconciler_inbox "
    "WHERE consumer_group = :consumer_group AND dedupe_key = :dedupe_key"
)
_VALUES = ":consumer_group, :unique_key, :topic, :dedupe_key, :duplicate_of, :content_digest, :source"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """What is written for one message."""

    group: str
    unique_key: str
    topic: str
    #: None: the client cannot list properties, the content is not compared.
    content_digest: bytes | None = None
    #: Business id, where the handler dedupes by it too.
    dedupe_key: str | None = None
    source: str = SOURCE_CONSUMER
    #: The name under which releases up to 0.2.0 note this message's effect, and their digest of it; None: no other.
    former_key: str | None = None
    former_digest: bytes | None = None


class InboxAnswer(StrEnum):
    """What the inbox says about a message."""

    #: New: the effect belongs into this transaction.
    NEW = "NEW"
    #: The key had its effect: nothing to do but to record it again.
    DUPLICATE = "DUPLICATE"
    #: Another key with the same business id had the effect; this one was noted as its duplicate.
    DUPLICATE_BUSINESS = "DUPLICATE_BUSINESS"


def enter_inbox(connection: Any, entry: InboxEntry) -> InboxAnswer:
    """Writes the row, first statement of the business transaction on the handler's own connection.

    Raises Collision if the key was applied with another content, InvalidValue for a business id that the database
    cannot tell from another one or that a message of another topic has, UsageError for a connection in autocommit,
    TransientError if a concurrent writer vanished (try again); database errors pass as the driver raises them.
    """
    if entry.dedupe_key is not None and not 0 < len(entry.dedupe_key) <= DEDUPE_KEY_CHARACTERS_MAX:
        raise InvalidValue(
            "dedupe_key", entry.dedupe_key[:80], f"a business id has 1 to {DEDUPE_KEY_CHARACTERS_MAX} characters"
        )
    session = connection if isinstance(connection, SqlSession) else SqlSession(connection)
    if _insert(session, entry, duplicate_of=None):
        return InboxAnswer.NEW if _is_new_by_its_former_name(session, entry) else InboxAnswer.DUPLICATE
    if _is_applied(session, entry):
        return InboxAnswer.DUPLICATE
    first = _first_of_business(session, entry)
    if first is None:
        raise TransientError(f"the inbox row that {entry.unique_key} met is gone again")
    if _insert(session, entry, duplicate_of=first) or _is_applied(session, entry):
        return InboxAnswer.DUPLICATE_BUSINESS
    raise TransientError(f"the inbox row of {entry.unique_key} is neither new nor there")


def _is_new_by_its_former_name(session: SqlSession, entry: InboxEntry) -> bool:
    """Writes the row that a release up to 0.2.0 looks for; False if such a release has noted the effect there.

    Both rows are in one transaction, so that of two releases that get one message, the second meets a row of the first.
    """
    if entry.former_key is None:
        return True
    former = replace(entry, unique_key=entry.former_key, content_digest=entry.former_digest, topic=FORMER_NAMES_TOPIC)
    if _insert(session, former, duplicate_of=entry.unique_key):
        return True
    try:
        if _is_applied(session, former):
            return False
    except Collision:
        return True  # a broker whose store was made anew gives its offsets, and so their names, a second time
    raise TransientError(f"the inbox row that {entry.unique_key} met under {entry.former_key} is gone again")


def _insert(session: SqlSession, entry: InboxEntry, *, duplicate_of: str | None) -> bool:
    parameters = {
        "consumer_group": entry.group,
        "unique_key": entry.unique_key,
        "topic": entry.topic,
        # The first key keeps the business id: (group, dedupe_key) is unique, NULLs are not compared.
        "dedupe_key": entry.dedupe_key if duplicate_of is None else None,
        "duplicate_of": duplicate_of,
        "content_digest": entry.content_digest,
        "source": entry.source,
    }
    sql = _insert_sql(session.dialect)
    if session.dialect != "mysql":
        return session.insert(sql, parameters)
    # Never INSERT IGNORE: it would turn other errors into warnings and lose the effect's only guard.
    try:
        return session.insert(sql, parameters)
    except Exception as error:
        if session.is_duplicate_key(error):
            return False
        raise


@cache
def _insert_sql(dialect: str) -> str:
    sql = f"INSERT INTO reconciler_inbox ({_COLUMNS}) VALUES ({_VALUES}, {now_ms_sql(dialect)})"  # noqa: S608 - constants only
    return sql if dialect == "mysql" else f"{sql} ON CONFLICT DO NOTHING"


def _is_applied(session: SqlSession, entry: InboxEntry) -> bool:
    row = session.select_one(
        _latest(session, _SELECT_BY_KEY),
        {"consumer_group": entry.group, "unique_key": entry.unique_key},
    )
    if row is None:
        return False
    stored = None if row[0] is None else bytes(row[0])
    if stored is not None and entry.content_digest is not None and stored != entry.content_digest:
        raise Collision(
            f"unique key {entry.unique_key} of group {entry.group} was applied with another content: "
            f"digest {stored.hex()} is stored, {entry.content_digest.hex()} arrived"
        )
    return True


def _first_of_business(session: SqlSession, entry: InboxEntry) -> str | None:
    if entry.dedupe_key is None:
        return None
    row = session.select_one(
        _latest(session, _SELECT_BY_BUSINESS),
        {"consumer_group": entry.group, "dedupe_key": entry.dedupe_key},
    )
    if row is None:
        return None
    if row[1] != entry.dedupe_key:
        # MySQL compares texts without the spaces at their ends.
        expected = f"another message has {row[1][:80]!r}, which this database takes for the same: strip spaces from ids"
        raise InvalidValue("dedupe_key", entry.dedupe_key[:80], expected)
    require_topic(entry, str(row[2]))
    return str(row[0])


def require_topic(entry: InboxEntry, topic: str) -> None:
    """Raises InvalidValue where a message of another topic has the entry's business id.

    An order and its payment may well have one id: the payment must not pass for booked.
    """
    if topic != entry.topic:
        expected = f"a message of topic {topic} has it: a group with several topics needs ids that tell them apart"
        raise InvalidValue("dedupe_key", (entry.dedupe_key or "")[:80], expected)


def _latest(session: SqlSession, sql: str) -> str:
    # Under MySQL's REPEATABLE READ a plain SELECT may look at a snapshot older than the row that was met.
    return session.driver_sql(f"{sql} LOCK IN SHARE MODE" if session.dialect == "mysql" else sql)

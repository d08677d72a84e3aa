"""The inbox: one row per group and unique key, written first in the transaction of the effect.

The row lets an effect happen only once, under any redelivery, repair or loss of Redis. The row is also the only
evidence that the effect happened. Two writers of one key meet at the primary key, where the second writer waits for the
commit of the first writer.

A row is written *incomplete* and completed after its handler has returned. On PostgreSQL, the statement that writes the
next row of a batch also completes the row. Elsewhere, and for the last row, a statement of its own completes the row.
If another transaction sees an incomplete row, the row was committed before its handler had returned. The handler
committed it, or MySQL's DDL did so implicitly. A part of the effect may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from checkback_consumers.completion import AT_ONCE, Completion
from checkback_consumers.errors import InboxNotReached, IncompleteEffect
from checkback_consumers.sql_session import SqlSession
from reconciler.contract.tables import FORMER_NAMES_TOPIC, INBOX, is_former_name_of_another
from reconciler.errors import Collision, InvalidValue, TransientError, UsageError
from reconciler.sql.database_time import now_ms_sql
from reconciler.sql.folded_names import FOLDED_REMEDY
from reconciler.sql.kept_texts import require_kept, texts_in_doubt

#: Values of the column source.
SOURCE_CONSUMER = "consumer"
SOURCE_HAND_OVER = "hand-over"

DEDUPE_KEY_CHARACTERS_MAX = 160

_COLUMNS = "consumer_group, unique_key, topic, dedupe_key, duplicate_of, content_digest, source, applied_at_ms"
_SELECT_BY_KEY = (
    "SELECT content_digest, {incomplete}, topic, duplicate_of, consumer_group, unique_key FROM reconciler_inbox "
    "WHERE consumer_group = :consumer_group AND unique_key = :unique_key"
)
_SELECT_BY_BUSINESS = (
    "SELECT unique_key, dedupe_key, topic, {incomplete}, consumer_group FROM reconciler_inbox "
    "WHERE consumer_group = :consumer_group AND dedupe_key = :dedupe_key"
)
_SHOW = "give this login BYPASSRLS, or a policy FOR SELECT that shows it every row of its group"
#: Completes only the row that its own transaction wrote, because a later transaction of the same connection has another
#: mark.
_COMPLETE = (
    "UPDATE reconciler_inbox SET incomplete = NULL "
    "WHERE {place}consumer_group = :done_group AND unique_key = :done_key AND incomplete = {mark}"
)
#: The statement names the place of the row. Without the place, a plan that was prepared while the table was empty would
#: use the index of business ids and read all rows of the group. asyncpg takes a text for a tid only if the statement
#: says that it is a text.
_AT_ITS_PLACE = "ctid = CAST(CAST(:done_place AS VARCHAR) AS tid) AND "

ENDED = (
    "the handler ended the inbox's transaction (commit, rollback, or a database error that it swallowed): "
    "it must leave both to the wrapper; the message comes again. If a part of the effect was committed, its inbox row "
    "is incomplete"
)
_VALUES = ":consumer_group, :unique_key, :topic, :dedupe_key, :duplicate_of, :content_digest, :source"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """The inbox row of one message before it is written."""

    group: str
    unique_key: str
    topic: str
    #: Digest of the content. None: the client cannot list properties, so the content is not compared.
    content_digest: bytes | None = None
    #: The business id, if the handler also dedupes by it.
    dedupe_key: str | None = None
    source: str = SOURCE_CONSUMER
    #: The name under which releases up to 0.2.0 record this message's effect. The next field is their digest of the
    #: message. None: the name is the same.
    former_key: str | None = None
    former_digest: bytes | None = None


class InboxAnswer(StrEnum):
    """The answer of the inbox about a message."""

    #: New: the effect belongs in this transaction.
    NEW = "NEW"
    #: The key had its effect before, so the key is only recorded again.
    DUPLICATE = "DUPLICATE"
    #: Another key with the same business id had the effect. This key was stored as a duplicate of that key.
    DUPLICATE_BUSINESS = "DUPLICATE_BUSINESS"


def enter_inbox(connection: Any, entry: InboxEntry, completion: Completion = AT_ONCE) -> InboxAnswer:
    """Writes the inbox row as the first statement of the business transaction, on the handler's own connection.

    `completion` says whether a NEW row is left incomplete for complete_row(). If the row before was left incomplete,
    this call completes that row, because its handler has returned.

    Raises IncompleteEffect if the key, or the key with its business id, has an incomplete row. Raises Collision if the
    key was applied with another content or from another topic. Raises Collision, too, if the database takes the row of
    another group or key for the same row. Raises InvalidValue if the database would change a text. Raises InvalidValue,
    too, if the database cannot tell the business id from another id, or if a message of another topic has the business
    id. Raises UsageError if the connection is in autocommit, or if another transaction wrote the row before. Raises
    TransientError if a concurrent writer vanished; a later try can succeed. Raises InboxNotReached if row security
    hides the row that was met. Database errors pass as the driver raises them.
    """
    if entry.dedupe_key is not None and not isinstance(entry.dedupe_key, str):
        raise InvalidValue(
            "dedupe_key",
            entry.dedupe_key,
            f"a business id is a str, not {type(entry.dedupe_key).__name__}: let dedupe_by return str(...)",
        )
    if entry.dedupe_key is not None and not 0 < len(entry.dedupe_key) <= DEDUPE_KEY_CHARACTERS_MAX:
        raise InvalidValue(
            "dedupe_key", entry.dedupe_key[:80], f"a business id has 1 to {DEDUPE_KEY_CHARACTERS_MAX} characters"
        )
    session = connection if isinstance(connection, SqlSession) else SqlSession(connection)
    if _insert_incomplete(session, entry, completion) if completion.is_written else _insert(session, entry):
        _require_kept(session, entry)
        if _is_new_by_its_former_name(session, entry, completion):
            return InboxAnswer.NEW
        complete_row(session)  # this entry runs no handler
        return InboxAnswer.DUPLICATE
    if _is_applied(session, entry, completion):
        return InboxAnswer.DUPLICATE
    first = _first_of_business(session, entry, completion)
    if first is None:
        if _hides_rows(session):
            raise InboxNotReached(f"the inbox row that {entry.unique_key} met is hidden by row security: {_SHOW}")
        raise TransientError(f"the inbox row that {entry.unique_key} met is gone again")
    # A duplicate runs no handler, so its row is complete from the start.
    if _insert(session, entry, duplicate_of=first) or _is_applied(session, entry, completion):
        return InboxAnswer.DUPLICATE_BUSINESS
    raise TransientError(f"the inbox row of {entry.unique_key} is neither new nor there")


def _hides_rows(session: SqlSession) -> bool:
    """Returns True if row security is in force for this login. Then a row may exist that the login cannot see."""
    if session.dialect != "postgresql":
        return False
    with suppress(Exception):  # some products lack the function; the transaction is rolled back next
        found = session.select_one("SELECT row_security_active('reconciler_inbox')", {})
        return found is not None and bool(found[0])
    return False


def _is_new_by_its_former_name(session: SqlSession, entry: InboxEntry, completion: Completion) -> bool:
    """Writes the row that a release up to 0.2.0 looks for. Returns False if such a release has recorded the effect in
    that row.

    Both rows are in one transaction. If two releases get one message, the second release meets a row of the first
    release.
    """
    if entry.former_key is None:
        return True
    former = replace(entry, unique_key=entry.former_key, content_digest=entry.former_digest, topic=FORMER_NAMES_TOPIC)
    if _insert(session, former, duplicate_of=entry.unique_key):
        return True
    try:
        if _is_applied(session, former, completion, effect_of=entry):
            return False
    except Collision:
        return True  # a broker with a new store gives offsets, and the names made of them, a second time
    raise TransientError(f"the inbox row that {entry.unique_key} met under {entry.former_key} is gone again")


def complete_row(session: SqlSession) -> None:
    """Completes the row that was left incomplete last, if there is such a row. Its handler has returned.

    Raises UsageError if another transaction wrote that row.
    """
    row, session.incomplete = session.incomplete, None
    if row is None:
        return
    sql = session.driver_sql(_complete_sql(session, row))
    if session.dialect == "postgresql":  # in a pipeline, no row count is returned
        is_done = session.select_one(f"{sql} RETURNING 1", row) is not None
    else:
        is_done = session.is_marked() and session.execute(sql, row) == 1
    if not is_done:
        raise UsageError(ENDED)


def _complete_sql(session: SqlSession, row: Mapping[str, object]) -> str:
    return _COMPLETE.format(place=_AT_ITS_PLACE if "done_place" in row else "", mark=session.mark_sql)


def _require_kept(session: SqlSession, entry: InboxEntry) -> None:
    key = {"consumer_group": entry.group, "unique_key": entry.unique_key}
    texts = key | {"topic": entry.topic, "dedupe_key": entry.dedupe_key, "source": entry.source}
    in_doubt = texts_in_doubt(session.dialect, INBOX, texts)
    if in_doubt:
        require_kept(session, INBOX, key, in_doubt)


def _insert_incomplete(session: SqlSession, entry: InboxEntry, completion: Completion) -> bool:
    row = {"done_group": entry.group, "done_key": entry.unique_key, "mark": session.mark_text}
    if session.dialect == "postgresql":
        place = _insert_after_completing(session, entry, completion)
        if place is not None and completion.is_placed:
            row["done_place"] = place
        is_written = place is not None
    else:
        complete_row(session)
        is_written = _insert(session, entry, mark=session.mark_sql)
    if is_written:
        session.incomplete = row
    return is_written


def _insert_after_completing(session: SqlSession, entry: InboxEntry, completion: Completion) -> str | None:
    """Writes the row and completes the row before it in the same round trip. Returns the place of the new row, or None
    if the row was not written."""
    place = "CAST(ctid AS VARCHAR)" if completion.is_placed else "unique_key"
    sql = f"{_insert_sql(session.dialect, session.mark_sql)} RETURNING {place} AS place"
    before, session.incomplete = session.incomplete, None
    if before is None:
        written = session.select_one(session.driver_sql(sql), _values(session, entry, duplicate_of=None))
        return None if written is None else str(written[0])
    both = (
        f"WITH done AS ({_complete_sql(session, before)} RETURNING 1), written AS ({sql}) "  # noqa: S608 - constants only
        "SELECT (SELECT count(*) FROM done), (SELECT place FROM written)"
    )
    parameters = {**_values(session, entry, duplicate_of=None), **before}
    done, written_at = session.select_one(session.driver_sql(both), parameters) or (0, None)
    if done != 1:
        raise UsageError(ENDED)
    return None if written_at is None else str(written_at)


def _values(session: SqlSession, entry: InboxEntry, *, duplicate_of: str | None) -> dict[str, object]:
    return {
        "consumer_group": entry.group,
        "unique_key": entry.unique_key,
        "topic": entry.topic,
        # Only the first key has the business id, because (group, dedupe_key) is unique. A unique index does not compare
        # NULLs.
        "dedupe_key": entry.dedupe_key if duplicate_of is None else None,
        "duplicate_of": duplicate_of,
        "content_digest": entry.content_digest,
        "source": entry.source,
        "mark": session.mark_text,
    }


def _insert(session: SqlSession, entry: InboxEntry, *, duplicate_of: str | None = None, mark: str = "") -> bool:
    sql, parameters = _insert_sql(session.dialect, mark), _values(session, entry, duplicate_of=duplicate_of)
    if session.dialect != "mysql":
        return session.insert(sql, parameters)
    # Never INSERT IGNORE, because it would turn other errors into warnings and lose the only guard of the effect.
    try:
        return session.insert(sql, parameters)
    except Exception as error:
        if session.is_duplicate_key(error):
            return False
        raise


@cache
def _insert_sql(dialect: str, mark: str) -> str:
    column, value = (", incomplete", f", {mark}") if mark else ("", "")
    now = now_ms_sql(dialect)
    sql = f"INSERT INTO reconciler_inbox ({_COLUMNS}{column}) VALUES ({_VALUES}, {now}{value})"  # noqa: S608 - constants only
    return sql if dialect == "mysql" else f"{sql} ON CONFLICT DO NOTHING"


def _is_applied(
    session: SqlSession, entry: InboxEntry, completion: Completion, *, effect_of: InboxEntry | None = None
) -> bool:
    """Returns True if the entry's row exists. If `entry` has the former name of a message, `effect_of` is the message's
    own entry."""
    row = session.select_one(
        _latest(session, _SELECT_BY_KEY, completion),
        {"consumer_group": entry.group, "unique_key": entry.unique_key},
    )
    if row is None:
        return False
    digest, mark, topic, duplicate_of, group, unique_key = row
    _require_same_name(entry, group=group, unique_key=unique_key)
    stored = None if digest is None else bytes(digest)
    if stored is not None and entry.content_digest is not None and stored != entry.content_digest:
        raise Collision(
            f"unique key {entry.unique_key} of group {entry.group} was applied with another content: "
            f"digest {stored.hex()} is stored, {entry.content_digest.hex()} arrived"
        )
    # Without digests, only the topic tells two messages of one key apart.
    sent_to = (effect_of or entry).topic
    if topic not in (sent_to, FORMER_NAMES_TOPIC):
        raise Collision(
            f"unique key {entry.unique_key} of group {entry.group} was applied from topic {topic}, "
            f"it arrived from {sent_to}"
        )
    if effect_of is not None and is_former_name_of_another(
        effect_of.unique_key, topic=topic, duplicate_of=duplicate_of
    ):
        raise Collision(
            f"{entry.unique_key} of group {entry.group} is a former name of {duplicate_of}, "
            f"not of {effect_of.unique_key}"
        )
    if mark is not None:
        raise IncompleteEffect(entry.group, entry.unique_key)
    return True


def _require_same_name(entry: InboxEntry, *, group: object, unique_key: object) -> None:
    """Raises Collision if the row has another name, which a collation without case takes for the same name.

    The entry cannot be written, because its row would need the same place in the unique index.
    """
    met = tuple(one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in (group, unique_key))
    if met != (entry.group, entry.unique_key):
        raise Collision(
            f"unique key {entry.unique_key} of group {entry.group} has met the row of key {met[1]} of group {met[0]}: "
            f"the database takes them for the same; {FOLDED_REMEDY}"
        )


def _first_of_business(session: SqlSession, entry: InboxEntry, completion: Completion) -> str | None:
    if entry.dedupe_key is None:
        return None
    row = session.select_one(
        _latest(session, _SELECT_BY_BUSINESS, completion),
        {"consumer_group": entry.group, "dedupe_key": entry.dedupe_key},
    )
    if row is None:
        return None
    if row[1] != entry.dedupe_key:
        # MySQL compares texts without the spaces at their ends.
        expected = f"another message has {row[1][:80]!r}, which this database takes for the same: strip spaces from ids"
        raise InvalidValue("dedupe_key", entry.dedupe_key[:80], expected)
    _require_same_name(entry, group=row[4], unique_key=entry.unique_key)
    require_topic(entry, str(row[2]))
    if row[3] is not None:
        raise IncompleteEffect(entry.group, str(row[0]))
    return str(row[0])


def require_topic(entry: InboxEntry, topic: str) -> None:
    """Raises InvalidValue if a message of another topic has the entry's business id.

    An order and its payment may have the same id, but the order's row must not make the payment a duplicate.
    """
    if topic != entry.topic:
        expected = f"a message of topic {topic} has it: a group with several topics needs ids that tell them apart"
        raise InvalidValue("dedupe_key", (entry.dedupe_key or "")[:80], expected)


def _latest(session: SqlSession, sql: str, completion: Completion) -> str:
    sql = sql.format(incomplete="incomplete" if completion.is_read else "NULL")
    # Under MySQL's REPEATABLE READ, a plain SELECT may read a snapshot that is older than the row that was met.
    return session.driver_sql(f"{sql} LOCK IN SHARE MODE" if session.dialect == "mysql" else sql)

"""The inboxes of consumers as evidence: the adapter of ports.InboxEvidence. Runs only SELECT."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa

from reconciler.contract.answers import EFFECT, HALF_EFFECT, NO_INBOX
from reconciler.contract.row_values import ReadRow, RowReader
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import INBOX
from reconciler.errors import DatabaseAway, ReconcilerError
from reconciler.policy.evidence import InboxRow, Lookup, Presence, WitnessAnswer
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import reading
from reconciler.sql.key_probes import key_that_meets
from reconciler.sql.tables import inbox, is_whole_number
from reconciler.sql.witness_database import DatabaseRole, WitnessDatabase, absence

#: Maximum number of keys of one query, below every database's limit of parameters (SQLite 3.31: 999).
KEYS_PER_QUERY = 500

_NAMES = ("consumer_group", "unique_key", "topic", "content_digest", "source", "applied_at_ms", "duplicate_of")
_COLUMNS: list[sa.ColumnElement[Any]] = [inbox.c[name] for name in _NAMES]
_ROWS = RowReader(INBOX, (*_NAMES, inbox.c.incomplete.name))
#: The number of values of a row, including `incomplete`, even if the database lacks this column.
_WIDTH = len(_NAMES) + 1
#: The order of a key's answers: the stronger proof first, because only a limited number of answers is kept.
_ORDER = {Presence.FOUND: 0, Presence.UNKNOWN: 1, Presence.ABSENT: 2}


class SqlInboxEvidence:
    """Reads the inbox of each subscription in all of its databases. Thread-safe."""

    def __init__(self, engines: Mapping[Subscription, Sequence[sa.Engine]]) -> None:
        """Effects of a subscription without an engine are UNKNOWN. The caller disposes the engines."""
        self._databases = {
            subscription: tuple(WitnessDatabase(engine, inbox, newer=inbox.c.incomplete) for engine in several)
            for subscription, several in engines.items()
            if several
        }

    def is_configured(self, subscription: Subscription) -> bool:
        """Returns True if the subscription has a database."""
        return subscription in self._databases

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        """Returns one answer per key: FOUND with the rows of every database that has the key, ABSENT if every database
        proves the absence.

        A database that is away, lacks the table or is a replica answers UNKNOWN instead of ABSENT. An incomplete row is
        UNKNOWN, and is marked in the answer. The row of another group or key that the database treats as equal is
        UNKNOWN, too.
        """
        if not self.is_configured(subscription):
            none = NO_INBOX()
            return {key: Lookup.unknown("inbox", none) for key in unique_keys}
        answers = [_ask(database, subscription, unique_keys) for database in self._databases[subscription]]
        return {key: _combine([one[key] for one in answers]) for key in unique_keys}

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """Returns one page of rows from all databases, ordered by (applied_at_ms, unique_key). An unreadable row keeps
        its place in the page, and names its damage.

        Rows get their time before their commit. So start a scan earlier, by the length of the longest transaction.
        Raises DatabaseAway, also if no inbox is configured.
        """
        pages = [
            database.pages.read(
                limit,
                after,
                partial(self._page, database, subscription, since_ms),
                place_of=lambda row: (row.applied_at_ms, row.unique_key),
            )
            for database in self._all(subscription)
        ]
        # Each database's page has its first rows after `after`, so these pages contain the first rows of all databases.
        # If the last key of the page is in two databases, the page may have only one of its two rows.
        return list(islice(heapq.merge(*pages, key=_place), limit)) if len(pages) > 1 else pages[0]

    def _page(
        self,
        database: WitnessDatabase,
        subscription: Subscription,
        since_ms: int,
        after: tuple[int, str] | None,
        limit: int,
    ) -> Sequence[InboxRow]:
        """Returns a page of one database's rows. Uses the index (consumer_group, applied_at_ms)."""
        query = (
            sa.select(*_COLUMNS, database.newer())
            .where(
                inbox.c.consumer_group == subscription.group,
                inbox.c.topic == subscription.topic,
                inbox.c.applied_at_ms >= (since_ms if after is None else max(since_ms, after[0])),
            )
            .order_by(inbox.c.applied_at_ms, inbox.c.unique_key)
            .limit(limit)
        )
        if after is not None:
            at_ms, key = after
            query = query.where(
                sa.or_(
                    inbox.c.applied_at_ms > at_ms,
                    sa.and_(inbox.c.applied_at_ms == at_ms, inbox.c.unique_key > key),
                )
            )
        return [_scanned(subscription, row) for row in database.scan(query)]

    def newest_keys(self, subscription: Subscription, *, limit: int) -> Sequence[str]:
        """Returns the newest keys of each database, at most `limit` from each. Raises DatabaseAway, also if no inbox is
        configured."""
        query = (
            sa.select(inbox.c.unique_key, inbox.c.consumer_group, inbox.c.topic)
            .where(inbox.c.consumer_group == subscription.group, inbox.c.topic == subscription.topic)
            .order_by(inbox.c.applied_at_ms.desc())
            .limit(limit)
        )
        name = (subscription.group, subscription.topic)
        found: dict[str, None] = {}
        for database in self._all(subscription):
            with reading(database.engine) as connection:
                rows = connection.execute(query)
                found |= dict.fromkeys(key for key, *of in rows if isinstance(key, str) and tuple(of) == name)
        return list(found)

    def newest_ms(self, subscription: Subscription) -> int | None:
        """Returns the highest applied_at_ms of all databases. Raises DatabaseAway, also if no inbox is configured."""
        newest = [self._newest_ms(database.engine, subscription) for database in self._all(subscription)]
        return max((at_ms for at_ms in newest if at_ms is not None), default=None)

    def _newest_ms(self, engine: sa.Engine, subscription: Subscription) -> int | None:
        """Returns MAX(applied_at_ms) of one database. Uses the index (consumer_group, applied_at_ms)."""
        query = sa.select(sa.func.max(inbox.c.applied_at_ms)).where(
            inbox.c.consumer_group == subscription.group,
            inbox.c.topic == subscription.topic,
            is_whole_number(inbox.c.applied_at_ms, engine.dialect.name),
        )
        with reading(engine) as connection:
            newest: int | None = connection.execute(query).scalar()
            return newest

    def _all(self, subscription: Subscription) -> Sequence[WitnessDatabase]:
        if not self.is_configured(subscription):
            raise DatabaseAway(f"no inbox_url is configured for {subscription}")
        return self._databases[subscription]


def _ask(
    database: WitnessDatabase, subscription: Subscription, unique_keys: Sequence[str]
) -> Mapping[str, Lookup[InboxRow]]:
    """Returns the answers of one database."""
    witness = f"inbox {shown(database.engine)}"
    answers: dict[str, Lookup[InboxRow]] = {}
    for first in range(0, len(unique_keys), KEYS_PER_QUERY):
        page = unique_keys[first : first + KEYS_PER_QUERY]
        try:
            role, rows = _read_page(database, subscription, page)
            answers |= {key: _answer(witness, _row_of(rows, key), role) for key in page}
        except ReconcilerError as error:
            answers |= {key: Lookup.unknown(witness, str(error)[:300]) for key in page}
    return answers


def _read_page(
    database: WitnessDatabase, subscription: Subscription, page: Sequence[str]
) -> tuple[DatabaseRole, Mapping[str, ReadRow]]:
    query = sa.select(*_COLUMNS, database.newer()).where(inbox.c.consumer_group == subscription.group)
    role, found = database.probe(query, inbox.c.unique_key, page)
    return role, {
        row.unique_key: _named(_ROWS.parse(row[-_WIDTH:]), consumer_group=subscription.group) for row in found
    }


def _row_of(rows: Mapping[str, ReadRow], unique_key: str) -> ReadRow | None:
    """Returns the key's row. If the database treats another key as equal, returns the other key's row as damaged: the
    key can have no row of its own in this database, so a missing row proves nothing."""
    if unique_key in rows or not rows:
        return rows.get(unique_key)
    met = key_that_meets(unique_key, rows)
    return None if met is None else _named(rows[met], unique_key=unique_key)


def _named(read: ReadRow, **names: str) -> ReadRow:
    """Returns the row. The row is damaged if its names differ from the names by which it was found."""
    other = next((f"{name} {read.values[name]}" for name, text in names.items() if read.values[name] != text), None)
    if other is None or read.damage is not None:
        return read
    return replace(read, damage=f"the row that it meets is of {other}: the database takes names for one another")


def _combine(answers: Sequence[Lookup[InboxRow]]) -> Lookup[InboxRow]:
    """Returns FOUND if any database has an effect, and ABSENT only if every database is ABSENT. Two databases may have
    two effects.

    An unreadable or incomplete row may be a second effect, so the key is UNKNOWN even if another database has an
    effect.
    """
    sorted_answers = sorted((one for lookup in answers for one in lookup.answers), key=lambda one: _ORDER[one.presence])
    if any(one.is_damaged or one.is_incomplete for one in sorted_answers):
        return Lookup(presence=Presence.UNKNOWN, answers=tuple(sorted_answers))
    rows = sorted((row for lookup in answers for row in lookup.records), key=lambda row: row.applied_at_ms)
    is_unknown = any(lookup.is_unknown for lookup in answers)
    presence = Presence.FOUND if rows else Presence.UNKNOWN if is_unknown else Presence.ABSENT
    return Lookup(presence=presence, records=tuple(rows), answers=tuple(sorted_answers))


def _place(row: InboxRow) -> tuple[bool, float, str]:
    """Returns the place of a row in a scan. Texts and bytes sort after every time, as in databases."""
    is_time = isinstance(row.applied_at_ms, int | float)
    return not is_time, row.applied_at_ms if is_time else 0, str(row.unique_key)


def _answer(witness: str, read: ReadRow | None, role: DatabaseRole) -> Lookup[InboxRow]:
    if read is None:
        answer = absence(witness, role)
        return Lookup(presence=answer.presence, answers=(answer,))
    if read.damage is not None:
        answer = WitnessAnswer(witness=witness, presence=Presence.UNKNOWN, detail=read.damage, is_damaged=True)
        return Lookup(presence=Presence.UNKNOWN, answers=(answer,))
    row = _row(read)
    if row.incomplete is not None:
        answer = WitnessAnswer(
            witness=witness,
            presence=Presence.UNKNOWN,
            detail=HALF_EFFECT(source=row.source, at_ms=row.applied_at_ms),
            is_incomplete=True,
            applied_at_ms=row.applied_at_ms,
        )
        return Lookup(presence=Presence.UNKNOWN, answers=(answer,))
    detail = EFFECT(source=row.source, at_ms=row.applied_at_ms)
    answer = WitnessAnswer(witness=witness, presence=Presence.FOUND, detail=detail, applied_at_ms=row.applied_at_ms)
    return Lookup(presence=Presence.FOUND, records=(row,), answers=(answer,))


def _row(read: ReadRow) -> InboxRow:
    values = dict(read.values)
    return InboxRow(group=values.pop("consumer_group"), **values, damage=read.damage)


def _scanned(subscription: Subscription, row: Any) -> InboxRow:
    """Returns a row of a page. Key and time stay as stored, because the next page begins after the last row's key and
    time."""
    read = _named(_ROWS.parse(row), consumer_group=subscription.group, topic=subscription.topic)
    return replace(_row(read), unique_key=row.unique_key, applied_at_ms=row.applied_at_ms)

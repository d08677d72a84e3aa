"""reconciler_notice: the conversations of notifiers, and the events to report.

A claim is one conditional UPDATE in database time, like a claim on a job. Every write needs the version that was read.
If a claim ends later than any present claim could end, it was dated before the clock was set back. Such a claim is free
once this process has seen it unchanged for the length of the longest claim.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from reconciler.contract import kept_facts
from reconciler.contract.row_rules import bounded_text, wait_ms
from reconciler.contract.row_values import RowReader
from reconciler.contract.stored_facts import codes_of, fact_in, with_texts
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import (
    EVERY_GROUP,
    NOTICE,
    CandidateState,
    HoldKind,
    NoticeKind,
    RepairState,
)
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.holds import SqlHolds, end_and_reason
from reconciler.sql.stranded_leases import StrandedLeases
from reconciler.sql.tables import candidate, hold, is_whole_number, outage, repair
from reconciler.sql.tables import notice as notice_table
from reconciler.telling import account
from reconciler.telling.conversations import (
    COUNTED_TROUBLES_MAX,
    LATE_COMMIT_MS,
    LEASE_SECONDS_MAX,
    RETRY_SECONDS_MAX,
    STANDING_TROUBLES_MAX,
    once_told,
)
from reconciler.telling.ports.notices import Conversation, Notice, PastTroubles, Place, StandingTrouble, WaitingNotice

#: Maximum number of outages that one look reads: the newest ones.
OUTAGES_MAX = 200
#: Maximum number of conversations that one statement reads, because a table that another program filled must not fill
#: the memory.
CONVERSATIONS_MAX = 20_000
_ROWS = RowReader(NOTICE)


class SqlNotices:
    """The conversations in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, holds: SqlHolds) -> None:
        self._database = database
        self._holds = holds
        self._stranded = StrandedLeases(notice_table, database.clock)

    def now_ms(self) -> int:
        """Returns the ledger's time."""
        with self._database.reading() as connection:
            return self._database.read_now_ms(connection)

    def conversations(self, environment: str) -> Sequence[Conversation]:
        """Returns the conversations of all undamaged rows."""
        with self._database.reading() as connection:
            mine = notice_table.c.environment == environment
            return self._found(connection, sa.select(notice_table).where(mine), self._over(connection, mine))

    def due(self, environment: str, notifier: str, *, gap_seconds: float = 0.0) -> Sequence[Conversation]:
        """Returns the notifier's conversations that have a due message and no living claim, the longest due first.
        Leaves out damaged rows.

        With a gap, returns no conversation in three cases: a message of the notifier is being sent, one was sent within
        the last `gap_seconds`, or one waits because its receiver was away.
        """
        c, now = notice_table.c, self._database.now()
        mine = (c.environment == environment) & (c.notifier == notifier)
        with self._database.reading() as connection:
            over = self._over(connection, mine)
            is_due = c.notice.is_not(None) & (c.next_at_ms <= now) & self._is_free(over)
            query = sa.select(notice_table).where(mine, is_due)
            if gap_seconds:
                other = notice_table.alias()
                o = other.c
                is_recent = o.told_at_ms.between(now - wait_ms(gap_seconds) + 1, now)
                # Both times are limited, so that a damaged row or another clock does not keep the notifier silent.
                is_later = o.next_at_ms.between(now + 1, now + wait_ms(RETRY_SECONDS_MAX))
                rests = o.error.is_not(None) & (o.is_refused == 0) & is_later
                of = (o.environment == environment) & (o.notifier == notifier)
                query = query.where(~sa.exists().where(of, is_recent | self._is_held(other, over) | rests))
            # The order is the same in every process, so that processes that read at the same time try to claim the same
            # conversation.
            found = self._found(connection, query.order_by(c.next_at_ms, *notice_table.primary_key), over)
        return [one for one in found if one.waiting is not None]

    def _found(self, connection: sa.Connection, query: sa.Select[Any], over: Collection[str]) -> list[Conversation]:
        now_ms = self._database.read_now_ms(connection)
        rows = connection.execute(query.limit(CONVERSATIONS_MAX)).all()
        found = (conversation_of(row, now_ms=now_ms, over=over) for row in rows)
        return [one for one in found if one is not None]

    def _over(self, connection: sa.Connection, which: sa.ColumnElement[bool]) -> Collection[str]:
        """Returns the tokens of claims that end far ahead, but have not changed for the length of the longest claim.

        Each claim has its own token, and no claim is renewed.
        """
        columns = (*notice_table.primary_key, notice_table.c.token, notice_table.c.lease_until_ms)
        is_stranded = self._stranded.among(self._database.now(), lease_seconds=LEASE_SECONDS_MAX)
        far = sa.select(*columns).where(which, notice_table.c.token.is_not(None), is_stranded)
        rows = connection.execute(far.limit(CONVERSATIONS_MAX)).all()
        return frozenset(
            row.token for row in rows if self._stranded.is_over(tuple(row)[:-2], row, lease_seconds=LEASE_SECONDS_MAX)
        )

    def begin(self, environment: str, notifier: str) -> None:
        """Writes the first row of a notifier if it is missing or damaged. Events before this row are not reported."""
        place = (NoticeKind.OUTAGE, None, None)
        now = self._database.now()
        row = _key(environment, notifier, place) | _NEW | {"mark_ms": now, "created_at_ms": now}
        with self._database.writing() as connection:
            self._make(connection, _key(environment, notifier, place), row)

    def standing(self, environment: str, subscriptions: Sequence[Subscription]) -> Sequence[StandingTrouble]:
        """Returns the quarantined keys and failed repairs by place, and the open breakers.

        Above STANDING_TROUBLES_MAX, each place of the subscriptions is counted by itself.
        """
        c, r = candidate.c, repair.c
        waits = sa.select(c.topic, c.consumer_group, c.unique_key, c.first_seen_ms.label("at_ms")).where(
            c.environment == environment, c.state == CandidateState.QUARANTINED.value
        )
        failed = sa.select(
            r.topic, r.scope.label("consumer_group"), r.unique_key, r.created_at_ms.label("at_ms")
        ).where(r.environment == environment, r.state == RepairState.FAILED.value)
        with self._database.reading() as connection:
            groups = [(one.topic, one.group) for one in subscriptions]
            scopes = dict.fromkeys([*((one.topic, EVERY_GROUP) for one in subscriptions), *groups])
            found = [
                *_by_place(connection, NoticeKind.QUARANTINED, waits.order_by(c.first_seen_ms.desc()), groups),
                *_by_place(connection, NoticeKind.REPAIR_FAILED, failed.order_by(r.created_at_ms.desc()), scopes),
            ]
            breakers = sa.select(*self._holds.columns(connection)).where(
                hold.c.environment == environment, hold.c.kind == HoldKind.BREAKER.value
            )
            found += [_breaker(row) for row in connection.execute(breakers)]
        return found

    def past(self, environment: str, marks: Iterable[tuple[Place, int]]) -> Mapping[tuple[Place, int], PastTroubles]:
        """Returns the losses or outages after each mark. Leaves out places of another kind."""
        found: dict[tuple[Place, int], PastTroubles] = {}
        with self._database.reading() as connection:
            # Database time is read first. Rows that become visible later are in no count, and are reported at the next
            # look.
            recent_ms = self._database.read_now_ms(connection) - LATE_COMMIT_MS
            for place, mark_ms in dict.fromkeys(marks):
                kind, topic, group = place
                if kind is NoticeKind.OUTAGE:
                    found[place, mark_ms] = _outages(connection, environment, mark_ms, recent_ms)
                elif kind is NoticeKind.LOSS_PROVED and topic is not None and group is not None:
                    of = {"environment": environment, "topic": topic, "consumer_group": group}
                    found[place, mark_ms] = _losses(connection, of, mark_ms, recent_ms)
        return found

    def write(self, conversation: Conversation) -> bool:
        """Replaces the version that was read. False if another process has changed the row, or is sending."""
        values = _values(conversation) | {"version": conversation.version + 1}
        with self._database.writing() as connection:
            if conversation.version == 0:
                key = _key(conversation.environment, conversation.notifier, conversation.place)
                row = key | _NEW | {"mark_ms": conversation.mark_ms, "created_at_ms": self._database.now()}
                self._make(connection, key, row)
            is_free = self._is_free(self._over(connection, _is(conversation)))
            update = sa.update(notice_table).where(_is(conversation), is_free).values(**values)
            return connection.execute(update).rowcount == 1

    def _make(self, connection: sa.Connection, key: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Inserts the row if it is missing. Overwrites an unreadable row, which would keep its conversation silent.

        Deletes no row, because only `run` may delete.
        """
        here = sa.and_(*(notice_table.c[name] == value for name, value in key.items()))
        found = connection.execute(sa.select(notice_table).where(here)).first()
        if found is None:
            self._database.insert_missing(connection, notice_table, [row])
        elif conversation_of(found) is None:
            empty = dict.fromkeys(notice_table.c.keys())
            connection.execute(sa.update(notice_table).where(here).values(**{**empty, **row}))

    def claim(self, conversation: Conversation, *, token: str, lease_seconds: float) -> Conversation | None:
        """Claims a due conversation, and counts the try. If several processes try, only one of them gets the claim.
        None if this process did not get the claim."""
        now = self._database.now()
        values = {
            "version": conversation.version + 1,
            "attempts": conversation.attempts + 1,
            "token": token,
            "lease_until_ms": now + wait_ms(lease_seconds),
        }
        with self._database.writing() as connection:
            is_due = (notice_table.c.next_at_ms <= now) & self._is_free(self._over(connection, _is(conversation)))
            update = sa.update(notice_table).where(_is(conversation), is_due).values(**values)
            if connection.execute(update).rowcount != 1:
                return None
        attempts, version = conversation.attempts + 1, conversation.version + 1
        return replace(conversation, attempts=attempts, version=version, is_claimed=True)

    def told(self, conversation: Conversation, *, token: str) -> bool:
        """Notes that the waiting message was sent. If the process crashes before this note, the message is sent again
        with the same id."""
        with self._database.writing() as connection:
            told = once_told(conversation, now_ms=self._database.read_now_ms(connection))
            return self._release(connection, conversation, token, _values(told))

    def failed(
        self, conversation: Conversation, *, token: str, wait_seconds: float, error: str, is_refused: bool
    ) -> bool:
        """Notes that sending failed. Frees the conversation, which is due again after the wait."""
        values = {
            "next_at_ms": self._database.now() + wait_ms(wait_seconds),
            "error": bounded_text(error),
            "is_refused": int(is_refused),
        }
        with self._database.writing() as connection:
            return self._release(connection, conversation, token, values)

    def _release(
        self, connection: sa.Connection, conversation: Conversation, token: str, values: Mapping[str, Any]
    ) -> bool:
        freed = {"token": None, "lease_until_ms": None, "version": conversation.version + 1}
        mine = _is(conversation) & (notice_table.c.token == token)
        return connection.execute(sa.update(notice_table).where(mine).values(**{**values, **freed})).rowcount == 1

    def _is_free(self, over: Collection[str]) -> sa.ColumnElement[bool]:
        return ~self._is_held(notice_table, over)

    def _is_held(self, rows: sa.FromClause, over: Collection[str]) -> sa.ColumnElement[bool]:
        # A row with a token but without the end of a lease is damaged. Such a row counts as free, or no process could
        # ever send its message.
        is_living = sa.func.coalesce(rows.c.lease_until_ms, 0) >= self._database.now()
        return rows.c.token.is_not(None) & is_living & rows.c.token.not_in(sorted(over))


def _by_place(
    connection: sa.Connection, kind: NoticeKind, newest: sa.Select[Any], places: Iterable[tuple[str, str]]
) -> Sequence[StandingTrouble]:
    """Returns one trouble per place. Above the limit, counts each place by itself, so that many troubles of one place
    do not change other counts."""
    found = list(_counted(connection, kind, newest))
    if sum(one.count for one in found) <= STANDING_TROUBLES_MAX:
        return found
    topic, group = newest.selected_columns["topic"], newest.selected_columns["consumer_group"]
    asked = dict.fromkeys([*places, *((one.topic, one.group or EVERY_GROUP) for one in found)])
    each = (_counted(connection, kind, newest.where(topic == place[0], group == place[1])) for place in asked)
    return [one for of_place in each for one in of_place]


def _counted(connection: sa.Connection, kind: NoticeKind, newest: sa.Select[Any]) -> Iterator[StandingTrouble]:
    rows = newest.limit(STANDING_TROUBLES_MAX + 1).subquery()
    at_ms = sa.case((is_whole_number(rows.c.at_ms, connection.dialect.name), rows.c.at_ms), else_=0)
    counted = sa.select(
        rows.c.topic,
        rows.c.consumer_group,
        sa.func.count().label("n"),
        sa.func.min(at_ms).label("oldest_ms"),
        sa.func.max(at_ms).label("newest_ms"),
        sa.func.min(rows.c.unique_key).label("unique_key"),
    ).group_by(rows.c.topic, rows.c.consumer_group)
    for row in connection.execute(counted):
        yield StandingTrouble(
            kind=kind,
            topic=str(row.topic),
            group=None if row.consumer_group == EVERY_GROUP else str(row.consumer_group),
            count=int(row.n),
            since_ms=int(row.oldest_ms),
            newest_ms=int(row.newest_ms),
            detail=str(row.unique_key),
        )


@dataclass(frozen=True, slots=True)
class _LossQueries:
    """Statements that are built once. A look runs the statements for each group, and building takes longer than
    running."""

    #: Selects the number of losses after `mark_ms`, the number after `recent_ms`, and whether a loss is open.
    counts: sa.Select[int, int, bool]
    #: Select the key and the time of the first and of the last loss after `mark_ms`.
    oldest: sa.Select[str, int]
    newest: sa.Select[str, int]


@lru_cache
def _loss_queries(dialect: str) -> _LossQueries:
    c = candidate.c
    names = ("environment", "topic", "consumer_group")
    here = sa.and_(*(c[name] == sa.bindparam(name) for name in names))
    is_open = here & (c.state == CandidateState.OPEN.value) & c.loss_verdict.is_not(None)

    def after(mark: str) -> sa.ColumnElement[bool]:
        return here & is_whole_number(c.loss_at_ms, dialect) & (c.loss_at_ms > sa.bindparam(mark))

    def count_after(mark: str) -> sa.ScalarSelect[int]:
        rows = sa.select(c.unique_key).where(after(mark)).limit(COUNTED_TROUBLES_MAX + 1).subquery()
        return sa.select(sa.func.count()).select_from(rows).scalar_subquery()

    row = sa.select(c.unique_key, c.loss_at_ms).where(after("mark_ms")).limit(1)
    return _LossQueries(
        counts=sa.select(
            count_after("mark_ms").label("n"),
            count_after("recent_ms").label("recent"),
            sa.exists(sa.select(c.unique_key).where(is_open)).label("is_open"),
        ),
        oldest=row.order_by(c.loss_at_ms),
        newest=row.order_by(c.loss_at_ms.desc()),
    )


def _losses(connection: sa.Connection, of: Mapping[str, str], mark_ms: int, recent_ms: int) -> PastTroubles:
    queries = _loss_queries(connection.dialect.name)
    values = {**of, "mark_ms": mark_ms}
    counts = connection.execute(queries.counts, {**values, "recent_ms": recent_ms}).one()
    oldest = newest = None
    if counts.n:
        oldest, newest = (connection.execute(query, values).first() for query in (queries.oldest, queries.newest))
    return PastTroubles(
        count=int(counts.n),
        recent_ms=recent_ms,
        recent_count=int(counts.recent),
        since_ms=0 if oldest is None else int(oldest.loss_at_ms),
        until_ms=0 if newest is None else int(newest.loss_at_ms),
        is_open=bool(counts.is_open),
        detail="" if newest is None else str(newest.unique_key),
    )


def _outages(connection: sa.Connection, environment: str, mark_ms: int, recent_ms: int) -> PastTroubles:
    c = outage.c
    query = sa.select(c.started_at_ms, c.closed_at_ms, c.reason).where(c.environment == environment)
    newest = connection.execute(query.order_by(c.started_at_ms.desc()).limit(OUTAGES_MAX)).all()
    sound = [row for row in newest if type(row.started_at_ms) is int and type(row.closed_at_ms) in (int, type(None))]
    ended = [row for row in sound if row.closed_at_ms is not None and row.closed_at_ms > mark_ms]
    still = [row for row in sound if row.closed_at_ms is None]
    told = still or ended
    return PastTroubles(
        count=len(ended),
        recent_ms=recent_ms,
        recent_count=sum(row.closed_at_ms is not None and row.closed_at_ms > recent_ms for row in sound),
        since_ms=min((row.started_at_ms for row in told), default=0),
        until_ms=max((row.closed_at_ms for row in ended), default=0),
        is_open=bool(still),
        detail=str(told[0].reason) if told else "",
    )


def _breaker(row: sa.Row[Any]) -> StandingTrouble:
    since_ms, reason = row.since_ms if type(row.since_ms) is int else 0, str(row.reason)
    _, cause = end_and_reason(row.fact, reason)
    return StandingTrouble(
        kind=NoticeKind.BREAKER_OPEN, topic=str(row.topic), since_ms=since_ms, detail=reason, cause=cause
    )


#: The values of a row before its first message.
_NEW: dict[str, Any] = {
    "version": 0,
    "is_open": 0,
    "mark_count": 0,
    "next_at_ms": 0,
    "attempts": 0,
    "is_refused": 0,
}


def _key(environment: str, notifier: str, place: Place) -> dict[str, Any]:
    kind, topic, group = place
    return {
        "environment": environment,
        "notifier": notifier,
        "kind": kind.value,
        "topic": topic or "",
        "consumer_group": group or "",
    }


def _is(conversation: Conversation) -> sa.ColumnElement[bool]:
    c = notice_table.c
    key = _key(conversation.environment, conversation.notifier, conversation.place)
    return sa.and_(c.version == conversation.version, *(c[name] == value for name, value in key.items()))


def _values(conversation: Conversation) -> dict[str, Any]:
    """Returns the columns that a new version of a conversation writes."""
    waiting = conversation.waiting
    document = None
    if waiting is not None:
        told = waiting.notice
        detail = bounded_text(told.detail)
        members = {name: getattr(told, name) for name in _MEMBERS} | {name: getattr(waiting, name) for name in _MARKS}
        members |= with_texts({"detail": told.cause or detail}, lambda _: detail, characters_max=len(detail))
        document = json.dumps(members, separators=(",", ":"))
    return {
        "is_open": int(conversation.is_open),
        "mark_ms": conversation.mark_ms,
        "mark_count": conversation.mark_count,
        "since_ms": conversation.since_ms,
        "told_at_ms": conversation.told_at_ms,
        "trouble_at_ms": conversation.trouble_at_ms,
        "notice": document,
        "next_at_ms": conversation.next_at_ms,
        "attempts": conversation.attempts,
        "error": conversation.error,
        "is_refused": int(conversation.is_refused),
    }


def conversation_of(row: sa.Row[Any], *, now_ms: int = 0, over: Collection[str] = ()) -> Conversation | None:
    """Returns the conversation of a row. None if the row is damaged: the next message replaces it.

    `over`: tokens of claims that count as ended although their end lies ahead. If the waiting message is unreadable,
    the conversation has no message, and the next look decides it again.
    """
    read = _ROWS.parse(row)
    values = dict(read.values)
    if read.damaged - {"notice", "error"}:
        return None
    document, lease_until_ms = values.pop("notice"), values.pop("lease_until_ms")
    token = values.pop("token")
    is_claimed = token is not None and token not in over and now_ms <= (lease_until_ms or 0)
    group = values.pop("consumer_group") or None
    values |= {"kind": NoticeKind(values["kind"]), "topic": values["topic"] or None, "group": group}
    values |= {name: bool(values[name]) for name in ("is_open", "is_refused")}
    about = {name: values[name] for name in ("environment", "kind", "topic", "group")}
    waiting = None if not document else _waiting_of(document, about)
    return Conversation(**values, waiting=waiting, is_claimed=is_claimed)


_MEMBERS: dict[str, tuple[type, ...]] = {
    "notice_id": (str,),
    "is_over": (bool,),
    "count": (int,),
    "since_ms": (int,),
    "until_ms": (int, type(None)),
    "detail": (str,),
    "written_at_ms": (int,),
}
#: The codes of details that the reconciler wrote. Other details are foreign texts.
_CAUSES = codes_of(account, kept_facts)
_MARKS: dict[str, tuple[type, ...]] = {
    "mark_ms": (int,),
    "mark_count": (int,),
    "is_limited": (bool,),
    "due_ms": (int,),
}


def _waiting_of(document: Mapping[str, Any], about: Mapping[str, Any]) -> WaitingNotice | None:
    with suppress(KeyError):
        given = {name: document[name] for name in (*_MEMBERS, *_MARKS)}
        if all(type(given[name]) in kinds for name, kinds in (_MEMBERS | _MARKS).items()):
            cause = fact_in(document, "detail", _CAUSES)
            told = Notice(**about, **{name: given[name] for name in _MEMBERS}, cause=cause)
            return WaitingNotice(notice=told, **{name: given[name] for name in _MARKS})
    return None

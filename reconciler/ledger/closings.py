"""Closes a key by a person's order, or gives it to a replay worker (ports.Closings). Each act is one transaction, and
needs that the rows have not changed since the person saw them.

An act locks the candidates, then the repairs, and then compares them. A claim locks the repair's row, too, and takes
only unfinished repairs: if a claim and a closing meet, the second one sees the row that the first one wrote. A missing
repair cannot be locked, so the act inserts a row that is DONE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import sqlalchemy as sa

from reconciler.contract.subscription import Shard
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.ledger.candidates import CANDIDATE_COLUMNS, SqlCandidates, candidate_of
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.repairs import SqlHandOvers, new_row
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.ports.closing import Closing, KeyAsRead
from reconciler.policy.ports.ledger import Candidate, Repair
from reconciler.sql.repair_claims import repair_of
from reconciler.sql.tables import candidate, repair

R = TypeVar("R", bound=KeyAsRead)


class _Changed(Exception):
    """A row has changed since the person saw it. Undoes the transaction."""


class SqlClosings:
    """The closings in SQL. Thread-safe. Every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, candidates: SqlCandidates, hand_overs: SqlHandOvers) -> None:
        self._database = database
        self._candidates = candidates
        self._hand_overs = hand_overs

    def close(self, closing: Closing) -> bool:
        """Writes all or nothing."""
        return self._is_written(self._close, closing)

    def take_back(self, closing: Closing) -> bool:
        """Writes all or nothing."""
        return self._is_written(self._take_back, closing)

    def hand_over(
        self, read: KeyAsRead, message: StoredMessage, *, group: str, content_digest: bytes | None = None
    ) -> bool:
        """Writes all or nothing."""

        def insert(connection: sa.Connection, read: KeyAsRead) -> None:
            self._locked_as_read(connection, read)
            self._hand_overs.insert_within(
                connection, read.environment, message, groups=[group], content_digest=content_digest
            )

        return self._is_written(insert, read)

    def cancel(self, read: KeyAsRead, *, group: str) -> bool:
        """Writes all or nothing. A worker writes its attempt before it runs a message, and cannot do so once the row is
        deleted."""

        def delete(connection: sa.Connection, read: KeyAsRead) -> None:
            self._locked_as_read(connection, read)
            waiting = (repair.c.scope == group) & (repair.c.state == RepairState.OPEN.value) & ~self._is_claimed()
            if connection.execute(sa.delete(repair).where(_of_key(read, repair), waiting)).rowcount != 1:
                raise _Changed

        return self._is_written(delete, read)

    def last_taken_ms(self, environment: str, topic: str, *, group: str) -> int | None:
        """Returns the time of the latest attempt in the group's rows. A worker writes its attempt before it runs a
        message."""
        c = repair.c
        of_group = (c.environment == environment) & (c.topic == topic) & (c.scope == group)
        with self._database.reading() as connection:
            found: int | None = connection.execute(sa.select(sa.func.max(c.sent_at_ms)).where(of_group)).scalar()
        return found

    def _is_written(self, act: Callable[[sa.Connection, R], None], read: R) -> bool:
        try:
            with self._database.writing() as connection:
                act(connection, read)
        except _Changed:
            return False
        return True

    def _locked_as_read(self, connection: sa.Connection, read: KeyAsRead) -> Sequence[Candidate]:
        """Locks the candidates and the repairs, and returns the candidates. Raises _Changed."""
        candidates = self._locked_candidates(connection, read)
        if not read.still_holds(candidates, self._locked_repairs(connection, read)):
            raise _Changed
        return candidates

    def claimed(self, closing: Closing) -> Repair | None:
        """Returns the claimed repair whose scope sorts first."""
        ours = _of_key(closing, repair) & repair.c.scope.in_(sorted(closing.scopes)) & self._is_claimed()
        with self._database.reading() as connection:
            columns = self._database.answers.columns(connection)
            row = connection.execute(sa.select(*columns).where(ours).order_by(repair.c.scope)).first()
        return None if row is None else repair_of(row)

    def _is_claimed(self) -> sa.ColumnElement[bool]:
        return repair.c.token.is_not(None) & (repair.c.lease_until_ms >= self._database.now())

    def _close(self, connection: sa.Connection, closing: Closing) -> None:
        candidates = self._locked_as_read(connection, closing)
        self._insert_missing(connection, closing)
        for row in self._locked_repairs(connection, closing):
            if row.scope in closing.scopes and row.state is not RepairState.DONE:
                self._end(connection, closing, row)
        by_subscription = {row.subscription: row for row in candidates}
        for subscription, entry in closing.verdicts.items():
            shard = Shard(subscription=subscription, number=by_subscription[subscription].shard)
            self._candidates.record_within(connection, shard, [entry])

    def _take_back(self, connection: sa.Connection, closing: Closing) -> None:
        candidates = self._locked_candidates(connection, closing)
        repairs = self._locked_repairs(connection, closing)
        if not closing.still_holds(candidates, repairs):
            raise _Changed
        for row in repairs:
            if row.scope in closing.scopes and row.is_dismissed:
                self._end_dismissal(connection, closing, row)
        for subscription, entry in closing.verdicts.items():
            if not self._candidates.wake_dismissed_within(connection, subscription, [entry]):
                raise _Changed

    def _end_dismissal(self, connection: sa.Connection, closing: Closing, row: Repair) -> None:
        this_row = _of_key(closing, repair) & (repair.c.scope == row.scope)
        answer = self._database.answers.written(connection, closing.answer)
        failed = {"state": RepairState.FAILED.value, "done_at_ms": None, **answer}
        is_new = row.is_made_by_dismissal
        connection.execute(
            sa.delete(repair).where(this_row) if is_new else sa.update(repair).where(this_row).values(failed)
        )

    def _locked_candidates(self, connection: sa.Connection, closing: KeyAsRead) -> Sequence[Candidate]:
        query = sa.select(*CANDIDATE_COLUMNS).where(_of_key(closing, candidate)).order_by(candidate.c.consumer_group)
        rows = connection.execute(query.with_for_update())
        return [candidate_of(row) for row in rows]

    def _locked_repairs(self, connection: sa.Connection, closing: KeyAsRead) -> Sequence[Repair]:
        columns = self._database.answers.columns(connection)
        query = sa.select(*columns).where(_of_key(closing, repair)).order_by(repair.c.scope)
        rows = connection.execute(query.with_for_update())
        return [repair_of(row) for row in rows]

    def _insert_missing(self, connection: sa.Connection, closing: Closing) -> None:
        """Inserts rows that are DONE from the start. Leaves a row that another process has opened meanwhile: the caller
        ends it."""
        known = {row.scope for row in closing.repairs}
        answer = self._database.answers.written(connection, closing.answer)
        done = {"state": RepairState.DONE.value, "done_at_ms": self._database.now(), **answer}
        rows = [
            new_row(
                self._database,
                (closing.environment, closing.topic, scope, closing.unique_key),
                Rung.END if scope == EVERY_GROUP else Rung.HAND_OVER,
            )
            | done
            for scope in sorted(closing.scopes - known)
        ]
        self._database.insert_missing(connection, repair, rows)

    def _end(self, connection: sa.Connection, closing: Closing, row: Repair) -> None:
        """Ends a repair whose row is locked. Raises _Changed if the repair is claimed. A damaged state stays, because a
        person must correct it."""
        c = repair.c
        this_row = _of_key(closing, repair) & (c.scope == row.scope)
        if connection.execute(sa.select(c.scope).where(this_row, self._is_claimed())).first() is not None:
            raise _Changed
        values = {
            "state": RepairState.DONE.value,
            **self._database.answers.written(connection, closing.answer),
            "message": None,
            "token": None,
            "lease_until_ms": None,
            "done_at_ms": self._database.now(),
        }
        connection.execute(sa.update(repair).where(this_row, c.state == row.state.value).values(**values))


def _of_key(closing: KeyAsRead, table: sa.Table) -> sa.ColumnElement[bool]:
    c = table.c
    return (c.environment == closing.environment) & (c.topic == closing.topic) & (c.unique_key == closing.unique_key)

"""reconciler_hold: topics whose repairs a person or the breaker has stopped (ports.Holds)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import HOLD_ENDS
from reconciler.contract.row_rules import NAME_CHARACTERS, bounded_text, held_again, later_end
from reconciler.contract.stored_facts import column_of, fact_of_column
from reconciler.contract.tables import HoldKind
from reconciler.errors import ConfigurationError
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.newer_column import UPGRADE_LEDGER, NewerColumn
from reconciler.policy.ports.ledger import HeldTopic
from reconciler.sql.hold_rows import active_holds
from reconciler.sql.tables import hold

_LEAST = tuple(column for column in hold.c if column is not hold.c.fact)


class _Changed(Exception):
    """A hold has changed since the person saw it. Undoes the transaction."""


class SqlHolds:
    """The holds in SQL. Thread-safe. Every call except `place` is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._facts = NewerColumn(hold.c.fact, without="a hold has no end, and why the breaker opened is text alone")

    def columns(self, connection: sa.Connection) -> tuple[sa.ColumnElement[Any], ...]:
        """Returns the columns of a row for end_and_reason()."""
        return (*_LEAST, self._facts.read(connection))

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Returns topic -> kinds of its holds."""
        with self._database.reading() as connection:
            return active_holds(connection, environment)

    def place(
        self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: Fact | str, until_ms: int | None = None
    ) -> bool:
        """Inserts the hold. False if the hold existed. An existing BREAKER gets a new `since` and the new reason. An
        existing HOLD gets the new reason before the old ones, and the later of both ends."""
        while not self._insert(environment, topic, kind, by=by, reason=reason, until_ms=until_ms):
            # If a person lifts the hold between the two statements, it is inserted again.
            if kind is HoldKind.BREAKER:
                is_there = self._date_again(environment, topic, reason)
            else:
                is_there = self._hold_again(environment, topic, by=by, reason=self._text(reason), until_ms=until_ms)
            if is_there:
                return False
        return True

    def _hold_again(self, environment: str, topic: str, *, by: str, reason: str, until_ms: int | None) -> bool:
        """Changes the reason of an existing hold, so that lift_seen() of the first person's hold does not lift the
        second person's hold."""
        this_row = _is(environment, topic, HoldKind.HOLD)
        with self._database.writing() as connection:
            row = connection.execute(
                sa.select(*self.columns(connection)).where(this_row).with_for_update()
            ).one_or_none()
            if row is not None:
                held_because = str(row.reason or "")
                words = held_again(str(row.by), held_because, by=by, reason=reason)
                known_until_ms, _ = end_and_reason(row.fact, held_because)
                written = self._written(connection, words, later_end(known_until_ms, until_ms))
                connection.execute(sa.update(hold).where(this_row).values(written))
        return row is not None

    def _text(self, reason: Fact | str) -> str:
        return bounded_text(reason if isinstance(reason, str) else self._database.english(reason))

    def _written(
        self, connection: sa.Connection, reason: Fact | str, until_ms: int | None = None
    ) -> dict[str, str | None]:
        """Returns column -> value for the reason and its fact or end. Raises ConfigurationError if the hold has an end
        and the ledger lacks the column."""
        text = self._text(reason)
        if self._facts.is_there(connection):
            kept = _end(until_ms, text) if isinstance(reason, str) else column_of(reason, text)
            return {"reason": text, hold.c.fact.name: kept}
        if until_ms is None:
            return {"reason": text}
        raise ConfigurationError(f"a hold with an end: the ledger is an older release's: {UPGRADE_LEDGER}")

    def _insert(
        self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: Fact | str, until_ms: int | None
    ) -> bool:
        try:
            with self._database.writing() as connection:
                written = self._written(connection, reason, until_ms)
                connection.execute(
                    sa.insert(hold).values(
                        environment=environment,
                        topic=topic,
                        kind=kind.value,
                        since_ms=self._database.now(),
                        by=bounded_text(by, NAME_CHARACTERS),
                        **written,
                    )
                )
        except IntegrityError:
            return False
        return True

    def renew(self, environment: str, topic: str) -> bool:
        """Returns False if there is no BREAKER."""
        return self._date_again(environment, topic)

    def _date_again(self, environment: str, topic: str, reason: Fact | str | None = None) -> bool:
        with self._database.writing() as connection:
            written = {} if reason is None else self._written(connection, reason)
            done = connection.execute(
                sa.update(hold)
                .where(_is(environment, topic, HoldKind.BREAKER))
                .values(since_ms=self._database.now(), **written)
            )
            return done.rowcount == 1

    def lift(self, environment: str, topic: str, kind: HoldKind, *, calm_seconds: float = 0.0) -> bool:
        """Deletes the hold. False if no hold exists, or the hold is younger than `calm_seconds`."""
        is_old = hold.c.since_ms <= self._database.before(round(calm_seconds * 1000)) if calm_seconds else sa.true()
        with self._database.writing() as connection:
            done = connection.execute(sa.delete(hold).where(_is(environment, topic, kind), is_old))
            return done.rowcount == 1

    def lift_seen(self, environment: str, *held: HeldTopic) -> frozenset[HoldKind]:
        """Runs one conditional DELETE per hold. Undoes all of them if a hold has changed."""
        try:
            with self._database.writing() as connection:
                ordered = sorted(held, key=lambda one: one.kind)
                return frozenset(one.kind for one in ordered if _is_lifted(connection, environment, one))
        except _Changed:
            return frozenset()


def _is_lifted(connection: sa.Connection, environment: str, held: HeldTopic) -> bool:
    """Returns False if the hold is gone. Raises _Changed."""
    this_row = _is(environment, held.topic, held.kind)
    if connection.execute(sa.delete(hold).where(this_row, _as_seen(held))).rowcount == 1:
        return True
    if connection.execute(sa.select(hold.c.kind).where(this_row)).first() is not None:
        raise _Changed
    return False


def _as_seen(held: HeldTopic) -> sa.ColumnElement[bool]:
    """Returns a condition: the row still has the values of `held`. The condition is always true for a damaged hold."""
    if held.damage is not None:
        return sa.true()
    is_as_old = sa.true() if held.kind is HoldKind.BREAKER else hold.c.since_ms == held.since_ms
    is_as_long = sa.true() if held.until_ms is None else hold.c.fact == _end(held.until_ms, held.reason)
    return (hold.c.by == held.by) & (hold.c.reason == held.reason) & is_as_old & is_as_long


def _end(until_ms: int | None, reason: str) -> str | None:
    return None if until_ms is None else column_of(HOLD_ENDS(at_ms=until_ms), reason)


def end_and_reason(kept: object, reason: str) -> tuple[int | None, Fact | None]:
    """Returns the end of the hold, and its reason as a fact. The end is None for a hold without an end. The fact is
    None if the reason is only a text, or another release has changed it."""
    fact = fact_of_column(kept, reason)
    if fact is None or fact.code is not HOLD_ENDS:
        return None, fact
    at_ms = fact.fields["at_ms"]
    return at_ms if isinstance(at_ms, int) else None, None


def _is(environment: str, topic: str, kind: HoldKind) -> sa.ColumnElement[bool]:
    return (hold.c.environment == environment) & (hold.c.topic == topic) & (hold.c.kind == kind.value)

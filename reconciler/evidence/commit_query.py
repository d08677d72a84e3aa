"""Asks a commit query: SELECT alone, in read-only transactions of 2 s, at most one statement a second, by the primary's
word only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.contract.query_answers import NO_ANSWER, NOT_THE_PRIMARY, RESTS
from reconciler.contract.secret import Secret
from reconciler.errors import ReconcilerError
from reconciler.evidence.commit_query_examination import (
    collation_finding,
    examine_query,
    problem_findings,
    role_finding,
    twisted_keys,
)
from reconciler.evidence.commit_query_inspection import Inspection, inspect_query
from reconciler.policy.commit_query import BusinessAnswer, CommitQuery, KeyValue, asked_apart, judge_rows, unknown
from reconciler.policy.commit_query_dry_run import Fitness, QueryAspect, QueryFinding
from reconciler.sql.engines import driver_error, open_engine
from reconciler.sql.witness_database import WitnessDatabase

#: A statement has so long, and the next one begins so much later, at least.
STATEMENT_SECONDS = 2.0
_BETWEEN_SECONDS = 1.0
#: After so many statements without an answer, one behind the other, no more is asked for a while.
_MISSES_MAX = 3
_REST_SECONDS = 60.0
_LOCK_SECONDS = 1.0
#: Of one question, with those that are asked again without what spoils their rows: each takes a second.
_STATEMENTS_MAX = 8
#: Instructions of SQLite between two looks at the clock.
_SQLITE_STEPS = 10_000


class SqlCommitQuery:
    """One query at one database. Confined to one thread."""

    def __init__(self, query: CommitQuery, url: Secret, *, clock: Clock) -> None:
        """Raises InvalidValue for a malformed URL and MissingDependency for a missing driver; connects later."""
        self._query = query
        self._clock = clock
        self._engine = open_engine(
            url,
            read_only=True,
            must_exist=True,
            lock_timeout_seconds=_LOCK_SECONDS,
            statement_seconds=STATEMENT_SECONDS,
        )
        self._deadline = 0.0
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", self._end_sqlite_statements)
        # Of the words about a role only those of a server are read: its tables are not ours.
        self._database = WitnessDatabase(self._engine, sa.Table("commit_query", sa.MetaData()), clock=clock)
        self._next_at = 0.0
        self._misses = 0

    def ask(self, keys: Sequence[KeyValue]) -> dict[KeyValue, BusinessAnswer | None]:
        """What it says of up to KEYS_MAX keys. None: the primary has no row. Raises nothing.

        Keys whose rows are spoilt by those of others are asked for again without these.
        """
        answers: dict[KeyValue, BusinessAnswer | None] = {}
        left: deque[Sequence[KeyValue]] = deque([keys])
        for _ in range(_STATEMENTS_MAX):
            if not left:
                break
            said, apart = self._ask(left.popleft())
            answers |= said
            left += apart
        return answers

    def _ask(self, keys: Sequence[KeyValue]) -> tuple[dict[KeyValue, BusinessAnswer | None], list[Sequence[KeyValue]]]:
        """By one statement, and what is to be asked again."""
        now = self._clock.monotonic_seconds()
        if self._misses >= _MISSES_MAX and now < self._next_at:
            return dict.fromkeys(keys, unknown(RESTS(times=self._misses))), []
        try:
            with self._statement():
                role, rows = self._database.ask(self._query.sql, keys, rows_max=self._query.rows_max)
        except (ReconcilerError, SQLAlchemyError) as error:
            return dict.fromkeys(keys, unknown(_no_answer(error))), []
        if role.is_primary is not True:
            return dict.fromkeys(keys, unknown(NOT_THE_PRIMARY())), []
        return judge_rows(self._query, set(keys), rows), asked_apart(self._query, keys, rows)

    def inspect(self, keys: Sequence[KeyValue]) -> Inspection:
        """What speaks against trusting it, seen with some keys of halves. Raises nothing."""
        try:
            with self._statement():
                return inspect_query(self._engine, self._query, keys)
        except (ReconcilerError, SQLAlchemyError) as error:
            return Inspection(problems=(_no_answer(error),))

    def examine(self, keys: Sequence[KeyValue]) -> tuple[QueryFinding, ...]:
        """What can be told of query, login and database before the first answer, seen with some keys of halves. Raises
        nothing."""
        found = [*problem_findings(self.inspect(keys).problems)]
        if QueryAspect.ANSWER not in {one.aspect for one in found}:
            try:
                with self._statement():
                    found += examine_query(self._engine, self._query, keys)
                with self._statement():
                    found.append(role_finding(self._database.role(), self._database.unread()))
            except (ReconcilerError, SQLAlchemyError) as error:
                found += problem_findings((_no_answer(error),))
        unfit = {one.aspect for one in found if one.fitness is Fitness.UNFIT}
        return tuple(one for one in found if one.fitness is Fitness.UNFIT or one.aspect not in unfit)

    def collation(self, keys: Sequence[KeyValue]) -> QueryFinding:
        """Whether the database takes other keys for some that it has. Raises nothing."""
        twisted = twisted_keys(keys)
        rows: Sequence[Sequence[object]] | None = None
        if twisted:
            with suppress(ReconcilerError, SQLAlchemyError), self._statement():
                _, rows = self._database.ask(self._query.sql, twisted, rows_max=self._query.rows_max)
        return collation_finding(self._query.key_type, twisted, rows)

    def close(self) -> None:
        """Closes the connection."""
        self._engine.dispose()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """One at a time, each on a connection of its own: a query may leave settings to its session."""
        self._clock.sleep(self._next_at - self._clock.monotonic_seconds())
        self._deadline = self._clock.monotonic_seconds() + STATEMENT_SECONDS
        try:
            yield
        except (ReconcilerError, SQLAlchemyError):
            self._misses += 1
            raise
        else:
            self._misses = 0
        finally:
            pause = _REST_SECONDS if self._misses >= _MISSES_MAX else _BETWEEN_SECONDS
            self._next_at = self._clock.monotonic_seconds() + pause
            self._engine.dispose()

    def _end_sqlite_statements(self, connection: Any, _record: object) -> None:
        """There is no server that would."""
        connection.set_progress_handler(lambda: self._clock.monotonic_seconds() > self._deadline, _SQLITE_STEPS)


def _no_answer(error: Exception) -> Fact:
    text = str(error if isinstance(error, ReconcilerError) else driver_error(error))
    return NO_ANSWER(why=" ".join(text.split())[:300])

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
from reconciler.policy.commit_query import (
    BusinessAnswer,
    CommitQuery,
    KeyValue,
    asked_apart,
    in_statements,
    judge_rows,
    key_not_asked,
    unknown,
)
from reconciler.policy.commit_query_dry_run import Fitness, QueryAspect, QueryFinding
from reconciler.sql.engines import class_names, driver_error, open_engine
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
#: How often in so many seconds keys are halved among which the database cannot take one: of 500 it is found so.
_HALVINGS_MAX = 10
_HALVINGS_SECONDS = 60.0
#: A key that the database cannot take is left out for so long; more of them than so many are not remembered.
_STRANGE_SECONDS = 600.0
_STRANGE_MAX = 1_000
#: What MySQL and MariaDB say of a text that a column's characters do not have.
_OTHER_CHARACTERS = frozenset({1267, 1270, 1271, 1300, 1366, 3854, 3988})
_FAILURES = (ReconcilerError, SQLAlchemyError, UnicodeError)
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
        #: When keys were halved, in monotonic seconds.
        self._halved_at: deque[float] = deque(maxlen=_HALVINGS_MAX)
        #: Keys that the database cannot take: why, and until when they are left out.
        self._strange: dict[KeyValue, tuple[Fact, float]] = {}

    def ask(self, keys: Sequence[KeyValue]) -> dict[KeyValue, BusinessAnswer | None]:
        """What it says of up to KEYS_MAX keys. None: the primary has no row. Raises nothing.

        Keys that a collation may take for one another are asked for apart, and those whose rows are spoilt by others
        once more without these. A key that the database cannot take is looked for by halves, and left out for a while.
        """
        now = self._clock.monotonic_seconds()
        self._strange = {key: one for key, one in self._strange.items() if now < one[1]}
        asked = [key for key in keys if key not in self._strange]
        answers: dict[KeyValue, BusinessAnswer | None] = {
            key: unknown(self._strange[key][0] if key in self._strange else key_not_asked(key)) for key in keys
        }
        left, most = deque(in_statements(asked)), _STATEMENTS_MAX
        misses_before, has_answered = self._misses, not left
        while left and most > 0:
            most -= 1
            said, parts, is_of_keys = self._ask(left.popleft())
            answers |= said
            if is_of_keys:
                # In front: of several keys that it cannot take, one at least is found before no more are halved.
                left.extendleft(reversed(parts))
                most += len(parts)
            else:
                left += parts
            has_answered = has_answered or not is_of_keys
        if not has_answered:
            self._misses = misses_before + 1
            if self._misses >= _MISSES_MAX:
                self._next_at = self._clock.monotonic_seconds() + _REST_SECONDS
        return answers

    def _ask(
        self, keys: Sequence[KeyValue]
    ) -> tuple[dict[KeyValue, BusinessAnswer | None], list[Sequence[KeyValue]], bool]:
        """By one statement, and what is to be asked again; whether it failed for the sake of its keys."""
        now = self._clock.monotonic_seconds()
        if self._misses >= _MISSES_MAX and now < self._next_at:
            return dict.fromkeys(keys, unknown(RESTS(times=self._misses))), [], False
        try:
            with self._statement():
                role, rows = self._database.ask(self._query.sql, keys, rows_max=self._query.rows_max)
        except _FAILURES as error:
            why, is_of_keys = _no_answer(error), _is_of_keys(error)
            return dict.fromkeys(keys, unknown(why)), self._halves(keys, why) if is_of_keys else [], is_of_keys
        if role.is_primary is not True:
            return dict.fromkeys(keys, unknown(NOT_THE_PRIMARY())), [], False
        return judge_rows(self._query, set(keys), rows), asked_apart(self._query, keys, rows), False

    def _halves(self, keys: Sequence[KeyValue], why: Fact) -> list[Sequence[KeyValue]]:
        """Of keys among which the database cannot take one, so often a minute. One that stands alone is remembered."""
        now, half = self._clock.monotonic_seconds(), len(keys) // 2
        if not half:
            if len(self._strange) < _STRANGE_MAX:
                self._strange[keys[0]] = why, now + _STRANGE_SECONDS
            return []
        if len(self._halved_at) == _HALVINGS_MAX and now - self._halved_at[0] < _HALVINGS_SECONDS:
            return []
        self._halved_at.append(now)
        return [keys[:half], keys[half:]]

    def inspect(self, keys: Sequence[KeyValue]) -> Inspection:
        """What speaks against trusting it, seen with some keys of halves. Raises nothing."""
        keys = [key for key in keys if not isinstance(key, str) or key.isascii()] or keys  # any database has those
        try:
            with self._statement():
                return inspect_query(self._engine, self._query, keys)
        except _FAILURES as error:
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
            except _FAILURES as error:
                found += problem_findings((_no_answer(error),))
        unfit = {one.aspect for one in found if one.fitness is Fitness.UNFIT}
        return tuple(one for one in found if one.fitness is Fitness.UNFIT or one.aspect not in unfit)

    def collation(self, keys: Sequence[KeyValue]) -> QueryFinding:
        """Whether the database takes other keys for some that it has. Raises nothing."""
        twisted = twisted_keys(keys)
        rows: Sequence[Sequence[object]] | None = None
        if twisted:
            with suppress(*_FAILURES), self._statement():
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
        except _FAILURES as error:
            self._misses += 0 if _is_of_keys(error) else 1
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


def _is_of_keys(error: Exception) -> bool:
    """Whether the database, or its driver, cannot take one of the keys: it answers, and others may be had."""
    cause: BaseException | None = error
    while cause is not None:
        driver = getattr(cause, "orig", None) or cause
        is_refused = isinstance(driver, UnicodeError) or "DataError" in class_names(driver)
        number = next(iter(driver.args), None)
        if is_refused or (isinstance(number, int) and number in _OTHER_CHARACTERS):
            return True
        cause = cause.__cause__
    return False


def _no_answer(error: Exception) -> Fact:
    text = str(error if isinstance(error, ReconcilerError) else driver_error(error))
    return NO_ANSWER(why=" ".join(text.split())[:300])

"""Asks a database by a query of the business's own tables. Each statement is one SELECT in a read-only transaction of
at most 2 s. At most one statement is sent per second. Only a primary's answer counts."""

from __future__ import annotations

import sqlite3
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
from reconciler.evidence.business_query_examination import (
    collation_finding,
    examine_query,
    problem_findings,
    role_finding,
    twisted_keys,
)
from reconciler.evidence.business_query_inspection import Inspection, inspect_query
from reconciler.policy.commit_query import (
    BusinessAnswer,
    BusinessQuery,
    KeyValue,
    asked_apart,
    in_statements,
    judge_rows,
    key_not_asked,
    unknown,
)
from reconciler.policy.commit_query_dry_run import Fitness, QueryAspect, QueryFinding
from reconciler.sql.driver_errors import OTHERS_TABLES_OPTION, class_names, driver_error
from reconciler.sql.engines import open_engine
from reconciler.sql.witness_database import WitnessDatabase

#: Longest time of a statement, and least pause before the next statement.
STATEMENT_SECONDS = 2.0
_BETWEEN_SECONDS = 1.0
#: After this number of statements in a row without an answer, no statement is sent for _REST_SECONDS.
_MISSES_MAX = 3
_REST_SECONDS = 60.0
_LOCK_SECONDS = 1.0
#: Maximum number of statements of one call, including those that ask again without keys that spoil the rows. Each
#: statement takes a second.
_STATEMENTS_MAX = 8
#: Maximum number of halvings of keys in _HALVINGS_SECONDS. A halving searches for a key that the database cannot take.
#: Ten halvings find one of 500 keys.
_HALVINGS_MAX = 10
_HALVINGS_SECONDS = 60.0
#: A key that the database cannot take is left out for _STRANGE_SECONDS. At most _STRANGE_MAX such keys are remembered.
_STRANGE_SECONDS = 600.0
_STRANGE_MAX = 1_000
#: Errors of MySQL and MariaDB for a text with characters that a column cannot contain.
_OTHER_CHARACTERS = frozenset({1267, 1270, 1271, 1300, 1366, 3854, 3988})
_FAILURES = (ReconcilerError, SQLAlchemyError, UnicodeError)
#: Maximum number of bytes of one row or text of SQLite. SQLite checks no clock while it makes a text, and a text could
#: have a gigabyte.
_SQLITE_BYTES_MAX = 32 << 20
#: Instructions of SQLite between two checks of the clock.
_SQLITE_STEPS = 10_000


class SqlBusinessQuery:
    """One query for one database. Used by one thread only."""

    def __init__(self, query: BusinessQuery, url: Secret, *, clock: Clock) -> None:
        """Connects at the first question. Raises InvalidValue for a malformed URL, and MissingDependency for a missing
        driver."""
        self._query = query
        self._clock = clock
        self._engine = open_engine(
            url,
            read_only=True,
            must_exist=True,
            lock_timeout_seconds=_LOCK_SECONDS,
            statement_seconds=STATEMENT_SECONDS,
        )
        self._engine.update_execution_options(**{OTHERS_TABLES_OPTION: True})
        self._deadline = 0.0
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", self._end_sqlite_statements)
        # The role is read from the server alone, because the database has none of the reconciler's tables.
        self._database = WitnessDatabase(self._engine, sa.Table("business_query", sa.MetaData()), clock=clock)
        self._next_at = 0.0
        self._misses = 0
        #: When keys were halved, in monotonic seconds.
        self._halved_at: deque[float] = deque(maxlen=_HALVINGS_MAX)
        #: Key that the database cannot take -> (why, monotonic seconds until which the key is left out).
        self._strange: dict[KeyValue, tuple[Fact, float]] = {}

    def ask(self, keys: Sequence[KeyValue]) -> dict[KeyValue, BusinessAnswer | None]:
        """Returns the query's answers about at most KEYS_MAX keys. An answer is None if the primary has no row. Raises
        nothing.

        Keys that a collation may treat as equal are asked for separately. If some keys spoil the rows of others, the
        others are asked for again. A key that the database cannot take is found by halving, and left out for a while.
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
                # Added at the front, so that the halving finds at least one of several such keys before it stops.
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
        """Sends one statement. Returns the answers, the keys to ask for again, and whether the statement failed because
        of its keys."""
        if (rest := self._rest()) is not None:
            return dict.fromkeys(keys, unknown(rest)), [], False
        try:
            with self._statement():
                role, rows = self._database.ask(self._query.sql, keys, rows_max=self._query.rows_max)
        except _FAILURES as error:
            why, is_of_keys = _no_answer(error), _is_of_keys(error)
            return dict.fromkeys(keys, unknown(why)), self._halves(keys, why) if is_of_keys else [], is_of_keys
        if role.is_primary is not True:
            return dict.fromkeys(keys, unknown(NOT_THE_PRIMARY())), [], False
        return judge_rows(self._query, set(keys), rows), asked_apart(self._query, keys, rows), False

    def _rest(self) -> Fact | None:
        """Returns the fact that no statement is sent now, after several without an answer. None: one may be sent."""
        rests = self._misses >= _MISSES_MAX and self._clock.monotonic_seconds() < self._next_at
        return RESTS(times=self._misses) if rests else None

    def _halves(self, keys: Sequence[KeyValue], why: Fact) -> list[Sequence[KeyValue]]:
        """Returns the two halves of the keys, one of which contains a key that the database cannot take. Returns no
        keys after _HALVINGS_MAX halvings in a minute. Remembers a single key."""
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
        """Returns the problems of the query. `keys`: some keys of halves, with which the query is tried. Raises
        nothing."""
        if (rest := self._rest()) is not None:
            return Inspection(problems=(rest,))
        # every database accepts ASCII keys
        keys = [key for key in keys if not isinstance(key, str) or key.isascii()] or keys
        try:
            with self._statement():
                return inspect_query(self._engine, self._query, keys)
        except _FAILURES as error:
            return Inspection(problems=(_no_answer(error),))

    def examine(self, keys: Sequence[KeyValue]) -> tuple[QueryFinding, ...]:
        """Returns the findings about query, login and database before the first answer. `keys`: some keys of halves,
        with which the query is tried. Raises nothing."""
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
        """Returns the finding about the collation: whether the database treats other keys as equal to stored keys.
        Raises nothing."""
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
        """Surrounds one statement, and waits for its turn. Each statement has its own connection, because a query may
        leave settings in its session."""
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
        """Ends long statements and large texts of SQLite, because SQLite has no server that would end them."""
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_BYTES_MAX)
        connection.set_progress_handler(lambda: self._clock.monotonic_seconds() > self._deadline, _SQLITE_STEPS)


def _is_of_keys(error: Exception) -> bool:
    """Returns True if the database or its driver cannot take one of the keys. Other keys may then still have an
    answer."""
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

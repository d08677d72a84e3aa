"""The ledger's database: transactions, database time, and inserts that leave existing rows unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from reconciler.clock import Clock, SystemClock
from reconciler.contract.facts import Fact
from reconciler.contract.row_rules import aged_by_ms
from reconciler.errors import InvariantViolation
from reconciler.ledger.repair_answers import RepairAnswers
from reconciler.sql.database_time import asked_once, now_ms
from reconciler.sql.engines import reading, writing
from reconciler.sql.table_shapes import LedgerTransactions, has_engines

#: Maximum number of rows of one statement. SQLite allows 32 766 parameters, and a candidate row has 14.
ROWS_A_STATEMENT = 500


def no_english(fact: Fact) -> str:
    """The default of `english`, for a ledger that is only read, or for tables without facts. Raises
    InvariantViolation."""
    raise InvariantViolation(f"{fact.code.name}: this ledger was opened without the words for facts")


class LedgerDatabase:
    """One engine and its clock. Thread-safe: the engine's pool gives each transaction its own connection.

    `now` makes the SQL expression of database time for a dialect. The simulator passes an expression of its own.
    `clock` is the host's. `english` writes the text of a fact, for releases that read only texts.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        now: Callable[[str], sa.ColumnElement[int]] = now_ms,
        clock: Clock | None = None,
        english: Callable[[Fact], str] = no_english,
    ) -> None:
        self.engine = engine
        self._now = now
        self.clock = clock or SystemClock()
        self.english = english
        self._transactions = LedgerTransactions(self.clock)
        #: One value for all users, so that a missing column is asked for once, and logged once.
        self.answers = RepairAnswers(english)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Opens one read-write transaction. Raises DatabaseAway, also if a table of the ledger has no transactions."""
        with writing(self.engine) as connection:
            self._transactions.require(connection)
            yield connection

    def require_transactions(self) -> None:
        """Raises DatabaseAway if a table of the ledger has no transactions."""
        if has_engines(self.engine):
            with reading(self.engine) as connection:
                self._transactions.require(connection)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Opens one read-only transaction. Raises DatabaseAway."""
        with reading(self.engine) as connection:
            yield connection

    def now(self) -> sa.ColumnElement[int]:
        """Returns database time in milliseconds as an expression."""
        return self._now(self.engine.dialect.name)

    def read_now_ms(self, connection: sa.Connection) -> int:
        """Reads database time."""
        return int(connection.execute(sa.select(self.now())).scalar_one())

    def read_age_ms(self, connection: sa.Connection) -> int:
        """Returns the time from which the age of rows is measured before their deletion (aged_by_ms)."""
        return aged_by_ms(self.read_now_ms(connection), self.clock.now_ms())

    def before(self, milliseconds: int) -> sa.ColumnElement[int]:
        """Returns database time minus the milliseconds, as an expression to compare rows with."""
        return asked_once(self.now() - milliseconds, self.engine.dialect.name)

    @property
    def tells_inserted(self) -> bool:
        """True if `insert_returning` works with this database, known after the first connection. MySQL, and SQLite
        before 3.35, have no RETURNING.

        MariaDB's RETURNING also returns rows that existed before.
        """
        dialect = self.engine.dialect
        return dialect.name in {"postgresql", "sqlite"} and dialect.insert_returning

    def insert_returning(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], *, returned: sa.Column[str]
    ) -> frozenset[str]:
        """Inserts the rows whose primary key is missing, many per statement. Returns the column `returned` of the new
        rows.

        All rows have the same columns.
        """
        if not rows:
            return frozenset()
        is_postgresql = self.engine.dialect.name == "postgresql"
        statement = self._insert_missing(table)
        if is_postgresql:
            statement = _from_document(statement, table, list(rows[0]))
        inserted: set[str] = set()
        for chunk in chunks(rows, ROWS_A_STATEMENT):
            values = [dict(row) for row in chunk]
            given: Any = {"given_rows": values} if is_postgresql else values
            inserted.update(connection.execute(statement.returning(returned), given).scalars())
        return frozenset(inserted)

    def insert_missing(self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Inserts the rows whose primary key is missing.

        All rows have the same columns. An SQL expression (database time) must be the same in every row. The expression
        is evaluated once. So the statement's text does not depend on the number of rows, and drivers can send many rows
        at once. On MySQL, the statement is an UPDATE without effect, because INSERT IGNORE would also hide truncated
        values.
        """
        if not rows:
            return
        asked = {name: value for name, value in rows[0].items() if isinstance(value, sa.ColumnElement)}
        made: dict[str, Any] = {}
        if asked:
            made = dict(connection.execute(sa.select(*(v.label(n) for n, v in asked.items()))).mappings().one())
        statement = self._insert_missing(table)
        for chunk in chunks(rows, ROWS_A_STATEMENT):
            connection.execute(statement, [dict(row) | made for row in chunk])

    def _insert_missing(self, table: sa.Table) -> sa.Insert:
        primary_key = [column.name for column in table.primary_key.columns]
        match self.engine.dialect.name:
            case "postgresql":
                return postgresql.insert(table).on_conflict_do_nothing(index_elements=primary_key)
            case "sqlite":
                return sqlite.insert(table).on_conflict_do_nothing(index_elements=primary_key)
            case _:
                same = {primary_key[0]: table.c[primary_key[0]]}
                return mysql.insert(table).on_duplicate_key_update(same)


def _from_document(statement: Any, table: sa.Table, names: list[str]) -> Any:
    """Returns a statement that inserts all rows from one JSON parameter. The statement's text is the same for any
    number of rows, so the database parses and plans the statement once."""
    document = sa.bindparam("given_rows", type_=postgresql.JSON())
    columns = [sa.column(name, table.c[name].type) for name in names]
    given = sa.func.json_to_recordset(document).table_valued(*columns, name="given")
    return statement.from_select(names, sa.select(given.render_derived(with_types=True)))


def chunks(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yields slices of at most `size` values."""
    for start in range(0, len(values), size):
        yield values[start : start + size]

"""The outbox in SQL. `record` uses the caller's transaction. Every other method uses connections of the producer.

Only a visible row that is not ROLLED_BACK proves a commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError

from checkback_producers.errors import KeyTaken, RolledBackAlready
from checkback_producers.ports import Apart, CheckedHalf, OutboxEntry, OutboxPage
from reconciler.clock import Clock, SystemClock
from reconciler.contract.defaults import STATEMENT_SECONDS
from reconciler.contract.row_rules import aged_by_ms
from reconciler.contract.row_values import RowReader
from reconciler.contract.secret import Secret
from reconciler.contract.tables import OUTBOX, OutboxState
from reconciler.contract.unique_key import require_unique_key
from reconciler.errors import ConfigurationError, DatabaseAway, InvalidValue, MalformedInput
from reconciler.policy.sweeping import OutboxFact, SettledTags
from reconciler.sql.awaited_connection import AwaitedConnection, on_connection, wait_for
from reconciler.sql.callers_connection import CallersConnection, UnsafeConnection
from reconciler.sql.database_time import asked_once, database_now_ms, now_ms, now_ms_sql
from reconciler.sql.driver_errors import driver_error, is_integrity_error, lacks_schema, shown, translate_driver_error
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.folded_names import FOLDED_REMEDY
from reconciler.sql.identity import SIGN_OF_LIFE_ID, read_identity
from reconciler.sql.kept_texts import require_kept, texts_in_doubt
from reconciler.sql.key_probes import has_key
from reconciler.sql.pools import close_engine
from reconciler.sql.silence import silence_of
from reconciler.sql.single_statements import MARKERS, SingleStatements
from reconciler.sql.table_shapes import require_transactions
from reconciler.sql.tables import outbox, outbox_filter, outbox_identity
from reconciler.sql.timely_pages import TimelyPages
from reconciler.sql.witness_database import WitnessDatabase

#: The longest time for which the insert of a tombstone waits for a transaction that holds the key.
TOMBSTONE_LOCK_SECONDS = 2.0
#: The savepoint that precedes a row whose texts the database may change.
_SAVEPOINT = "reconciler_outbox_texts"
#: The most rows that one statement marks as announced.
MARKED_KEYS_MAX = 1_000
#: The most producer groups whose oldest rows one statement reads.
ASKED_GROUPS_MAX = 500

_ENTRY_COLUMNS = tuple(column.name for column in fields(OutboxEntry))
_entry_values = attrgetter(*_ENTRY_COLUMNS)
_FACT_NAMES = ("unique_key", "topic", "tag", "state", "created_at_ms", "announced_at_ms")
_COMPARED_NAMES = (*_FACT_NAMES, "content_digest")
_TOMBSTONE_NAMES = ("unique_key", "topic", "producer_group", "tag")
_TOMBSTONES = RowReader(OUTBOX, _TOMBSTONE_NAMES)
_FACTS = RowReader(OUTBOX, _FACT_NAMES, otherwise={"state": OutboxState.NEW})
_COMPARED_FACTS = RowReader(OUTBOX, _COMPARED_NAMES, otherwise={"state": OutboxState.NEW})

#: MySQL and MariaDB: a packet is too large (1153); the connection was closed while the packet was sent (2006) or after
#: (2013).
_CLOSED_BY_MYSQL = (1153, 2006, 2013)
_PACKETS_A_BODY = 3
_FINISHED = (OutboxState.SETTLED.value, OutboxState.ROLLED_BACK.value)


class SqlOutbox:
    """The port Outbox over SQLite, PostgreSQL or MariaDB/MySQL. Thread-safe. A process that forks must create it after
    the fork."""

    def __init__(
        self,
        url: Secret,
        *,
        pool_size: int = 5,
        clock: Clock | None = None,
        statement_seconds: float = STATEMENT_SECONDS,
    ) -> None:
        """Raises InvalidValue for a malformed URL and MissingDependency for a missing driver. Connects later, at the
        first statement.

        `statement_seconds` is the deadline of each statement on the outbox's own connections.
        """
        self._clock = clock or SystemClock()
        self.engine = open_engine(
            url,
            lock_timeout_seconds=TOMBSTONE_LOCK_SECONDS,
            pool_size=pool_size,
            statement_seconds=statement_seconds,
        )
        self._single = SingleStatements(
            url,
            lock_timeout_seconds=TOMBSTONE_LOCK_SECONDS,
            pool_size=pool_size,
            statement_seconds=statement_seconds,
        )
        self._dialect = "mysql" if self.engine.dialect.name == "mariadb" else self.engine.dialect.name
        self._witness = WitnessDatabase(self.engine, outbox)
        self._pages = TimelyPages()
        self._identity: str | None = None

    def identity(self) -> str:
        """Returns the database's identity, which is read once. Raises DatabaseAway. Raises ConfigurationError if the
        table or its row is missing, or if the outbox has no transactions."""
        if self._identity is None:
            require_transactions(self.engine, OUTBOX.name)
            self._identity = read_identity(self.engine)
        return self._identity

    def record(self, connection: object, entry: OutboxEntry) -> CallersConnection:
        """Inserts the row in the caller's transaction. The same statement compares the database's identity.

        Can raise UnsafeConnection, RolledBackAlready, KeyTaken, DatabaseAway, and ConfigurationError if the table is
        missing. After each error the caller's transaction must be rolled back. If the database has changed a text,
        removes the row and raises InvalidValue. Raises InvalidValue, too, for a body above the server's
        max_allowed_packet. Other errors of the driver pass through.
        """
        return self._record(CallersConnection(connection), entry, self._refuse)

    async def record_awaited(self, connection: object, entry: OutboxEntry, apart: Apart) -> CallersConnection:
        """Does what record() does, on an asynchronous connection. `apart` runs the blocking steps outside the caller's
        loop."""

        def refuse(error: Exception, entry: OutboxEntry) -> None:
            wait_for(apart(partial(self._refuse, error, entry)))

        return await on_connection(connection, lambda given: self._record(AwaitedConnection(given), entry, refuse))

    def _record(
        self, local: CallersConnection, entry: OutboxEntry, refuse: Callable[[Exception, OutboxEntry], None]
    ) -> CallersConnection:
        identity = self.identity()
        if local.is_pipelined:
            raise UnsafeConnection("the connection is in pipeline mode, where nothing tells whether a row was written")
        if local.dialect != self._dialect:
            raise UnsafeConnection(f"the connection is to {local.dialect}, the outbox is in {self.engine.dialect.name}")
        values = _entry_values(entry)
        in_doubt = texts_in_doubt(local.dialect, OUTBOX, dict(zip(_ENTRY_COLUMNS, values, strict=True)))
        try:
            if in_doubt:
                local.execute(f"SAVEPOINT {_SAVEPOINT}", ())
            written = local.execute(_record_sql(local.dialect, local.marker), (*values, identity))
        except Exception as error:
            refuse(error, entry)
            raise
        if written != 1:
            raise self._another_database()
        if (silence := silence_of(self.engine)) is not None:
            # The caller's connection has shown that the database answers, so the end of the block may read at once.
            silence.note_answered()
        if in_doubt:
            self._require_kept(local, entry.unique_key, in_doubt)
        return local

    def find(self, unique_key: str) -> OutboxFact | None:
        """Returns the committed row, or None. Raises DatabaseAway. Raises MalformedInput for a damaged key or row.
        Raises MalformedInput, too, if the database takes the row of another key for this key's row."""
        row = self._single.select_one(_find_sql(self._dialect), (require_unique_key(unique_key),))
        if row is None:
            return None
        fact = _fact(row)
        if fact.damage is not None:
            raise MalformedInput(f"outbox row of {unique_key}: {fact.damage}")
        if fact.unique_key != unique_key:
            other = f"{shown(self.engine)} takes {fact.unique_key} for the same"
            raise MalformedInput(f"outbox row of {unique_key}: {other}; {FOLDED_REMEDY}")
        return fact

    def insert_tombstone(self, half: CheckedHalf) -> bool:
        """Returns True if the tombstone was inserted and committed. Returns False if the key exists (error 1062 of
        MySQL and its equivalents).

        Raises DatabaseAway. Raises MalformedInput if the database would refuse or change the half's fields.
        """
        values = {name: getattr(half, name) for name in _TOMBSTONE_NAMES}
        if (damage := _TOMBSTONES.parse([*values.values()]).damage) is not None:
            raise MalformedInput(f"half of {half.unique_key!a}: {damage}")
        statement = sa.insert(outbox).values(
            **values,
            state=OutboxState.ROLLED_BACK.value,
            created_at_ms=now_ms(self.engine.dialect.name),
        )
        try:
            with writing(self.engine) as connection:
                connection.execute(statement)
        except IntegrityError:
            return False
        # NUL, a lone surrogate, or a character that the database's encoding lacks
        except (DataError, UnicodeError) as error:
            raise MalformedInput(
                f"half of {half.unique_key}: {shown(self.engine)} does not take it: {error!s:.300}"
            ) from error
        return True

    def mark_announced(self, unique_keys: Sequence[str]) -> int:
        """Makes NEW rows ANNOUNCED. NEW and ANNOUNCED rows get the time of the announcement. Raises DatabaseAway."""
        return self._mark(unique_keys, _announced_sql)

    def mark_settled(self, unique_keys: Sequence[str]) -> int:
        """Makes ANNOUNCED rows SETTLED. Raises DatabaseAway."""
        return self._mark(unique_keys, _settled_sql)

    def unannounced(
        self,
        producer_group: str,
        *,
        older_than_seconds: float,
        limit: int,
        after: OutboxFact | None = None,
        with_key: bool = False,
    ) -> OutboxPage:
        """Returns NEW rows, beginning with the oldest row. Raises DatabaseAway."""
        at = outbox.c.created_at_ms
        query = self._query(_FACT_NAMES, producer_group, OutboxState.NEW, at)
        if with_key:
            query = query.where(has_key(outbox.c.unique_key, self.engine.dialect.name))

        def page(after: OutboxFact | None, limit: int) -> OutboxPage:
            behind = query if after is None else query.where(_is_behind(at, after.created_at_ms, after))
            return self._due_page(behind, at, _FACTS, older_than_seconds=older_than_seconds, limit=limit)

        return self._in_time(page, after, limit)

    def with_due_rows(self, producer_groups: Sequence[str], *, older_than_seconds: float) -> frozenset[str]:
        """Checks the oldest row of each group, which is the group's first row in the index. Raises DatabaseAway."""
        due: list[str] = []
        for first in range(0, len(producer_groups), ASKED_GROUPS_MAX):
            groups = producer_groups[first : first + ASKED_GROUPS_MAX]
            asked_ms, *oldest = self._single.select_one(_oldest_new_sql(self._dialect, len(groups)), groups) or ()
            until_ms = int(asked_ms) - int(older_than_seconds * 1000)
            due += (g for g, at in zip(groups, oldest, strict=True) if isinstance(at, int) and at <= until_ms)
        return frozenset(due)

    def announced(
        self, producer_group: str, *, older_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns ANNOUNCED rows, sorted by the time of their last announcement. Raises DatabaseAway."""
        at = outbox.c.announced_at_ms
        query = self._query(_COMPARED_NAMES, producer_group, OutboxState.ANNOUNCED, at)

        def page(after: OutboxFact | None, limit: int) -> OutboxPage:
            behind = query if after is None else query.where(_is_behind(at, after.announced_at_ms, after))
            return self._due_page(behind, at, _COMPARED_FACTS, older_than_seconds=older_than_seconds, limit=limit)

        return self._in_time(page, after, limit)

    def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
        """Deletes old SETTLED and ROLLED_BACK rows in one transaction. Rows must be old by this host's clock, too.
        Otherwise, a database whose clock jumps ahead would delete tombstones too early. Raises DatabaseAway."""
        with reading(self.engine) as connection:
            until = self._aged_until_ms(connection, older_than_seconds)
            find = (
                sa.select(outbox.c.unique_key)
                .where(outbox.c.producer_group == producer_group, outbox.c.created_at_ms <= until)
                .order_by(outbox.c.created_at_ms)  # the order of the index; a row is settled after it was created
            )
            settled = find.where(outbox.c.state == OutboxState.SETTLED.value, outbox.c.settled_at_ms <= until)
            rolled_back = find.where(outbox.c.state == OutboxState.ROLLED_BACK.value)
            keys = list(connection.execute(settled.limit(limit)).scalars())
            if len(keys) < limit:
                keys += connection.execute(rolled_back.limit(limit - len(keys))).scalars()
        if not keys:
            return 0
        # Both states are final, so rows that were found may be deleted by key.
        remove = sa.delete(outbox).where(outbox.c.unique_key.in_(keys), outbox.c.state.in_(_FINISHED))
        with writing(self.engine) as connection:
            return connection.execute(remove).rowcount

    def settled_tags(self, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
        """Reads the table. Raises DatabaseAway. Raises ConfigurationError if the table is missing, and MalformedInput
        if a version is missing."""
        return settled_tags_in(self.engine, producer_group)

    def write_settled_tags(
        self, producer_group: str, subscription: tuple[str, str], tags: frozenset[str] | None, *, instead_of: int | None
    ) -> bool:
        """Inserts or replaces one row. Raises DatabaseAway. Raises ConfigurationError if the table is missing."""
        text = json.dumps("*" if tags is None else sorted(tags))
        key = {"producer_group": producer_group, "topic": subscription[0], "consumer_group": subscription[1]}
        if instead_of is None:
            try:
                with writing(self.engine) as connection:
                    connection.execute(sa.insert(outbox_filter).values(**key, tags=text, version=1))
            except IntegrityError:
                return False
            return True
        replace_it = (
            sa.update(outbox_filter)
            .where(*(outbox_filter.c[name] == value for name, value in key.items()))
            .where(outbox_filter.c.version == instead_of)
            .values(tags=text, version=instead_of + 1)
        )
        with writing(self.engine) as connection:
            return connection.execute(replace_it).rowcount == 1

    def written(
        self, producer_group: str, *, younger_than_seconds: float, limit: int, after: OutboxFact | None
    ) -> OutboxPage:
        """Returns rows, sorted by the time of their writing. The statement names no state, because a planner might then
        sort all rows. A row that is young by this host's clock counts as young. Raises DatabaseAway."""
        at = outbox.c.created_at_ms
        with reading(self.engine) as connection:
            since_ms = self._aged_until_ms(connection, younger_than_seconds)
        query = (
            sa.select(*(outbox.c[name] for name in _COMPARED_NAMES))
            .where(outbox.c.producer_group == producer_group, at > since_ms)
            .order_by(at, outbox.c.unique_key)
        )

        def page(after: OutboxFact | None, limit: int) -> OutboxPage:
            behind = query if after is None else query.where(_is_behind(at, after.created_at_ms, after))
            return self._page(_COMPARED_FACTS, behind, limit=limit)

        return self._in_time(page, after, limit)

    def reopen(self, unique_keys: Sequence[str]) -> int:
        """Makes SETTLED and ANNOUNCED rows NEW again. Raises DatabaseAway."""
        return self._mark(unique_keys, _reopened_sql)

    def mark_swept(self) -> None:
        """Writes database time into the row of the sign of life. Can raise DatabaseAway and ConfigurationError."""
        write = (
            sa.update(outbox_identity)
            .where(outbox_identity.c.id == SIGN_OF_LIFE_ID, self._witness.is_no_replica())
            .values(swept_at_ms=now_ms(self.engine.dialect.name))
        )
        with writing(self.engine) as connection:
            written = connection.execute(write).rowcount
        if written != 1:
            raise ConfigurationError(
                f"{shown(self.engine)}: it is a replica: point outbox_url at the primary; or "
                f"{outbox_identity.name} lacks row {SIGN_OF_LIFE_ID}: run reconciler db upgrade outbox, or call "
                "ensure_identity"
            )

    def close(self) -> None:
        """Closes the pools' idle connections."""
        close_engine(self.engine)
        self._single.close()

    def _require_kept(self, local: CallersConnection, unique_key: str, sent: Mapping[str, str]) -> None:
        """Removes the row if the database changed a text, because a service that continues after the refusal would
        commit the changed row."""
        try:
            require_kept(local, OUTBOX, {"unique_key": unique_key}, sent)
        except InvalidValue:
            local.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}", ())
            raise
        local.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}", ())

    def _refuse(self, error: Exception, entry: OutboxEntry) -> None:
        unique_key = entry.unique_key
        original = driver_error(error)
        if is_integrity_error(original):
            # The row is read on our own connection, because PostgreSQL has aborted the caller's transaction.
            fact = self.find(unique_key)
            if fact is not None and not fact.is_committed:
                raise RolledBackAlready(
                    f"{unique_key}: check-back was answered ROLLBACK before the local transaction had recorded; roll "
                    "it back and run it again (local_transaction_timeout_seconds may be too short)"
                ) from error
            if fact is not None:
                raise KeyTaken(f"{unique_key}: the outbox has a row of another transaction under this key") from error
        if lacks_schema(str(original)):
            self.find(unique_key)  # raises if the outbox itself lacks a table or column
            read_identity(self.engine)
            raise self._another_database() from error
        translated = translate_driver_error(original, self.engine)
        if translated is not None:
            self._require_fitting(original, entry.body or b"")
            raise translated from error

    def _another_database(self) -> UnsafeConnection:
        return UnsafeConnection(
            f"the connection is to another database than {shown(self.engine)}: outbox row and business would not "
            "be one transaction; pass a connection of the business to the producer's own database"
        )

    def _require_fitting(self, error: Exception, body: bytes) -> None:
        """Raises InvalidValue if the server closed the connection because the body is too long."""
        if next(iter(error.args), None) not in _CLOSED_BY_MYSQL:
            return
        with suppress(DatabaseAway), reading(self.engine) as connection:
            packet_bytes = int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
            # A driver may send each byte as two bytes. MariaDB 10.11 was seen to refuse bodies of half the length that
            # it states.
            if 2 * len(body) >= packet_bytes:
                remedy = (
                    f"the server's max_allowed_packet is {packet_bytes}: raise it to {_PACKETS_A_BODY} times the "
                    "largest body, send a smaller one, or do not keep bodies (keep_bodies)"
                )
                raise InvalidValue("body", f"{len(body)} bytes", remedy) from error

    def _mark(self, unique_keys: Sequence[str], sql: Callable[[str, int], str]) -> int:
        touched = 0
        for first in range(0, len(unique_keys), MARKED_KEYS_MAX):
            # sorted, so that two writers lock rows in the same order
            keys = sorted(unique_keys[first : first + MARKED_KEYS_MAX])
            if self._dialect == "postgresql":
                touched += self._single.update(sql(self._dialect, 1), (keys,))
            else:
                touched += self._single.update(sql(self._dialect, len(keys)), keys)
        return touched

    def _query(
        self,
        names: Sequence[str],
        producer_group: str,
        state: OutboxState,
        at: sa.ColumnElement[Any],
    ) -> sa.Select[Any]:
        return (
            sa.select(*(outbox.c[name] for name in names))
            .where(outbox.c.state == state.value, outbox.c.producer_group == producer_group)
            .order_by(at, outbox.c.unique_key)
        )

    def _aged_until_ms(self, connection: sa.Connection, older_than_seconds: float) -> int:
        return aged_by_ms(database_now_ms(connection), self._clock.now_ms()) - int(older_than_seconds * 1000)

    def _until(self, older_than_seconds: float) -> sa.ColumnElement[int]:
        dialect = self.engine.dialect.name
        return asked_once(now_ms(dialect) - int(older_than_seconds * 1000), dialect)

    def _due_page(
        self,
        query: sa.Select[Any],
        at: sa.ColumnElement[Any],
        reader: RowReader,
        *,
        older_than_seconds: float,
        limit: int,
    ) -> OutboxPage:
        """Returns old rows, then rows of the future. Rows of the future were written before the clock was set back, and
        may have any age. Both kinds are ranges of the index. For one combined condition, a database would read all rows
        between the two ranges."""
        old, future = query.where(at <= self._until(older_than_seconds)), query.where(at > self._until(0))
        return self._page(reader, old, future, limit=limit)

    def _in_time(
        self, page: Callable[[OutboxFact | None, int], OutboxPage], after: OutboxFact | None, limit: int
    ) -> OutboxPage:
        """Reads a page in pieces. Each piece is small enough for the database's deadline."""
        read_ms = 0

        def piece(after: OutboxFact | None, rows: int) -> Sequence[OutboxFact]:
            nonlocal read_ms
            read = page(after, rows)
            read_ms = read.now_ms
            return read.facts

        facts = self._pages.read(limit, after, piece, place_of=lambda fact: fact)
        return OutboxPage(facts=tuple(facts), now_ms=read_ms)

    def _page(self, reader: RowReader, *queries: sa.Select[Any], limit: int) -> OutboxPage:
        facts: list[OutboxFact] = []
        with reading(self.engine) as connection:
            for query in queries:
                if len(facts) < limit:
                    facts += [_fact(row, reader) for row in connection.execute(query.limit(limit - len(facts)))]
            return OutboxPage(facts=tuple(facts), now_ms=database_now_ms(connection))


def settled_tags_in(engine: sa.Engine, producer_group: str) -> Mapping[tuple[str, str], SettledTags]:
    """Returns what Outbox.settled_tags returns, on any connection."""
    query = sa.select(outbox_filter).where(outbox_filter.c.producer_group == producer_group)
    with reading(engine) as connection:
        return {
            (row.topic, row.consumer_group): SettledTags(tags=_tags(row.tags), version=_version(row.version))
            for row in connection.execute(query)
        }


def _is_behind(at: sa.ColumnElement[Any], at_ms: int | None, after: OutboxFact) -> sa.ColumnElement[bool]:
    # The first condition lets the database start at a place in an index.
    return sa.and_(at >= at_ms, sa.or_(at > at_ms, outbox.c.unique_key > after.unique_key))


@cache
def _record_sql(dialect: str, marker: str) -> str:
    # One statement checks and writes, so that the row is written only into the database with the producer's identity.
    columns = ", ".join((*_ENTRY_COLUMNS, "state", "created_at_ms"))
    markers = ", ".join([marker] * len(_ENTRY_COLUMNS))
    return (
        f"INSERT INTO {outbox.name} ({columns}) SELECT {markers}, '{OutboxState.NEW}', "  # noqa: S608  # names of ours
        f"{now_ms_sql(dialect)} FROM {outbox_identity.name} WHERE id = 1 AND identity = {marker}"
    )


@cache
def _find_sql(dialect: str) -> str:
    columns = ", ".join(_FACT_NAMES)
    return f"SELECT {columns} FROM {outbox.name} WHERE unique_key = {MARKERS[dialect]}"  # noqa: S608  # names of ours


@cache
def _oldest_new_sql(dialect: str, groups: int) -> str:
    # Each server reads a smallest value from the first entry of the index. With a comparison of times, a server might
    # read the table.
    of_group = f"state = '{OutboxState.NEW}' AND producer_group = {MARKERS[dialect]}"
    oldest = f", (SELECT MIN(created_at_ms) FROM {outbox.name} WHERE {of_group})"  # noqa: S608  # names of ours
    return f"SELECT {now_ms_sql(dialect)}{oldest * groups}"


def _tags(text: object) -> frozenset[str] | None:
    try:
        tags = json.loads(str(text))
    except ValueError:
        return frozenset()
    if tags == "*":
        return None
    return frozenset(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else frozenset()


def _version(value: object) -> int:
    if not isinstance(value, int):
        raise MalformedInput(f"{outbox_filter.name}.version is {value!r}")
    return value


def _announced_sql(dialect: str, keys: int) -> str:
    before = (OutboxState.NEW, OutboxState.ANNOUNCED)
    return _mark_sql(dialect, keys, before, OutboxState.ANNOUNCED, f"announced_at_ms = {now_ms_sql(dialect)}")


def _settled_sql(dialect: str, keys: int) -> str:
    is_settled = f"settled_at_ms = {now_ms_sql(dialect)}"
    return _mark_sql(dialect, keys, (OutboxState.ANNOUNCED,), OutboxState.SETTLED, is_settled)


def _reopened_sql(dialect: str, keys: int) -> str:
    before = (OutboxState.ANNOUNCED, OutboxState.SETTLED)
    return _mark_sql(dialect, keys, before, OutboxState.NEW, "settled_at_ms = NULL")


@cache
def _mark_sql(dialect: str, keys: int, before: tuple[OutboxState, ...], after: OutboxState, time: str) -> str:
    markers = ", ".join([MARKERS[dialect]] * keys)
    states = ", ".join(f"'{state}'" for state in before)
    # PostgreSQL gets all keys as one array, which its planner does not look into. For a list, the planner would
    # estimate every key.
    wanted = f"= ANY((SELECT {markers})::varchar[])" if dialect == "postgresql" else f"IN ({markers})"
    marked = f"unique_key {wanted} AND state IN ({states})"
    if dialect == "postgresql":
        # Rows are locked in the order of their keys. An UPDATE alone would lock rows in the order of its plan, and two
        # plans may deadlock.
        marked = f"unique_key IN (SELECT unique_key FROM {outbox.name} WHERE {marked} ORDER BY unique_key FOR UPDATE)"  # noqa: S608  # names of ours
    return f"UPDATE {outbox.name} SET state = '{after}', {time} WHERE {marked}"  # noqa: S608  # names of ours


def _fact(row: Sequence[Any], reader: RowReader = _FACTS) -> OutboxFact:
    read = reader.parse(row)
    fact = OutboxFact(**read.values | {"state": OutboxState(read.values["state"]), "damage": read.damage})
    if read.damage is None:
        return fact
    # The next page begins after the key and the times of the last row, exactly as the row has them.
    key, _, _, _, created_at_ms, announced_at_ms = row[: len(_FACT_NAMES)]
    return replace(fact, unique_key=key, created_at_ms=created_at_ms, announced_at_ms=announced_at_ms)

"""reconciler_round and reconciler_floor: the rounds that ran, and the offsets from which announcements are read again
(ports.Rounds).

A shard gets a row every few seconds. So every query is a seek in the primary key, except in void_after: after Redis
fell back, void_after reads all rows of an epoch.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.selectable import NamedFromClause

from reconciler.clock import Clock
from reconciler.contract.queue_proof import QueueProof
from reconciler.contract.row_values import RowReader
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import ROUND
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.paging import compared
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.since import SqlSince
from reconciler.ledger.subscription_rows import named, of_subscription
from reconciler.policy.ports.rounds import RestingShard, RoundCounts, RoundDone
from reconciler.sql.tables import round_row
from reconciler.telling.ports.reports import StoredRound

#: Maximum number of rows of one epoch that are skipped because a column of the round's identity is damaged.
DAMAGED_ROUNDS_MAX = 64
#: The columns that identify a round. A row is left out if one of these columns is damaged.
_IDENTITY = frozenset({"environment", "topic", "consumer_group", "shard", "epoch", "generation", "at_ms"})

_ROWS = RowReader(ROUND)

#: Parameters have the columns' names, after "new_".
_IN_PLACE_OF_UNDONE = (
    sa.update(round_row)
    .where(*(c == sa.bindparam(f"new_{c.name}") for c in round_row.primary_key.columns))
    .where(round_row.c.at_ms < sa.bindparam("new_at_ms"))
    .values({c.name: sa.bindparam(f"new_{c.name}") for c in round_row.c if not c.primary_key})
)


class SqlRounds:
    """The rounds, the floors, and the beginnings of subscriptions in SQL. Thread-safe. Raises DatabaseAway."""

    def __init__(
        self, database: LedgerDatabase, floors: SqlFloors, rests: SqlRests, *, clock: Clock | None = None
    ) -> None:
        """`clock` measures the pause before a ledger that could not store a beginning is asked again. None: the host's
        clock."""
        self._database = database
        self._floors = floors
        self._rests = rests
        self._since = SqlSince(database, clock=clock)

    def since_ms(self, subscription: Subscription) -> int | None:
        """Returns the time since which the subscription answers for messages. None if no time is stored yet."""
        return self._since.of(subscription)

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Stores the time unless the ledger knows the subscription. Returns the time that is valid."""
        return self._since.begin(subscription, at_ms=at_ms)

    def rename(self, old: Subscription, new: Subscription) -> bool:
        """Gives a group's new name the earlier of both times. False if the login may not change the row."""
        return self._since.rename(old, new)

    def store(self, *done: RoundDone) -> None:
        """Writes one row for each round.

        After Redis fell back, a generation runs again. The new round of the generation replaces the undone round, whose
        time is earlier. An undone round that is stored late changes nothing.
        """
        with self._database.writing() as connection:
            stored_at_ms = self._database.read_now_ms(connection)
            rows = [self._row(one, stored_at_ms) for one in done]
            self._database.insert_missing(connection, round_row, rows)
            newer = [{f"new_{name}": value for name, value in row.items()} for row in rows]
            connection.execute(_IN_PLACE_OF_UNDONE, newer)

    @staticmethod
    def _row(done: RoundDone, stored_at_ms: int) -> dict[str, Any]:
        return named(done.shard.subscription) | {
            "shard": done.shard.number,
            "epoch": done.epoch,
            "generation": done.generation,
            "at_ms": done.at_ms,
            "offsets": json.dumps(dict(done.offsets), separators=(",", ":")),
            **asdict(done.counts),
            "void": 0,
            "stored_at_ms": stored_at_ms,
        }

    def void_after(self, shard: Shard, *, epoch: str, generation: int, at_ms: int | None = None) -> int:
        """Marks the undone rounds as void, and returns their number. Only reads if no round was undone."""
        no_ancestor = round_row.c.generation > generation
        if at_ms is not None:
            no_ancestor |= round_row.c.at_ms > at_ms
        undone = _of(shard) & (round_row.c.epoch == epoch) & (round_row.c.void == 0) & no_ancestor
        with self._database.reading() as connection:
            if connection.execute(sa.select(round_row.c.generation).where(undone).limit(1)).first() is None:
                return 0
        with self._database.writing() as connection:
            return int(connection.execute(sa.update(round_row).where(undone).values(void=1)).rowcount)

    def last(self, shard: Shard) -> RoundDone | None:
        """Returns the newest valid round of all epochs."""
        with self._database.reading() as connection:
            newest = newest_rounds(connection, shard)
            return max((row.done for row in newest), key=lambda done: (done.at_ms, done.generation), default=None)

    def keep_rest(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Writes all rests in one statement. False if the ledger cannot store rests."""
        return self._rests.keep(seen, seconds_ago=seconds_ago)

    def raise_floor(
        self, subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Stores the floors. Asks the database only if a value differs from the last call."""
        self._floors.tell(subscription, floor, proofs)


def newest_rounds(connection: sa.Connection, shard: Shard) -> Iterator[StoredRound]:
    """Yields the newest valid round of each epoch. One seek finds the next epoch, and one its last generation."""
    epoch = ""
    unreadable: list[sa.ColumnElement[Any]] = []
    while True:
        following = sa.select(sa.func.min(round_row.c.epoch)).where(_of(shard), round_row.c.epoch > epoch)
        others = following.where(round_row.c.epoch.not_in(unreadable)) if unreadable else following
        found: Any = connection.execute(others).scalar_one()
        if found is None or len(unreadable) > DAMAGED_ROUNDS_MAX:
            return
        if not isinstance(found, str):  # in SQLite: bytes, or a text that is no UTF-8
            as_bytes = sa.literal(found, sa.LargeBinary())
            unreadable += [as_bytes, sa.cast(as_bytes, sa.Text())]
            continue
        epoch = found
        of_epoch = (
            sa.select(round_row)
            .where(_of(shard), round_row.c.epoch == epoch, round_row.c.void == 0)
            .order_by(round_row.c.generation.desc())
        )
        row = connection.execute(of_epoch.limit(1)).first()
        newest = None if row is None else round_of(row)
        if row is not None and newest is None:
            # Damaged generations (texts and bytes) come first in this order.
            behind = (round_of(other) for other in connection.execute(of_epoch.limit(DAMAGED_ROUNDS_MAX)))
            newest = next((stored for stored in behind if stored is not None), None)
        if newest is not None:
            yield newest


def newest_of_shards(connection: sa.Connection, subscription: Subscription) -> Sequence[StoredRound]:
    """Returns the newest valid round of each shard over all epochs, by shard."""
    return _newest_by_shard(_newest_of_epochs(connection, subscription))


def _newest_of_epochs(connection: sa.Connection, subscription: Subscription) -> Iterator[StoredRound]:
    """Yields the newest valid round of each shard and epoch. On PostgreSQL, one seek finds each round, from the last
    on.

    MySQL and MariaDB would sort all earlier rows for such a seek, and SQLite may have damaged epochs.
    """
    c, dialect = round_row.c, connection.dialect.name
    if dialect != "postgresql":
        for number in _shards_of(connection, subscription):
            yield from newest_rounds(connection, Shard(subscription=subscription, number=number))
        return
    last = sa.select(round_row).where(of_subscription(subscription, round_row), c.void == 0)
    last = last.order_by(c.shard.desc(), c.epoch.desc(), c.generation.desc()).limit(1)
    row = connection.execute(last).first()
    while row is not None:
        stored = round_of(row)
        if stored is not None:
            yield stored
        before = compared((c.shard, c.epoch), operator.lt, (row.shard, row.epoch), dialect)
        row = connection.execute(last.where(before)).first()


def newest_of_all(
    connection: sa.Connection, subscriptions: Collection[Subscription]
) -> Mapping[Subscription, Sequence[StoredRound]]:
    """Returns newest_of_shards() of each subscription. Runs one statement per environment, except on MySQL and
    MariaDB."""
    walk = _WALKS.get(connection.dialect.name)
    if walk is None:
        return {one: newest_of_shards(connection, one) for one in subscriptions}
    wanted = {(one.environment, one.topic, one.group): one for one in subscriptions}
    found: dict[Subscription, list[StoredRound]] = {one: [] for one in subscriptions}
    damaged: set[Subscription] = set()
    for environment in {one.environment for one in subscriptions}:
        for row in connection.execute(walk, {"environment": environment}):
            of, stored = wanted.get((environment, row.topic, row.consumer_group)), round_of(row)
            if of is not None and stored is not None:
                found[of].append(stored)
            elif of is not None:
                damaged.add(of)  # intact rounds may precede the damaged one
    return {
        of: newest_of_shards(connection, of) if of in damaged else _newest_by_shard(rounds)
        for of, rounds in found.items()
    }


def _newest_by_shard(of_epochs: Iterable[StoredRound]) -> Sequence[StoredRound]:
    newest: dict[int, StoredRound] = {}
    for stored in of_epochs:
        other = newest.setdefault(stored.done.shard.number, stored)
        newest[stored.done.shard.number] = max(other, stored, key=lambda one: (one.done.at_ms, one.done.generation))
    return [newest[number] for number in sorted(newest)]


#: The primary key's columns after the environment, up to the epoch. The generation follows.
_EPOCH = ("topic", "consumer_group", "shard", "epoch")


def _last(rows: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Selects the last valid round of an environment, in the order of the primary key."""
    c = rows.c
    of_environment = c.environment == sa.bindparam("environment", type_=sa.String())
    order = [c[name].desc() for name in (*_EPOCH, "generation")]
    return sa.select(rows).where(of_environment, c.void == 0, *conditions).order_by(*order).limit(1)


def _walk_in_postgresql() -> sa.Select[Any]:
    walk = sa.select(_last(round_row).subquery()).cte("walk", recursive=True)
    rows = round_row.alias("following")
    is_before = sa.tuple_(*(rows.c[name] for name in _EPOCH)) < sa.tuple_(*(walk.c[name] for name in _EPOCH))
    following = _last(rows, is_before).lateral("next")
    walk = walk.union_all(sa.select(following).select_from(walk.join(following, sa.true())))
    return sa.select(walk)


def _walk_in_sqlite() -> sa.Select[Any]:
    """Walks by row numbers, because SQLite has no LATERAL. Runs one seek per column, because SQLite compares rows by
    only the first column of an index."""

    def number(rows: NamedFromClause) -> sa.ColumnElement[int]:
        return sa.literal_column(f"{rows.name}.rowid", sa.Integer())

    def before(name: str, here: NamedFromClause) -> sa.ColumnElement[int]:
        rows = round_row.alias(f"before_{name}")
        same = [rows.c[other] == here.c[other] for other in _EPOCH[: _EPOCH.index(name)]]
        query = _last(rows, *same, rows.c[name] < here.c[name])
        return query.with_only_columns(number(rows)).scalar_subquery()

    last, here, found = (round_row.alias(name) for name in ("last", "here", "found"))
    first = _last(last).with_only_columns(number(last)).scalar_subquery()
    walk = sa.select(first.label("number")).cte("walk", recursive=True)
    following = sa.func.coalesce(*(before(name, here) for name in reversed(_EPOCH)))
    walk = walk.union_all(sa.select(following).select_from(walk.join(here, number(here) == walk.c.number)))
    return sa.select(found).select_from(walk.join(found, number(found) == walk.c.number))


#: Dialect -> a statement for the newest valid round of each shard and epoch of an environment, by seeks, from the last
#: on.
_WALKS = {"postgresql": _walk_in_postgresql(), "sqlite": _walk_in_sqlite()}


def _shards_of(connection: sa.Connection, subscription: Subscription) -> Iterator[int]:
    """Yields the shards that have rounds. One seek finds the next shard."""
    number: int | None = -1
    while True:
        following = sa.select(sa.func.min(round_row.c.shard)).where(
            of_subscription(subscription, round_row), round_row.c.shard > number
        )
        number = connection.execute(following).scalar_one()
        if number is None:
            return
        yield number


def _of(shard: Shard) -> sa.ColumnElement[bool]:
    return of_subscription(shard.subscription, round_row) & (round_row.c.shard == shard.number)


def round_of(row: sa.Row[Any]) -> StoredRound | None:
    """Returns the round of a row of reconciler_round. None if a column of _IDENTITY is damaged."""
    read = _ROWS.parse(row)
    values = read.values
    if read.damaged & _IDENTITY:
        return None
    subscription = Subscription(
        environment=values["environment"], topic=values["topic"], group=values["consumer_group"]
    )
    done = RoundDone(
        shard=Shard(subscription=subscription, number=values["shard"]),
        epoch=values["epoch"],
        generation=values["generation"],
        at_ms=values["at_ms"],
        offsets=values["offsets"],
        counts=RoundCounts(**{field.name: values[field.name] for field in fields(RoundCounts)}),
    )
    return StoredRound(done=done, is_void=bool(values["void"]), stored_at_ms=values["stored_at_ms"])

"""Reads the ledger for commands and pages (ports.LedgerReports). Never writes. Every list is limited, and paged by
key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa

from reconciler.contract.facts import COUNTED_MAX
from reconciler.contract.row_values import RowReader
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HOLD, QUARANTINE, HoldKind
from reconciler.errors import DatabaseAway
from reconciler.ledger.candidates import CANDIDATE_COLUMNS, candidate_of
from reconciler.ledger.counts import repair_counts, verdict_counts
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.holds import SqlHolds, end_and_reason
from reconciler.ledger.operator_actions import SqlOperatorActions, action_of
from reconciler.ledger.outages import outage_of
from reconciler.ledger.paging import Walk, done_by, equal, within
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.rounds import newest_of_all, newest_of_shards, round_of
from reconciler.ledger.subscription_rows import of_subscription
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor, RefusedAnnouncement
from reconciler.policy.ports.ledger import Candidate, HeldTopic, Outage, Repair
from reconciler.sql.repair_claims import repair_of
from reconciler.sql.rights import lacks_right
from reconciler.sql.tables import (
    candidate,
    environment_row,
    hold,
    is_whole_number,
    operator_action,
    outage,
    quarantine,
    repair,
    round_row,
)
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.paging import EVERY_ROW, LedgerFilter, Page, Position
from reconciler.telling.ports.reports import (
    ENVIRONMENTS_NAMED,
    EnvironmentTraces,
    LedgerLife,
    QuarantinedAnnouncement,
    RepairCount,
    StoredRound,
    VerdictCount,
)

T = TypeVar("T")

#: Maximum number of rounds that are read to find the shards with recent rounds.
RECENT_ROUNDS_MAX = 10_000
_REFUSED = RowReader(QUARANTINE)
_HOLDS = RowReader(HOLD, otherwise={"kind": HoldKind.HOLD})


class SqlReports:
    """Reports of the ledger, read by SQL. Thread-safe. Raises DatabaseAway."""

    def __init__(
        self,
        database: LedgerDatabase,
        floors: SqlFloors,
        actions: SqlOperatorActions,
        holds: SqlHolds,
        rests: SqlRests,
        *,
        counted_max: int = COUNTED_MAX,
    ) -> None:
        self._database = database
        self._floors = floors
        self._actions = actions
        self._holds = holds
        self._rests = rests
        self._counted_max = counted_max

    def candidates(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Candidate]:
        """Returns a page of candidates, by first_seen_ms."""
        c = candidate.c
        indexed = within(c.environment, environment, c.first_seen_ms, only)
        sifted = equal({c.topic: only.topic, c.consumer_group: only.group, c.verdict: only.verdict})
        of_state = equal({c.state: only.candidate_state})
        # Losses are few, so an index of losses is the shortest way. MySQL and MariaDB have no such index.
        if only.is_loss and self._database.engine.dialect.name in ("postgresql", "sqlite"):
            indexed.append(c.loss_verdict.is_not(None))
            sifted += of_state
        else:
            indexed += of_state
            if only.is_loss is not None:
                sifted.append(c.loss_verdict.is_not(None) if only.is_loss else c.loss_verdict.is_(None))
        walk = Walk(
            query=sa.select(*CANDIDATE_COLUMNS),
            order=(c.first_seen_ms, c.topic, c.consumer_group, c.unique_key),
            indexed=indexed,
            sifted=sifted,
            keys=_keys(c.unique_key, only),
        )
        return self._page(walk, candidate_of, limit, after)

    def repairs(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Repair]:
        """Returns a page of repairs, by created_at_ms."""
        c = repair.c
        walk = Walk(
            query=sa.select(),
            order=(c.created_at_ms, c.topic, c.scope, c.unique_key),
            indexed=[*within(c.environment, environment, c.created_at_ms, only), *equal({c.state: only.repair_state})],
            sifted=equal({c.topic: only.topic, c.scope: only.scope, c.rung: only.rung}),
            keys=_keys(c.unique_key, only),
        )
        return self._page(walk, repair_of, limit, after, columns=self._database.answers.columns)

    def rounds(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[StoredRound]:
        """Returns a page of rounds, by stored_at_ms."""
        c = round_row.c
        walk = Walk(
            query=sa.select(round_row),
            order=(c.stored_at_ms, c.topic, c.consumer_group, c.shard, c.epoch, c.generation),
            indexed=within(c.environment, environment, c.stored_at_ms, only),
            sifted=equal({c.topic: only.topic, c.consumer_group: only.group}),
        )
        found = self._page(walk, round_of, limit, after)
        return Page(rows=[row for row in found.rows if row is not None], end=found.end)

    def outages(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Outage]:
        """Returns a page of outages, by started_at_ms."""
        c = outage.c
        walk = Walk(
            query=sa.select(outage),
            order=(c.started_at_ms,),
            indexed=within(c.environment, environment, c.started_at_ms, only),
        )
        return self._page(walk, outage_of, limit, after)

    def quarantined(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[QuarantinedAnnouncement]:
        """Returns a page of refused announcements, by seen_at_ms."""
        c = quarantine.c
        walk = Walk(
            query=sa.select(quarantine),
            order=(c.seen_at_ms, c.unique_key_topic, c.broker, c.queue_id, c.queue_offset),
            indexed=within(c.environment, environment, c.seen_at_ms, only),
        )
        return self._page(walk, _refused, limit, after)

    def actions(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[OperatorAction]:
        """Returns a page of acts, by started_at_ms."""
        c = operator_action.c
        walk = Walk(
            query=sa.select(),
            order=(c.started_at_ms, c.action_id),
            indexed=within(c.environment, environment, c.started_at_ms, only),
            sifted=equal({c.topic: only.topic, c.consumer_group: only.group, c.command: only.command})
            + done_by(c.by, only.by),
            keys=_keys(c.unique_key, only),
        )
        return self._page(walk, action_of, limit, after, columns=self._actions.columns)

    def refused_of(
        self, environment: str, queue: AnnouncementQueue, *, from_offset: int, limit: int
    ) -> Sequence[QuarantinedAnnouncement]:
        """Returns refused announcements of the queue from this offset on, read by the primary key."""
        c = quarantine.c
        query = sa.select(quarantine).where(
            c.environment == environment,
            c.unique_key_topic == queue.unique_key_topic,
            c.broker == queue.broker,
            c.queue_id == queue.queue_id,
            c.queue_offset >= from_offset,
        )
        return [_refused(row) for row in self._rows(query.order_by(c.queue_offset).limit(limit))]

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Counts candidates by subscription, state and verdicts."""
        with self._database.reading() as connection:
            return verdict_counts(connection, environment, most=self._counted_max + 1)

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Counts repairs by topic, scope, state and rung."""
        with self._database.reading() as connection:
            return repair_counts(connection, environment, most=self._counted_max + 1)

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """Returns all rows of one key."""
        c, r = candidate.c, repair.c
        with self._database.reading() as connection:
            candidates = [
                candidate_of(row)
                for row in connection.execute(
                    sa.select(*CANDIDATE_COLUMNS)
                    .where(c.environment == environment, c.unique_key == unique_key)
                    .order_by(c.topic, c.consumer_group)
                )
            ]
            repairs = [
                repair_of(row)
                for row in connection.execute(
                    sa.select(*self._database.answers.columns(connection))
                    .where(r.environment == environment, r.unique_key == unique_key)
                    .order_by(r.topic, r.scope)
                )
            ]
            rounds = [
                stored
                for one in candidates
                for row in connection.execute(
                    sa.select(round_row)
                    .where(
                        of_subscription(one.subscription, round_row),
                        round_row.c.shard == one.shard,
                        round_row.c.at_ms == one.first_seen_ms,
                    )
                    .order_by(round_row.c.generation)
                )
                for stored in (round_of(row),)
                if stored is not None
            ]
            done_by_hand = sa.select(*self._actions.columns(connection)).where(
                operator_action.c.environment == environment, operator_action.c.unique_key == unique_key
            )
            actions = [action_of(row) for row in connection.execute(done_by_hand.order_by(*_in_time(operator_action)))]
        return LedgerLife(candidates=candidates, repairs=repairs, rounds=rounds, actions=actions)

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """Returns the newest valid round of every shard. Uses only seeks, so the number of stored rounds does not
        matter."""
        rest = self._rests.of(subscription)
        with self._database.reading() as connection:
            rounds = newest_of_shards(connection, subscription)
        return rounds if rest is None else [rest.seen_again(stored) for stored in rounds]

    def last_rounds_of(self, subscriptions: Collection[Subscription]) -> Mapping[Subscription, Sequence[StoredRound]]:
        """Runs two statements per environment. On MySQL and MariaDB, runs seeks per subscription."""
        rests = {
            of: rest
            for environment in {one.environment for one in subscriptions}
            for of, rest in self._rests.every(environment).items()
        }
        with self._database.reading() as connection:
            found = newest_of_all(connection, subscriptions)
        return {
            of: [rests[of].seen_again(stored) for stored in rounds] if of in rests else rounds
            for of, rounds in found.items()
        }

    def rests_are_hidden(self) -> bool:
        """Returns True if the database last refused to show rows of rest to this login."""
        return self._rests.are_hidden

    def shards_since(self, environment: str, *, since_ms: int) -> Collection[Shard]:
        """Reads the newest rows of one index, for all subscriptions together. Not DISTINCT, for which MariaDB would
        read the whole table."""
        c = round_row.c
        with self._database.reading() as connection:
            is_newer = is_whole_number(c.stored_at_ms, connection.dialect.name) & (c.stored_at_ms > since_ms)
            query = sa.select(c.topic, c.consumer_group, c.shard).where(c.environment == environment, is_newer)
            newest = query.where(c.void == 0).order_by(c.stored_at_ms.desc()).limit(RECENT_ROUNDS_MAX)
            rows = {tuple(row) for row in connection.execute(newest)}
        resting = {
            Shard(subscription=subscription, number=number)
            for subscription, rest in self._rests.every(environment).items()
            if rest.at_ms > since_ms
            for number in range(len(rest.shards))
        }
        return resting | {
            Shard(subscription=Subscription(environment=environment, topic=topic, group=group), number=number)
            for topic, group, number in rows
            if type(number) is int
        }

    def traces(self, environment: str, *, before_ms: int) -> EnvironmentTraces:
        """Uses only seeks, and reads the table of environments, which has few rows."""
        c, used = round_row.c, environment_row.c.environment
        rounds = sa.select(sa.literal(1)).where(c.environment == environment, c.void == 0).limit(1)
        uses: list[str] = []
        with self._database.reading() as connection:
            has_round = connection.execute(rounds).first() is not None
            has_earlier = connection.execute(rounds.where(c.stored_at_ms < before_ms)).first() is not None
        try:
            uses = [str(row.environment) for row in self._rows(sa.select(used).order_by(used))]
        except DatabaseAway as error:
            if not lacks_right(error):
                raise
        return EnvironmentTraces(
            has_earlier_round=has_earlier,
            is_known=has_round or environment in uses,
            others=[name for name in uses if name != environment][:ENVIRONMENTS_NAMED],
        )

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Returns the topics with stopped repairs."""
        with self._database.reading() as connection:
            query = sa.select(*self._holds.columns(connection)).where(hold.c.environment == environment)
            rows = connection.execute(query.order_by(hold.c.topic, hold.c.kind)).all()
        return [_held(read.values, read.damage) for read in map(_HOLDS.parse, rows)]

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Returns the floors of a subscription."""
        return self._floors.of(subscription)

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(query).all()

    def _page(
        self,
        walk: Walk,
        value_of: Callable[[sa.Row[Any]], T],
        limit: int,
        after: Position | None,
        *,
        columns: Callable[[sa.Connection], Iterable[sa.ColumnElement[Any]]] = lambda _: (),
    ) -> Page[T]:
        """`columns`: further columns to read."""
        with self._database.reading() as connection:
            walk = replace(walk, query=walk.query.add_columns(*columns(connection)))
            rows, end = walk.page(connection, limit=limit, after=after)
        return Page(rows=[value_of(row) for row in rows], end=end)


def _in_time(table: sa.Table) -> Sequence[sa.Column[Any]]:
    return (table.c.started_at_ms, table.c.action_id)


def _held(seen: Mapping[str, Any], damage: str | None) -> HeldTopic:
    until_ms, reason_fact = (None, None) if damage is not None else end_and_reason(seen["fact"], seen["reason"])
    return HeldTopic(
        topic=seen["topic"],
        kind=HoldKind(seen["kind"]),
        since_ms=seen["since_ms"],
        by=seen["by"],
        reason=seen["reason"] if damage is None else f"damaged, delete the row: {damage}",
        damage=damage,
        until_ms=until_ms,
        reason_fact=reason_fact,
    )


def _keys(column: sa.Column[str], only: LedgerFilter) -> tuple[sa.Column[str], Sequence[str]] | None:
    return None if only.unique_keys is None else (column, only.unique_keys)


def _refused(row: sa.Row[Any]) -> QuarantinedAnnouncement:
    seen = _REFUSED.parse(row).values
    queue = AnnouncementQueue(
        unique_key_topic=seen["unique_key_topic"], broker=seen["broker"], queue_id=seen["queue_id"]
    )
    refused = RefusedAnnouncement(
        queue=queue,
        queue_offset=seen["queue_offset"],
        reason=seen["reason"],
        detail=seen["detail"],
        body=seen["body"],
    )
    return QuarantinedAnnouncement(environment=seen["environment"], refused=refused, seen_at_ms=seen["seen_at_ms"])

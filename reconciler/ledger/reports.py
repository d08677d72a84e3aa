"""What commands and pages show of the ledger (ports.LedgerReports): reads only, every list bounded, paged by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from reconciler.contract.row_values import RowReader
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import (
    CANDIDATE,
    FLOOR,
    HOLD,
    QUARANTINE,
    REPAIR,
    CandidateState,
    HoldKind,
    RepairState,
    Rung,
)
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.candidates import candidate_of
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.operator_actions import action_of
from reconciler.ledger.outages import outage_of
from reconciler.ledger.rounds import newest_rounds, round_of, rounds_of
from reconciler.policy.ports import (
    AnnouncementQueue,
    Candidate,
    Floor,
    HeldTopic,
    LedgerFilter,
    LedgerLife,
    OperatorAction,
    Outage,
    QuarantinedAnnouncement,
    RefusedAnnouncement,
    Repair,
    RepairCount,
    StoredRound,
    VerdictCount,
)
from reconciler.sql.repair_rows import REPAIR_COLUMNS, repair_of
from reconciler.sql.tables import candidate, floor, hold, operator_action, outage, quarantine, repair, round_row

_UNDECIDED = {"state": CandidateState.OPEN, "verdict": Verdict.UNKNOWN}
_VERDICTS = RowReader(CANDIDATE, ("topic", "consumer_group", "state", "verdict", "loss_verdict"), otherwise=_UNDECIDED)
#: A repair whose state is damaged is not worked on: it is shown as failed.
_REPAIRS = RowReader(
    REPAIR, ("topic", "scope", "state", "rung"), otherwise={"state": RepairState.FAILED, "rung": Rung.END}
)
_REFUSED = RowReader(QUARANTINE)
_HOLDS = RowReader(HOLD, otherwise={"kind": HoldKind.HOLD})
_FLOORS = RowReader(FLOOR)


class SqlReports:
    """Reads in SQL. Shared by threads; every call is one transaction. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database

    def candidates(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Candidate]:
        """By (topic, group, unique key)."""
        c = candidate.c
        query = sa.select(candidate).where(c.environment == environment)
        query = _where(
            query,
            {c.topic: only.topic, c.consumer_group: only.group, c.state: only.candidate_state, c.verdict: only.verdict},
        )
        query = _of_keys(query, c.unique_key, only)
        if only.is_loss is not None:
            query = query.where(c.loss_verdict.is_not(None) if only.is_loss else c.loss_verdict.is_(None))
        return [candidate_of(row) for row in self._page(query, (c.topic, c.consumer_group, c.unique_key), after, limit)]

    def repairs(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Repair]:
        """By (topic, scope, unique key)."""
        c = repair.c
        query = sa.select(*REPAIR_COLUMNS).where(c.environment == environment)
        query = _where(query, {c.topic: only.topic, c.scope: only.scope, c.state: only.repair_state, c.rung: only.rung})
        if only.is_done is not None:
            query = query.where(c.state == RepairState.DONE if only.is_done else c.state != RepairState.DONE)
        query = _of_keys(query, c.unique_key, only)
        return [repair_of(row) for row in self._page(query, (c.topic, c.scope, c.unique_key), after, limit)]

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Candidates by subscription, state and verdicts."""
        c = candidate.c
        by = (c.topic, c.consumer_group, c.state, c.verdict, c.loss_verdict)
        counted = (sa.func.count().label("n"), sa.func.min(c.first_seen_ms).label("oldest_ms"))
        query = sa.select(*by, *counted).where(c.environment == environment).group_by(*by)
        counts = [
            VerdictCount(
                subscription=Subscription(environment=environment, topic=seen["topic"], group=seen["consumer_group"]),
                state=CandidateState(seen["state"]),
                verdict=Verdict(seen["verdict"]),
                loss_verdict=None if seen["loss_verdict"] is None else Verdict(seen["loss_verdict"]),
                count=row.n,
                oldest_ms=row.oldest_ms if type(row.oldest_ms) is int else 0,
                damage=read.damage,
            )
            for row in self._rows(query)
            for read in (_VERDICTS.parse(tuple(row)[: len(by)]),)
            for seen in (read.values,)
        ]
        # Sorted here: databases disagree on where NULL goes.
        return sorted(counts, key=lambda one: (one.subscription, one.state, one.verdict, one.loss_verdict or ""))

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Repairs by topic, scope, state and rung."""
        c = repair.c
        by = (c.topic, c.scope, c.state, c.rung)
        attempted = sa.func.sum(sa.case((c.attempts > 0, 1), else_=0)).label("attempted")
        query = sa.select(*by, sa.func.count().label("n"), attempted).where(c.environment == environment)
        return [
            RepairCount(
                topic=seen["topic"],
                scope=seen["scope"],
                state=RepairState(seen["state"]),
                rung=Rung(seen["rung"]),
                attempted=int(row.attempted),
                count=row.n,
                damage=read.damage,
            )
            for row in self._rows(query.group_by(*by).order_by(*by))
            for read in (_REPAIRS.parse(tuple(row)[: len(by)]),)
            for seen in (read.values,)
        ]

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """All rows of one key."""
        c, r = candidate.c, repair.c
        with self._database.reading() as connection:
            candidates = [
                candidate_of(row)
                for row in connection.execute(
                    sa.select(candidate)
                    .where(c.environment == environment, c.unique_key == unique_key)
                    .order_by(c.topic, c.consumer_group)
                )
            ]
            repairs = [
                repair_of(row)
                for row in connection.execute(
                    sa.select(*REPAIR_COLUMNS)
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
                        rounds_of(one.subscription),
                        round_row.c.shard == one.shard,
                        round_row.c.at_ms == one.first_seen_ms,
                    )
                    .order_by(round_row.c.generation)
                )
                for stored in (round_of(row),)
                if stored is not None
            ]
            done_by_hand = sa.select(operator_action).where(
                operator_action.c.environment == environment, operator_action.c.unique_key == unique_key
            )
            actions = [action_of(row) for row in connection.execute(done_by_hand.order_by(*_in_time(operator_action)))]
        return LedgerLife(candidates=candidates, repairs=repairs, rounds=rounds, actions=actions)

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """The newest round of every shard that is not void: seeks only, however many rounds are kept."""
        found: list[StoredRound] = []
        number = -1
        with self._database.reading() as connection:
            while True:
                following = sa.select(sa.func.min(round_row.c.shard)).where(
                    rounds_of(subscription), round_row.c.shard > number
                )
                shard = connection.execute(following).scalar_one()
                if shard is None:
                    return found
                number = shard
                newest = list(newest_rounds(connection, Shard(subscription=subscription, number=number)))
                if newest:
                    found.append(max(newest, key=lambda row: (row.done.at_ms, row.done.generation)))

    def quarantined(
        self, environment: str, *, limit: int, after: AnnouncementQueue | None = None, after_offset: int = -1
    ) -> Sequence[QuarantinedAnnouncement]:
        """Refused announcements by (topic, broker, queue, offset)."""
        c = quarantine.c
        start = None if after is None else (after.unique_key_topic, after.broker, after.queue_id, after_offset)
        query = sa.select(quarantine).where(c.environment == environment)
        order = (c.unique_key_topic, c.broker, c.queue_id, c.queue_offset)
        return [
            QuarantinedAnnouncement(
                environment=seen["environment"],
                refused=RefusedAnnouncement(
                    queue=AnnouncementQueue(
                        unique_key_topic=seen["unique_key_topic"], broker=seen["broker"], queue_id=seen["queue_id"]
                    ),
                    queue_offset=seen["queue_offset"],
                    reason=seen["reason"],
                    detail=seen["detail"],
                    body=seen["body"],
                ),
                seen_at_ms=seen["seen_at_ms"],
            )
            for row in self._page(query, order, start, limit)
            for seen in (_REFUSED.parse(row).values,)
        ]

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Stopped topics."""
        query = sa.select(hold).where(hold.c.environment == environment).order_by(hold.c.topic, hold.c.kind)
        found = []
        for read in map(_HOLDS.parse, self._rows(query)):
            seen = read.values
            del seen["environment"]
            reason = seen["reason"] if read.damage is None else f"damaged, delete the row: {read.damage}"
            found.append(HeldTopic(**seen | {"kind": HoldKind(seen["kind"]), "reason": reason}))
        return found

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Floors of a subscription."""
        query = (
            sa.select(floor)
            .where(
                floor.c.environment == subscription.environment,
                floor.c.topic == subscription.topic,
                floor.c.consumer_group == subscription.group,
            )
            .order_by(floor.c.broker, floor.c.queue_id)
        )
        return [
            Floor(
                subscription=subscription,
                broker=seen["broker"],
                queue_id=seen["queue_id"],
                queue_offset=seen["queue_offset"],
                updated_at_ms=seen["updated_at_ms"],
            )
            for row in self._rows(query)
            for seen in (_FLOORS.parse(row).values,)
        ]

    def outages(self, environment: str, *, limit: int) -> Sequence[Outage]:
        """The newest first."""
        query = sa.select(outage).where(outage.c.environment == environment)
        return [outage_of(row) for row in self._rows(query.order_by(outage.c.started_at_ms.desc()).limit(limit))]

    def actions(self, environment: str, *, only: LedgerFilter, limit: int) -> Sequence[OperatorAction]:
        """The newest first."""
        c = operator_action.c
        query = sa.select(operator_action).where(c.environment == environment)
        query = _where(query, {c.topic: only.topic, c.consumer_group: only.group})
        query = _of_keys(query, c.unique_key, only)
        newest_first = (column.desc() for column in _in_time(operator_action))
        return [action_of(row) for row in self._rows(query.order_by(*newest_first).limit(limit))]

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(query).all()

    def _page(
        self,
        query: sa.Select[Any],
        order: Sequence[sa.Column[Any]],
        after: Sequence[str | int] | None,
        limit: int,
    ) -> Sequence[sa.Row[Any]]:
        if after is not None:
            query = query.where(_follows(order, after))
        return self._rows(query.order_by(*order).limit(limit))


def _in_time(table: sa.Table) -> Sequence[sa.Column[Any]]:
    return (table.c.started_at_ms, table.c.action_id)


def _where(query: sa.Select[Any], wanted: dict[sa.Column[Any], str | None]) -> sa.Select[Any]:
    for column, value in wanted.items():
        if value is not None:
            query = query.where(column == str(value))
    return query


def _of_keys(query: sa.Select[Any], column: sa.Column[str], only: LedgerFilter) -> sa.Select[Any]:
    return query if only.unique_keys is None else query.where(column.in_(only.unique_keys))


def _follows(order: Sequence[sa.Column[Any]], after: Sequence[str | int]) -> sa.ColumnElement[bool]:
    # Spelled out instead of a row comparison, which MySQL does not look up in an index.
    column, value = order[0], after[0]
    if len(order) == 1:
        return column > value
    return (column > value) | ((column == value) & _follows(order[1:], after[1:]))

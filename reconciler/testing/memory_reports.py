"""LedgerReports, as a part of the ledger in memory (memory.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from reconciler.contract.facts import COUNTED_MAX
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor
from reconciler.policy.ports.ledger import Candidate, HeldTopic, Outage, Repair
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
from reconciler.testing.memory_rounds import MemoryLedgerRows

T = TypeVar("T")


class MemoryReports:
    """LedgerReports over the dictionaries. The results are sorted as the SQL ledger sorts them."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def candidates(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Candidate]:
        """Pages candidates by first_seen_ms."""
        with self._rows.lock:
            found = {
                (row.first_seen_ms, owner.topic, owner.group, key): row
                for (owner, key), row in self._rows.candidates.items()
                if owner.environment == environment and _shows_candidate(only, row)
            }
        return _page(found, only, limit, after)

    def repairs(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Repair]:
        """Pages repairs by created_at_ms."""
        with self._rows.lock:
            found = {
                (row.created_at_ms, *key[1:]): row
                for key, row in self._rows.repairs.items()
                if key[0] == environment and _shows_repair(only, row)
            }
        return _page(found, only, limit, after)

    def rounds(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[StoredRound]:
        """Pages rounds by stored_at_ms."""
        with self._rows.lock:
            found = {
                (row.stored_at_ms, of.topic, of.group, shard.number, epoch, generation): row
                for (shard, epoch, generation), row in self._rows.rounds.items()
                for of in (shard.subscription,)
                if of.environment == environment and only.topic in (None, of.topic) and only.group in (None, of.group)
            }
        return _page(found, only, limit, after)

    def outages(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[Outage]:
        """Pages outages by started_at_ms."""
        with self._rows.lock:
            found = {(key[1],): row for key, row in self._rows.outages.items() if key[0] == environment}
        return _page(found, only, limit, after)

    def quarantined(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[QuarantinedAnnouncement]:
        """Returns a page of refused announcements, sorted by seen_at_ms."""
        with self._rows.lock:
            found = {
                (row.seen_at_ms, queue.unique_key_topic, queue.broker, queue.queue_id, offset): row
                for (owner, queue, offset), row in self._rows.refused.items()
                if owner == environment
            }
        return _page(found, only, limit, after)

    def actions(
        self, environment: str, *, limit: int, only: LedgerFilter = EVERY_ROW, after: Position | None = None
    ) -> Page[OperatorAction]:
        """Returns a page of acts of people, sorted by started_at_ms."""
        with self._rows.lock:
            found = {
                (row.started_at_ms, row.action_id): row
                for owner, row in self._rows.actions.values()
                if owner == environment
                and only.topic in (None, row.intent.topic)
                and only.group in (None, row.intent.group)
                and only.by in (None, row.intent.by)
                and only.command in (None, row.intent.command)
                and _is_of_keys(only, row.intent.unique_key)
            }
        return _page(found, only, limit, after)

    def refused_of(
        self, environment: str, queue: AnnouncementQueue, *, from_offset: int, limit: int
    ) -> Sequence[QuarantinedAnnouncement]:
        """Returns refused announcements of a queue, sorted by offset."""
        with self._rows.lock:
            found = {
                offset: row
                for (owner, of, offset), row in self._rows.refused.items()
                if owner == environment and of == queue and offset >= from_offset
            }
        return [found[offset] for offset in sorted(found)][:limit]

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Counts candidates by subscription, state and verdicts."""
        ages: dict[tuple[Subscription, CandidateState, Verdict, Verdict | None], list[int]] = {}
        with self._rows.lock:
            for row in self._rows.candidates.values():
                if row.subscription.environment == environment:
                    key = (row.subscription, row.state, row.verdict, row.loss_verdict)
                    ages.setdefault(key, []).append(row.first_seen_ms)
        return [
            VerdictCount(
                subscription=key[0],
                state=key[1],
                verdict=key[2],
                loss_verdict=key[3],
                count=min(len(ages[key]), COUNTED_MAX + 1),
                oldest_ms=min(ages[key]),
            )
            for key in sorted(ages, key=lambda key: (key[0], key[1], key[2], key[3] or ""))
        ]

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Counts repairs by topic, scope, state and rung."""
        with self._rows.lock:
            rows = [row for row in self._rows.repairs.values() if row.environment == environment]
        counts = Counter((row.topic, row.scope, row.state, row.rung) for row in rows)
        attempted = Counter((row.topic, row.scope, row.state, row.rung) for row in rows if row.attempts > 0)
        return [
            RepairCount(
                topic=key[0],
                scope=key[1],
                state=key[2],
                rung=key[3],
                attempted=min(attempted[key], COUNTED_MAX + 1),
                count=min(counts[key], COUNTED_MAX + 1),
            )
            for key in sorted(counts)
        ]

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """Returns all rows of one key."""
        with self._rows.lock:
            candidates = [
                row
                for (owner, key), row in sorted(self._rows.candidates.items())
                if key == unique_key and owner.environment == environment
            ]
            repairs = [
                row for key, row in sorted(self._rows.repairs.items()) if key[3] == unique_key and key[0] == environment
            ]
            seen = {(Shard(subscription=row.subscription, number=row.shard), row.first_seen_ms) for row in candidates}
            rounds = [row for row in self._rows.rounds.values() if (row.done.shard, row.done.at_ms) in seen]
            actions = [
                row
                for owner, row in self._rows.actions.values()
                if owner == environment and row.intent.unique_key == unique_key
            ]
        return LedgerLife(
            candidates=candidates, repairs=repairs, rounds=sorted(rounds, key=_order_of_round), actions=actions
        )

    def last_rounds(self, subscription: Subscription) -> Sequence[StoredRound]:
        """Returns the newest round of every shard that is not void."""
        newest: dict[int, StoredRound] = {}
        with self._rows.lock:
            rows = [
                row
                for row in self._rows.rounds.values()
                if row.done.shard.subscription == subscription and not row.is_void
            ]
        for row in sorted(rows, key=lambda row: (row.done.at_ms, row.done.generation)):
            newest[row.done.shard.number] = row
        rest = self._rows.rests.get(subscription)
        return [one if rest is None else rest.seen_again(one) for _, one in sorted(newest.items())]

    def last_rounds_of(self, subscriptions: Collection[Subscription]) -> Mapping[Subscription, Sequence[StoredRound]]:
        """Returns the newest rounds of each subscription."""
        return {one: self.last_rounds(one) for one in subscriptions}

    def rests_are_hidden(self) -> bool:
        """Always returns False."""
        return False

    def shards_since(self, environment: str, *, since_ms: int) -> Collection[Shard]:
        """Returns shards that have had a round or a row of rest since the given time."""
        with self._rows.lock:
            return {
                row.done.shard
                for row in self._rows.rounds.values()
                if row.done.shard.subscription.environment == environment
                and row.stored_at_ms > since_ms
                and not row.is_void
            } | {
                Shard(subscription=of, number=number)
                for of, rest in self._rows.rests.items()
                if of.environment == environment and rest.at_ms > since_ms
                for number in range(len(rest.shards))
            }

    def traces(self, environment: str, *, before_ms: int) -> EnvironmentTraces:
        """Counts rounds only, because uses of an environment are kept in SQL and Redis."""
        with self._rows.lock:
            rows = [row for row in self._rows.rounds.values() if not row.is_void]
        of = {row.done.shard.subscription.environment for row in rows}
        earlier = {row.done.shard.subscription.environment for row in rows if row.stored_at_ms < before_ms}
        return EnvironmentTraces(
            has_earlier_round=environment in earlier,
            is_known=environment in of,
            others=sorted(of - {environment})[:ENVIRONMENTS_NAMED],
        )

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Returns the holds by topic."""
        with self._rows.lock:
            return [row for key, row in sorted(self._rows.holds.items()) if key[0] == environment]

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Returns the floors of a subscription by queue."""
        with self._rows.lock:
            found = [row for (owner, _), row in self._rows.floors.items() if owner == subscription]
        return sorted(found, key=lambda row: (row.broker, row.queue_id))


def _page(found: Mapping[Any, T], only: LedgerFilter, limit: int, after: Position | None) -> Page[T]:
    """Returns a page, beginning with the newest row. The keys of `found` are positions: the time, then the rest of the
    primary key."""
    positions = [
        position
        for position in sorted(found, reverse=True)
        if (after is None or position < after)
        and (only.since_ms is None or position[0] >= only.since_ms)
        and (only.before_ms is None or position[0] < only.before_ms)
    ]
    end = positions[limit - 1] if len(positions) > limit else None
    return Page(rows=[found[position] for position in positions[:limit]], end=end)


def _order_of_round(row: StoredRound) -> tuple[Shard, int, int]:
    return (row.done.shard, row.done.at_ms, row.done.generation)


def _shows_candidate(only: LedgerFilter, row: Candidate) -> bool:
    return (
        only.topic in (None, row.subscription.topic)
        and only.group in (None, row.subscription.group)
        and only.candidate_state in (None, row.state)
        and only.verdict in (None, row.verdict)
        and only.is_loss in (None, row.loss_verdict is not None)
        and _is_of_keys(only, row.unique_key)
    )


def _shows_repair(only: LedgerFilter, row: Repair) -> bool:
    return (
        only.topic in (None, row.topic)
        and only.scope in (None, row.scope)
        and only.repair_state in (None, row.state)
        and only.rung in (None, row.rung)
        and _is_of_keys(only, row.unique_key)
    )


def _is_of_keys(only: LedgerFilter, unique_key: str | None) -> bool:
    return only.unique_keys is None or unique_key in only.unique_keys

"""LedgerReports in memory; see memory.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
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
    Repair,
    RepairCount,
    StoredRound,
    VerdictCount,
)
from reconciler.testing.memory_rounds import MemoryLedgerRows


class MemoryReports:
    """Reads over the dictionaries, sorted as the SQL ones are."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def candidates(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Candidate]:
        """By (topic, group, unique key)."""
        with self._rows.lock:
            found = {
                (owner.topic, owner.group, key): row
                for (owner, key), row in self._rows.candidates.items()
                if owner.environment == environment and _shows_candidate(only, row)
            }
        return [found[key] for key in sorted(found) if after is None or key > after][:limit]

    def repairs(
        self, environment: str, *, only: LedgerFilter, limit: int, after: tuple[str, str, str] | None = None
    ) -> Sequence[Repair]:
        """By (topic, scope, unique key)."""
        with self._rows.lock:
            found = {
                key[1:]: row
                for key, row in self._rows.repairs.items()
                if key[0] == environment and _shows_repair(only, row)
            }
        return [found[key] for key in sorted(found) if after is None or key > after][:limit]

    def verdict_counts(self, environment: str) -> Sequence[VerdictCount]:
        """Candidates by subscription, state and verdicts."""
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
                count=len(ages[key]),
                oldest_ms=min(ages[key]),
            )
            for key in sorted(ages, key=lambda key: (key[0], key[1], key[2], key[3] or ""))
        ]

    def repair_counts(self, environment: str) -> Sequence[RepairCount]:
        """Repairs by topic, scope, state and rung."""
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
                attempted=attempted[key],
                count=counts[key],
            )
            for key in sorted(counts)
        ]

    def life(self, environment: str, unique_key: str) -> LedgerLife:
        """All rows of one key."""
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
        """The newest round of every shard."""
        newest: dict[int, StoredRound] = {}
        with self._rows.lock:
            rows = [
                row
                for row in self._rows.rounds.values()
                if row.done.shard.subscription == subscription and not row.is_void
            ]
        for row in sorted(rows, key=lambda row: (row.done.at_ms, row.done.generation)):
            newest[row.done.shard.number] = row
        return [newest[number] for number in sorted(newest)]

    def quarantined(
        self, environment: str, *, limit: int, after: AnnouncementQueue | None = None, after_offset: int = -1
    ) -> Sequence[QuarantinedAnnouncement]:
        """Refused announcements by place."""
        with self._rows.lock:
            found = {
                (queue.unique_key_topic, queue.broker, queue.queue_id, offset): row
                for (owner, queue, offset), row in self._rows.refused.items()
                if owner == environment
            }
        start = None if after is None else (after.unique_key_topic, after.broker, after.queue_id, after_offset)
        return [found[key] for key in sorted(found) if start is None or key > start][:limit]

    def holds(self, environment: str) -> Sequence[HeldTopic]:
        """Stopped topics."""
        with self._rows.lock:
            return [row for key, row in sorted(self._rows.holds.items()) if key[0] == environment]

    def floors(self, subscription: Subscription) -> Sequence[Floor]:
        """Floors of a subscription."""
        with self._rows.lock:
            found = [row for (owner, _), row in self._rows.floors.items() if owner == subscription]
        return sorted(found, key=lambda row: (row.broker, row.queue_id))

    def outages(self, environment: str, *, limit: int) -> Sequence[Outage]:
        """The newest first."""
        with self._rows.lock:
            found = [row for key, row in self._rows.outages.items() if key[0] == environment]
        return sorted(found, key=lambda row: -row.started_at_ms)[:limit]

    def actions(self, environment: str, *, only: LedgerFilter, limit: int) -> Sequence[OperatorAction]:
        """The newest first."""
        with self._rows.lock:
            found = [
                row
                for owner, row in self._rows.actions.values()
                if owner == environment
                and only.topic in (None, row.intent.topic)
                and only.group in (None, row.intent.group)
                and _is_of_keys(only, row.intent.unique_key)
            ]
        return found[::-1][:limit]


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
        and only.is_done in (None, row.state is RepairState.DONE)
        and only.rung in (None, row.rung)
        and _is_of_keys(only, row.unique_key)
    )


def _is_of_keys(only: LedgerFilter, unique_key: str | None) -> bool:
    return only.unique_keys is None or unique_key in only.unique_keys

"""Rounds, floors, outages, holds and refused announcements, as a part of the ledger in memory (memory.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from reconciler.clock import Clock
from reconciler.contract.facts import Fact
from reconciler.contract.keyspace import offsets_field
from reconciler.contract.queue_proof import QueueProof, next_floor
from reconciler.contract.row_rules import (
    NAME_CHARACTERS,
    QUARANTINE_BODY_BYTES,
    bounded_text,
    brokers_after,
    held_again,
    later_end,
)
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HoldKind
from reconciler.policy.ports.announcing import AnnouncementQueue, Floor, RefusedAnnouncement
from reconciler.policy.ports.ledger import HeldTopic, Outage
from reconciler.policy.ports.rounds import RestingShard, RoundDone
from reconciler.telling.ports.actions import Intent, OperatorAction
from reconciler.telling.ports.reports import QuarantinedAnnouncement, StoredRest, StoredRound
from reconciler.testing.memory_candidates import MemoryRepairRows, code_name

RoundKey = tuple[Shard, str, int]


class MemoryLedgerRows(MemoryRepairRows):
    """All rows of one in-memory ledger."""

    def __init__(
        self, clock: Clock, *, host_clock: Clock | None = None, english: Callable[[Fact], str] = code_name
    ) -> None:
        super().__init__(clock, host_clock=host_clock, english=english)
        self.rounds: dict[RoundKey, StoredRound] = {}
        #: Subscription -> the time from which the subscription covers messages.
        self.since_ms: dict[Subscription, int] = {}
        self.rests: dict[Subscription, StoredRest] = {}
        self.floors: dict[tuple[Subscription, str], Floor] = {}
        self.outages: dict[tuple[str, int], Outage] = {}
        self.holds: dict[tuple[str, str, HoldKind], HeldTopic] = {}
        #: (environment, topic) -> broker -> the time at which the broker was first missing. None: the broker is
        #: present.
        self.brokers: dict[tuple[str, str], dict[str, int | None]] = {}
        #: action_id -> environment and row of the act. The acts are in the order in which they began.
        self.actions: dict[str, tuple[str, OperatorAction]] = {}
        self.refused: dict[tuple[str, AnnouncementQueue, int], QuarantinedAnnouncement] = {}


class MemoryRounds:
    """Rounds over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def since_ms(self, subscription: Subscription) -> int | None:
        """Returns the noted time."""
        with self._rows.lock:
            return self._rows.since_ms.get(subscription)

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Stores `at_ms`, or 0 if the subscription has rows."""
        with self._rows.lock:
            had_rounds = any(
                known == subscription
                for known in (
                    *(shard.subscription for shard, _, _ in self._rows.rounds),
                    *(of for of, _ in self._rows.floors),
                    *(row.subscription for row in self._rows.candidates.values()),
                )
            )
            since_ms = 0 if at_ms is None or had_rounds else min(at_ms, self._rows.clock.now_ms())
            return self._rows.since_ms.setdefault(subscription, since_ms)

    def store(self, *done: RoundDone) -> None:
        """Stores one row per round. If a generation ran again after Redis fell back, the new round replaces the undone
        round."""
        with self._rows.lock:
            for one in done:
                key = (one.shard, one.epoch, one.generation)
                old = self._rows.rounds.get(key)
                if old is None or old.done.at_ms < one.at_ms:
                    now_ms = self._rows.clock.now_ms()
                    self._rows.rounds[key] = StoredRound(done=one, is_void=False, stored_at_ms=now_ms)

    def void_after(self, shard: Shard, *, epoch: str, generation: int, at_ms: int | None = None) -> int:
        """Marks undone rounds as void. Returns the number of these rounds."""
        with self._rows.lock:
            undone = [
                key
                for key, row in self._rows.rounds.items()
                if key[:2] == (shard, epoch)
                and not row.is_void
                and (key[2] > generation or (at_ms is not None and row.done.at_ms > at_ms))
            ]
            for key in undone:
                self._rows.rounds[key] = replace(self._rows.rounds[key], is_void=True)
            return len(undone)

    def keep_rest(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Keeps one row of rest per subscription."""
        with self._rows.lock:
            at_ms = self._rows.clock.now_ms() - round(seconds_ago * 1000)
            self._rows.rests |= {of: StoredRest(at_ms=at_ms, shards=tuple(shards)) for of, shards in seen.items()}
        return True

    def last(self, shard: Shard) -> RoundDone | None:
        """Returns the newest round that is not void."""
        with self._rows.lock:
            rounds = [row.done for key, row in self._rows.rounds.items() if key[0] == shard and not row.is_void]
        return max(rounds, key=lambda done: (done.at_ms, done.generation), default=None)

    def raise_floor(
        self, subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Raises lower floors to these offsets."""
        with self._rows.lock:
            for queue, offset in floor.items():
                self._raise(subscription, queue, offset, (proofs or {}).get(queue))

    def _raise(self, subscription: Subscription, field: str, offset: int, proof: QueueProof | None) -> None:
        old = self._rows.floors.get((subscription, field))
        after = (offset, proof) if old is None else next_floor((old.queue_offset, old.proof), (offset, proof))
        if after is not None:
            broker, _, queue_id = field.rpartition("/")
            self._rows.floors[subscription, field] = Floor(
                subscription=subscription,
                broker=broker,
                queue_id=int(queue_id),
                queue_offset=after[0],
                updated_at_ms=self._rows.clock.now_ms(),
                proof=after[1],
            )


class MemoryOutages:
    """Outages over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def current(self, environment: str) -> Outage | None:
        """Returns the oldest open outage."""
        with self._rows.lock:
            rows = [
                row for key, row in self._rows.outages.items() if key[0] == environment and row.closed_at_ms is None
            ]
        return min(rows, key=lambda row: row.started_at_ms, default=None)

    def open(self, environment: str, *, reason: str, noticed_by: str) -> Outage:
        """Opens an outage unless one is open."""
        del noticed_by  # a column for people, which the port's value lacks
        with self._rows.lock:
            current = self.current(environment)
            if current is not None:
                return current
            stored = [
                row.stored_at_ms
                for key, row in self._rows.rounds.items()
                if key[0].subscription.environment == environment and not row.is_void
            ]
            started_at_ms = min(self._rows.clock.now_ms(), max(stored, default=self._rows.clock.now_ms()))
            while (environment, started_at_ms) in self._rows.outages:
                started_at_ms -= 1
            outage = Outage(
                environment=environment,
                started_at_ms=started_at_ms,
                reason=reason,
                scan_position=None,
                scanned=0,
                closed_at_ms=None,
            )
            self._rows.outages[environment, started_at_ms] = outage
            return outage

    def advance(self, outage: Outage, *, scan_position: Mapping[str, object], scanned: int) -> None:
        """Stores the progress of the scan."""
        key = (outage.environment, outage.started_at_ms)
        with self._rows.lock:
            row = self._rows.outages.get(key)
            if row is not None and row.closed_at_ms is None:
                self._rows.outages[key] = replace(row, scan_position=dict(scan_position), scanned=scanned)

    def note_reason(self, outage: Outage, reason: str) -> None:
        """Replaces the reason of the open outage."""
        key = (outage.environment, outage.started_at_ms)
        with self._rows.lock:
            row = self._rows.outages.get(key)
            if row is not None and row.closed_at_ms is None:
                self._rows.outages[key] = replace(row, reason=reason)

    def finish(self, outage: Outage) -> bool:
        """Closes every open outage of the environment. Returns False if none was open."""
        with self._rows.lock:
            still_open = [
                key
                for key, row in self._rows.outages.items()
                if key[0] == outage.environment and row.closed_at_ms is None
            ]
            for key in still_open:
                self._rows.outages[key] = replace(self._rows.outages[key], closed_at_ms=self._rows.clock.now_ms())
            return bool(still_open)


class MemoryHolds:
    """Holds over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def active(self, environment: str) -> Mapping[str, Sequence[HoldKind]]:
        """Returns each held topic with the kinds of its holds."""
        found: dict[str, list[HoldKind]] = {}
        with self._rows.lock:
            for owner, topic, kind in sorted(self._rows.holds):
                if owner == environment:
                    found.setdefault(topic, []).append(kind)
        return found

    def place(
        self, environment: str, topic: str, kind: HoldKind, *, by: str, reason: Fact | str, until_ms: int | None = None
    ) -> bool:
        """Places a hold. Returns False if a hold of this kind existed."""
        key = (environment, topic, kind)
        text, fact = (reason, None) if isinstance(reason, str) else (self._rows.english(reason), reason)
        with self._rows.lock:
            known = self._rows.holds.get(key)
            if known is not None:
                if kind is HoldKind.BREAKER:
                    now_ms = self._rows.clock.now_ms()
                    self._rows.holds[key] = replace(known, since_ms=now_ms, reason=bounded_text(text), reason_fact=fact)
                else:
                    words = held_again(known.by, known.reason, by=by, reason=text)
                    end = later_end(known.until_ms, until_ms)
                    self._rows.holds[key] = replace(known, reason=words, until_ms=end)
                return False
            self._rows.holds[key] = HeldTopic(
                topic=topic,
                kind=kind,
                since_ms=self._rows.clock.now_ms(),
                by=bounded_text(by, NAME_CHARACTERS),
                reason=bounded_text(text),
                until_ms=until_ms,
                reason_fact=fact,
            )
            return True

    def renew(self, environment: str, topic: str) -> bool:
        """Renews the BREAKER hold. Returns False if the topic has no such hold."""
        key = (environment, topic, HoldKind.BREAKER)
        with self._rows.lock:
            known = self._rows.holds.get(key)
            if known is not None:
                self._rows.holds[key] = replace(known, since_ms=self._rows.clock.now_ms())
            return known is not None

    def lift(self, environment: str, topic: str, kind: HoldKind, *, calm_seconds: float = 0.0) -> bool:
        """Lifts the hold. Returns False if there was no hold, or if the hold is younger than `calm_seconds`."""
        with self._rows.lock:
            known = self._rows.holds.get((environment, topic, kind))
            now_ms = self._rows.clock.now_ms()
            if known is not None and calm_seconds and known.since_ms > now_ms - round(calm_seconds * 1000):
                return False
            return self._rows.holds.pop((environment, topic, kind), None) is not None

    def lift_seen(self, environment: str, *held: HeldTopic) -> frozenset[HoldKind]:
        """Lifts these holds. If a hold has changed since it was seen, lifts no hold."""
        keys = [(environment, one.topic, one.kind) for one in held]
        with self._rows.lock:
            for key, one in zip(keys, held, strict=True):
                known = self._rows.holds.get(key)
                if known is not None and known.seen != one.seen:
                    return frozenset()
            return frozenset(key[2] for key in keys if self._rows.holds.pop(key, None) is not None)


class MemoryOperatorActions:
    """Acts of people over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def begin(self, environment: str, intent: Intent, *, fact: Fact | None = None) -> str:
        """Stores an act without its end, and returns its id."""
        kept = replace(intent, by=bounded_text(intent.by, NAME_CHARACTERS), detail=bounded_text(intent.detail))
        with self._rows.lock:
            action_id = f"{len(self._rows.actions):032x}"
            started_at_ms = self._rows.clock.now_ms()
            action = OperatorAction(action_id=action_id, intent=kept, started_at_ms=started_at_ms, fact=fact)
            self._rows.actions[action_id] = (environment, action)
        return action_id

    def end(self, action_id: str, result: str, *, fact: Fact | None = None) -> None:
        """Stores the end of an act."""
        with self._rows.lock:
            environment, action = self._rows.actions[action_id]
            ended = replace(action, ended_at_ms=self._rows.clock.now_ms(), result=bounded_text(result))
            ended = replace(ended, fact=fact or action.fact)
            self._rows.actions[action_id] = (environment, ended)


class MemoryKnownBrokers:
    """Brokers of routes over a dictionary."""

    def __init__(self, rows: MemoryLedgerRows) -> None:
        self._rows = rows

    def note(
        self, environment: str, topic: str, seen: Collection[str] | None, *, keep_seconds: float
    ) -> frozenset[str]:
        """Stores the brokers of the route, and returns all brokers that count as witnesses."""
        with self._rows.lock:
            now_ms = self._rows.clock.now_ms()
            known = self._rows.brokers.get((environment, topic), {})
            after = brokers_after(known, seen, now_ms=now_ms, keep_seconds=keep_seconds)
            self._rows.brokers[environment, topic] = after
            return frozenset(after)


class MemoryAnnouncementLedger:
    """The durable side of the announcement consumer over dictionaries."""

    def __init__(self, rows: MemoryLedgerRows, outages: MemoryOutages) -> None:
        self._rows = rows
        self._outages = outages

    def floor(self, subscription: Subscription, queue: AnnouncementQueue) -> Floor | None:
        """Returns the floor of the queue."""
        with self._rows.lock:
            return self._rows.floors.get((subscription, offsets_field(queue.broker, queue.queue_id)))

    def quarantine(self, environment: str, refused: Sequence[RefusedAnnouncement]) -> None:
        """Keeps refused announcements. An announcement that is refused twice is kept once."""
        with self._rows.lock:
            for one in refused:
                kept = replace(one, detail=bounded_text(one.detail), body=one.body[:QUARANTINE_BODY_BYTES])
                self._rows.refused.setdefault(
                    (environment, one.queue, one.queue_offset),
                    QuarantinedAnnouncement(
                        environment=environment, refused=kept, seen_at_ms=self._rows.clock.now_ms()
                    ),
                )

    def open_outage_reason(self, environment: str) -> str | None:
        """Returns the reason of an open outage that is not scanned yet."""
        current = self._outages.current(environment)
        return None if current is None or current.is_scanned else current.reason

    def open_outage(self, environment: str, *, reason: str, noticed_by: str) -> None:
        """Opens an outage unless one is open."""
        self._outages.open(environment, reason=reason, noticed_by=noticed_by)

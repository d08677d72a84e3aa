"""Step 7: a *round* compares the sets of one shard, once, in one atomic step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.queue_proof import QueueProof
from reconciler.contract.subscription import Shard, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCounts:
    """What one round moved. `announced - matched - pending_added` keys were pending already."""

    announced: int
    #: Announced keys whose consumption was recorded already.
    matched: int
    pending_before: int
    #: Keys new in pending.
    pending_added: int
    #: Keys that left pending because their consumption was recorded.
    pending_matched: int
    pending_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDone:
    """A round that ran."""

    shard: Shard
    epoch: str
    #: The fence after the round.
    generation: int
    #: Redis TIME of the round in milliseconds, but later than that of every round before.
    at_ms: int
    #: "<broker>/<queue>" -> next offset of the unique-key topic, read in the same atomic step.
    offsets: Mapping[str, int]
    counts: RoundCounts
    #: Offsets like `offsets`: each key announced below them was matched or settled when the round ran. Not stored.
    floor: Mapping[str, int] = field(default_factory=dict, compare=False)
    #: What proves them, of the queues for which it was known.
    floor_proofs: Mapping[str, QueueProof] = field(default_factory=dict, compare=False)
    #: The time that keys first seen by this round get: at_ms, unless Redis' clock is far behind earlier rounds. None:
    #: the round is the ledger's, which does not keep it.
    clock_ms: int | None = field(default=None, compare=False)
    #: First seen of the oldest key that is pending after it; None: there is none, or the round is the ledger's.
    oldest_pending_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """What a shard's memory says before a round."""

    #: None: no epoch marker, Redis is new or lost its memory.
    epoch: str | None
    generation: int
    now_ms: int
    #: at_ms of the newest round of this memory. None: it has none, or Redis lost it.
    round_at_ms: int | None = None

    def has_undone(self, last: RoundDone) -> bool:
        """True if the stored round is no ancestor of the memory's newest round; rounds of one memory have rising times.

        By time, too: Redis may come back with what an earlier fall-back had undone, and its numbers prove nothing then.
        """
        if last.epoch != self.epoch:
            return False
        is_later = self.round_at_ms is not None and last.at_ms > self.round_at_ms
        return is_later or last.generation > self.generation

    def has_lost(self, last: RoundDone) -> bool:
        """True if this is another memory than the one that the stored round left, or fell back behind it."""
        return last.epoch != self.epoch or self.has_undone(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReading:
    """What people are shown of a shard's memory, read in one step."""

    state: ShardState
    pending: int
    oldest_pending_ms: int | None
    #: Members of the commit sets.
    consumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRound:
    """The round that is to follow one, if no other has."""

    shard: Shard
    epoch: str
    generation: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingShard:
    """A shard at rest: a look found it as its last round had left it, and nothing that a round would move."""

    #: at_ms of that round.
    round_at_ms: int
    #: As of a round, when the look was taken.
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKey:
    """One unmatched key."""

    unique_key: str
    first_seen_ms: int
    #: Set apart (ShardMemory.apart): it is no suspect before its tag has been compared with the outbox.
    is_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlaces:
    """Where a shard's memory has one key; in several places between two rounds, in none before and long after."""

    #: In the half set: no round has taken its announcement yet.
    is_announced: bool
    #: Pending since then.
    first_seen_ms: int | None
    #: In a commit set of the last rounds.
    is_consumed: bool

    @property
    def is_anywhere(self) -> bool:
        """It is in one of them."""
        return self.is_announced or self.first_seen_ms is not None or self.is_consumed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLook:
    """What one *look* at a shard has found, in one step."""

    state: ShardState
    #: Members of the half set and all commit sets, which a round reads; 0: it would move none.
    members: int
    pending: int
    oldest_pending_ms: int | None
    #: Some keys may be set apart.
    has_apart: bool
    #: Whether the token holds the lease; None: nobody does any more.
    is_ours: bool | None
    #: As of a round.
    offsets: Mapping[str, int] = field(default_factory=dict)


class ShardMemory(Protocol):
    """The Redis half of step 7. Raises RedisAway; InvariantViolation for a key of a wrong type or a foreign epoch."""

    @property
    def is_spread(self) -> bool:
        """Shards lie on several servers, each of which may be away alone: RedisAway speaks of one shard only."""
        ...

    def state(self, shard: Shard) -> ShardState:
        """Reads epoch, generation and time; checks the type of every key and the epoch's environment."""
        ...

    def readings(self, shards: Collection[Shard]) -> Mapping[Shard, ShardReading]:
        """state() and pending_size() of all of them together.

        A shard that could not be read, whatever the cause, is left out: state() finds it out. Raises nothing.
        """
        ...

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new epoch marker unless there is one; returns the marker in force."""
        ...

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the atomic step once, if no other round has run since it was begun.

        None: it did not run, or it is not known whether it ran (another owner was quicker, the reply was lost, the
        epoch is another one). Either way pending holds every unmatched key and the next round is right.
        `not_before_ms`: at_ms of the last stored round + 1, so that ages never run backwards after a fail-over.
        """
        ...

    def take_small_rounds(self, rounds: Sequence[NextRound]) -> Mapping[Shard, RoundDone]:
        """Runs the atomic step of several shards, as few exchanges as there are servers; what ran, as far as is known.

        Raises nothing: each of the others, whatever the cause, is to be taken alone, which finds it out.
        """
        ...

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Pending keys first seen at or before the time, oldest first, ties by key; `after` pages on."""
        ...

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending: only after their ledger rows are committed. Returns how many were there."""
        ...

    def apart(self, shard: Shard, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        """Keys whose announced tag the group does not take: a page of about 500, and the cursor of the next one (0: no
        more). A hint, no evidence: any sender can announce. Some may be pending, in the half set, matched or settled.
        """
        ...

    def compared(self, shard: Shard, *, not_taken: Sequence[str], going_on: Sequence[str]) -> int:
        """Removes keys from pending whose tag in the outbox the group does not take; returns how many were there.

        Neither they nor those `going_on` are set apart any more, but for keys not taken that no round has seen yet.
        """
        ...

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Number of pending keys and the lowest first_seen_ms (None: empty)."""
        ...


class RoundLeases(Protocol):
    """Right to run a shard's rounds: saves work, correctness rests on the fence and the claims. Raises RedisAway."""

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews; False if another token holds it."""
        ...

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives up if the token holds it."""
        ...

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        """Looks at all of them together, and renews the leases of those with True, as far as the token holds them.

        A shard that could not be looked at, whatever the cause, is left out: its round finds it out. Raises nothing.
        """
        ...


class Sharers(Protocol):
    """Processes that share the subscriptions of an environment. An entry is a lease: it ends unless it is renewed.
    Raises RedisAway."""

    def enter(self, environment: str, *, token: str, digest: str, seconds: float) -> Collection[str]:
        """Enters the process, or renews its entry. Returns the tokens of the sharers with the same digest, its own too.

        `digest`: of the subscriptions that it has."""
        ...

    def leave(self, environment: str, *, token: str) -> None:
        """Takes its entry out."""
        ...


class Rounds(Protocol):
    """Durable record of rounds, since when they run, and the floors that they read. Raises DatabaseAway."""

    def since_ms(self, subscription: Subscription) -> int | None:
        """Since when the subscription answers for messages; 0: for every one. None: its first round is to come.

        A ledger that cannot keep it (an older one, a right that is missing) says 0, and tells that once.
        """
        ...

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Notes, before its first round, since when the subscription answers, and returns what is on record.

        That is `at_ms` or database time, if that is earlier. It is 0 where the ledger knows it already (rounds,
        candidates, floors) and for None: Redis does. What was noted before stays, whoever was first.
        """
        ...

    def store(self, *done: RoundDone) -> None:
        """A row each, all or none of them; doing it twice is harmless."""
        ...

    def void_after(self, shard: Shard, *, epoch: str, generation: int, at_ms: int | None = None) -> int:
        """Marks rounds of the epoch as void that are no ancestors of the memory's newest round: Redis fell back.

        They have a higher generation, or a later time than `at_ms` (None: its time is not known). Returns how many.
        The rows are for people, outages and the audit; the floor does not rest on them.
        """
        ...

    def last(self, shard: Shard) -> RoundDone | None:
        """The newest round that is not void."""
        ...

    def keep_rest(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Writes down, in one transaction, that all shards of these subscriptions were seen at rest so long ago, by
        number. False: the ledger cannot keep it."""
        ...

    def raise_floor(
        self, subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Raises the floor of each queue ("<broker>/<queue>") that lies lower (RoundDone.floor), with what proves it.

        It sinks only where its proof says that the queue began anew (contract/queue_proof.py), by compare-and-set.
        """
        ...

"""Step 7: a *round* compares the sets of one shard in one atomic step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.queue_proof import QueueProof
from reconciler.contract.subscription import Shard, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCounts:
    """How many keys one round moved. `announced - matched - pending_added` announced keys were pending already."""

    announced: int
    #: Announced keys whose consumption had been recorded.
    matched: int
    pending_before: int
    #: Keys that are new in pending.
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
    #: Redis TIME of the round in milliseconds; it is later than that of every earlier round.
    at_ms: int
    #: "<broker>/<queue>" -> next offset of the unique-key topic, read in the same atomic step.
    offsets: Mapping[str, int]
    counts: RoundCounts
    #: Offsets like `offsets`: every key announced below them was matched or settled when the round ran. The ledger does
    #: not store this field.
    floor: Mapping[str, int] = field(default_factory=dict, compare=False)
    #: The proofs of these offsets, for queues with a known one.
    floor_proofs: Mapping[str, QueueProof] = field(default_factory=dict, compare=False)
    #: The time that keys first seen by this round get: at_ms, unless Redis' clock is far behind earlier rounds. None:
    #: the round was read from the ledger, which does not store it.
    clock_ms: int | None = field(default=None, compare=False)
    #: When the oldest key that is pending after the round was first seen; None: no key is pending, or the round was
    #: read from the ledger.
    oldest_pending_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The state of a shard's memory before a round."""

    #: None: there is no epoch marker, because Redis is new or lost its memory.
    epoch: str | None
    generation: int
    now_ms: int
    #: at_ms of this memory's newest round. None: it has had no round, or Redis lost it.
    round_at_ms: int | None = None

    def has_undone(self, last: RoundDone) -> bool:
        """Returns True if the stored round does not precede the memory's newest round; the rounds of one memory have
        rising times.

        It compares times, too: after an earlier fall-back, Redis may come back with rounds that were undone, and then
        numbers prove nothing.
        """
        if last.epoch != self.epoch:
            return False
        is_later = self.round_at_ms is not None and last.at_ms > self.round_at_ms
        return is_later or last.generation > self.generation

    def has_lost(self, last: RoundDone) -> bool:
        """Returns True if this is another memory than the one that the stored round left, or if it fell back behind
        that round."""
        return last.epoch != self.epoch or self.has_undone(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReading:
    """What people see of a shard's memory, read in one step."""

    state: ShardState
    pending: int
    oldest_pending_ms: int | None
    #: Number of members of the commit sets.
    consumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRound:
    """The round that is to follow a known one, unless another round has run since."""

    shard: Shard
    epoch: str
    generation: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingShard:
    """A shard at rest: a look found it as its last round had left it, with nothing for a round to move."""

    #: at_ms of its last round.
    round_at_ms: int
    #: Offsets as a round reads them, at the time of the look.
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKey:
    """One key that is pending."""

    unique_key: str
    first_seen_ms: int
    #: True if the key is set apart (ShardMemory.apart): it is no suspect before its tag was compared with the outbox.
    is_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlaces:
    """The places of one key in a shard's memory: several between two rounds, none before its announcement and long
    after."""

    #: The key is in the half set: no round has taken its announcement yet.
    is_announced: bool
    #: The key is pending since this time; None: it is not pending.
    first_seen_ms: int | None
    #: The key is in a commit set of the last rounds.
    is_consumed: bool

    @property
    def is_anywhere(self) -> bool:
        """True if the key is in any of these places."""
        return self.is_announced or self.first_seen_ms is not None or self.is_consumed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLook:
    """What one *look* at a shard found, in one step."""

    state: ShardState
    #: Number of members of the half set and all commit sets, which a round reads; 0: a round would move no key.
    members: int
    pending: int
    oldest_pending_ms: int | None
    #: True if some keys may be set apart.
    has_apart: bool
    #: True if the token holds the lease; None: the lease is free.
    is_ours: bool | None
    #: Offsets as a round reads them.
    offsets: Mapping[str, int] = field(default_factory=dict)


class ShardMemory(Protocol):
    """The part of step 7 in Redis. Raises RedisAway; InvariantViolation for a key of a wrong type or a foreign
    epoch."""

    @property
    def is_spread(self) -> bool:
        """True if shards lie on several servers, each of which may be away alone: then RedisAway concerns one shard
        only."""
        ...

    def state(self, shard: Shard) -> ShardState:
        """Reads epoch, generation and time; checks the type of every key and the epoch's environment."""
        ...

    def readings(self, shards: Collection[Shard]) -> Mapping[Shard, ShardReading]:
        """Does state() and pending_size() for all of them together.

        A shard that could not be read is left out, whatever the cause: state() raises the error. Raises nothing.
        """
        ...

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new epoch marker unless one exists; returns the valid marker."""
        ...

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the atomic step once, unless another round has run since it was begun.

        None: it did not run, or that is unknown (another owner was faster, the reply was lost, or the epoch differs).
        In any case pending holds every unmatched key, and the next round is correct. `not_before_ms`: at_ms of the last
        stored round + 1, so that ages never run backwards after a fail-over.
        """
        ...

    def take_small_rounds(self, rounds: Sequence[NextRound]) -> Mapping[Shard, RoundDone]:
        """Runs the atomic steps of several shards with one exchange per server; returns those that are known to have
        run.

        Raises nothing: each of the other shards must be taken alone, which raises its error.
        """
        ...

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Returns pending keys that were first seen at or before the time, the oldest first, equal times by key;
        `after`: the last key of the page before."""
        ...

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending; call it only after their ledger rows are committed. Returns how many keys were
        pending."""
        ...

    def apart(self, shard: Shard, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        """Returns a page of about 500 keys whose announced tag the group does not take, and the cursor of the next page
        (0: the last page). This is a hint and proves nothing, because any sender can announce. Some of the keys may be
        pending, in the half set, matched or settled."""
        ...

    def compared(self, shard: Shard, *, not_taken: Sequence[str], going_on: Sequence[str]) -> int:
        """Removes keys from pending whose tag in the outbox the group does not take; returns how many were pending.

        Neither these keys nor those in `going_on` stay set apart, except keys that are not taken and that no round has
        seen yet.
        """
        ...

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Returns the number of pending keys and the lowest first_seen_ms (None: no key is pending)."""
        ...


class RoundLeases(Protocol):
    """The right to run a shard's rounds: it saves work, while fence and claims make rounds correct. Raises
    RedisAway."""

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease; False: another token holds it."""
        ...

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives the lease back if the token holds it."""
        ...

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        """Looks at all shards together, and renews the leases of those with True if the token holds them.

        A shard that could not be looked at is left out, whatever the cause: its round raises the error. Raises nothing.
        """
        ...


class Sharers(Protocol):
    """The processes that share the subscriptions of an environment. An entry is a lease: it ends if it is not renewed.
    Raises RedisAway."""

    def enter(self, environment: str, *, token: str, digest: str, seconds: float) -> Collection[str]:
        """Adds the process, or renews its entry. Returns the tokens of all sharers with the same digest, including its
        own.

        `digest`: the digest of the process's subscriptions.
        """
        ...

    def leave(self, environment: str, *, token: str) -> None:
        """Removes the entry."""
        ...


class Rounds(Protocol):
    """The durable record of rounds, since when they run, and the floors that they read. Raises DatabaseAway."""

    def since_ms(self, subscription: Subscription) -> int | None:
        """Returns since when the subscription answers for messages; 0: for every message. None: it has had no round
        yet.

        A ledger that cannot store it (an older one, or a missing right) gives 0, and logs that once.
        """
        ...

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Stores before the subscription's first round since when it answers for messages; returns the stored time.

        That is `at_ms`, or database time if that is earlier. It is 0 if the ledger has rounds, candidates or floors of
        the subscription, and for None, which means that Redis knows the subscription. A stored time stays, whoever
        stored it first.
        """
        ...

    def store(self, *done: RoundDone) -> None:
        """Writes one row for each round, all or none; doing it twice is harmless."""
        ...

    def void_after(self, shard: Shard, *, epoch: str, generation: int, at_ms: int | None = None) -> int:
        """Marks those rounds of the epoch as void that do not precede the memory's newest round, because Redis fell
        back.

        They have a higher generation, or a later time than `at_ms` (None: its time is unknown). Returns their number.
        These rows serve people, outages and the audit; the floor does not need them.
        """
        ...

    def last(self, shard: Shard) -> RoundDone | None:
        """Returns the newest round that is not void."""
        ...

    def keep_rest(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Stores in one transaction that all shards of these subscriptions were seen at rest so many seconds ago, by
        number. False: the ledger cannot store it."""
        ...

    def raise_floor(
        self, subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Raises the floor of each queue ("<broker>/<queue>") that lies lower (RoundDone.floor), with its proof.

        A floor sinks only if its proof says that the queue began again (contract/queue_proof.py), by compare-and-set.
        """
        ...

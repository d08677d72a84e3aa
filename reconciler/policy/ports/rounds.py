"""Step 7: a *round* compares the sets of one shard in one atomic step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.queue_proof import QueueProof
from reconciler.contract.subscription import Shard, Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCounts:
    """Numbers of keys that one round moved. The other announced keys, `announced - matched - pending_added`, were
    pending already."""

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
    """The result of a round that ran."""

    shard: Shard
    epoch: str
    #: The fence after the round.
    generation: int
    #: Redis TIME of the round in milliseconds. Every later round has a later time.
    at_ms: int
    #: "<broker>/<queue>" -> the next offset of the unique-key topic, read in the round's atomic step.
    offsets: Mapping[str, int]
    counts: RoundCounts
    #: Offsets like `offsets`: every key announced below them was matched or settled when the round ran. The ledger does
    #: not store this field.
    floor: Mapping[str, int] = field(default_factory=dict, compare=False)
    #: The proofs of the offsets in `floor`, for queues whose proof is known.
    floor_proofs: Mapping[str, QueueProof] = field(default_factory=dict, compare=False)
    #: The time that keys get as first_seen_ms if this round saw them first: at_ms, unless Redis' clock is far behind
    #: earlier rounds. None: the round was read from the ledger, which does not store this time.
    clock_ms: int | None = field(default=None, compare=False)
    #: When the oldest of the keys that are pending after the round was first seen. None: no key is pending, or the
    #: round was read from the ledger.
    oldest_pending_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The state of a shard's memory before a round."""

    #: None: there is no epoch marker, because Redis is new or lost its memory.
    epoch: str | None
    generation: int
    now_ms: int
    #: at_ms of this memory's newest round. None: the memory has had no round, or Redis lost that time.
    round_at_ms: int | None = None

    def has_undone(self, last: RoundDone) -> bool:
        """Returns True if the stored round does not precede the memory's newest round: the rounds of one memory have
        rising times.

        Times are compared besides numbers. After an earlier fall-back, Redis may come back with rounds that were
        undone, and then numbers prove nothing.
        """
        if last.epoch != self.epoch:
            return False
        is_later = self.round_at_ms is not None and last.at_ms > self.round_at_ms
        return is_later or last.generation > self.generation

    def has_lost(self, last: RoundDone) -> bool:
        """Returns True if the stored round left another memory than this one, or if this memory fell back behind that
        round."""
        return last.epoch != self.epoch or self.has_undone(last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReading:
    """The state of a shard's memory for people, read in one step."""

    state: ShardState
    pending: int
    oldest_pending_ms: int | None
    #: Number of members of the commit sets.
    consumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRound:
    """The round that follows a known round, unless another round has run since."""

    shard: Shard
    epoch: str
    generation: int
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingShard:
    """A shard at rest: a look found the shard as its last round had left it, and a round would move nothing."""

    #: at_ms of the shard's last round.
    round_at_ms: int
    #: Offsets as a round reads them, at the time of the look.
    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKey:
    """One key that is pending."""

    unique_key: str
    first_seen_ms: int
    #: True if the key is set apart (ShardMemory.apart). Such a key is no suspect until its tag has been compared with
    #: the outbox.
    is_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlaces:
    """The places of one key in a shard's memory. Between two rounds a key may have several places. Before its
    announcement, and long after it, a key has none."""

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
    """The state of a shard that one *look* found, in one step."""

    state: ShardState
    #: Number of members of the half set and of all commit sets, which a round reads. 0: a round would move no key.
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
    """The part of step 7 in Redis. A method raises RedisAway if Redis is away, and InvariantViolation for a key of a
    wrong type or of a foreign epoch."""

    @property
    def is_spread(self) -> bool:
        """True if shards lie on several servers, so that one server may be away alone. Then RedisAway concerns one
        shard only."""
        ...

    def state(self, shard: Shard) -> ShardState:
        """Reads epoch, generation and time; checks the type of every key and the epoch's environment."""
        ...

    def readings(self, shards: Collection[Shard]) -> Mapping[Shard, ShardReading]:
        """Returns what state() and pending_size() return, for all shards together. Raises nothing.

        A shard that could not be read is left out, whatever the cause. state() then raises the error.
        """
        ...

    def begin_epoch(self, shard: Shard) -> str:
        """Writes a new epoch marker unless a marker exists. Returns the valid marker."""
        ...

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Runs the atomic step once, unless another round has run since the step was begun.

        None: the step did not run, or nobody knows whether it ran. Another owner was faster, the reply was lost, or the
        epoch differs. In any case pending holds every unmatched key, and the next round is correct. `not_before_ms` is
        at_ms of the last stored round + 1, so that ages never run backwards after a fail-over.
        """
        ...

    def take_small_rounds(self, rounds: Sequence[NextRound]) -> Mapping[Shard, RoundDone]:
        """Runs the atomic steps of several shards with one exchange per server. Returns the rounds that surely ran.

        Raises nothing. Each of the other shards must be taken alone, and that call raises the shard's error.
        """
        ...

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Returns pending keys that were first seen at or before the time. The oldest come first; keys of equal age are
        ordered by key. `after`: the last key of the page before."""
        ...

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending. Call this only after their ledger rows are committed. Returns how many keys were
        pending."""
        ...

    def apart(self, shard: Shard, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        """Returns a page of about 500 keys whose announced tag the group does not take, and the cursor of the next page
        (0: this is the last page). These keys are hints and prove nothing, because any sender can announce. Some of
        these keys may be pending, in the half set, matched or settled."""
        ...

    def compared(self, shard: Shard, *, not_taken: Sequence[str], going_on: Sequence[str]) -> int:
        """Removes keys from pending whose tag in the outbox the group does not take. Returns how many of them were
        pending.

        The keys of both arguments are set apart no longer. The only exceptions are keys of `not_taken` that no round
        has seen yet.
        """
        ...

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Returns the number of pending keys and the lowest first_seen_ms (None: no key is pending)."""
        ...


class RoundLeases(Protocol):
    """The right to run a shard's rounds. A lease saves work; fence and claims keep rounds correct without a lease.
    Raises RedisAway."""

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the lease. False: another token holds the lease."""
        ...

    def release(self, shard: Shard, *, token: str) -> None:
        """Gives the lease back if the token holds the lease."""
        ...

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        """Looks at all shards together. Renews the lease of each shard that is given with True, if the token holds that
        lease. Raises nothing.

        A shard that could not be looked at is left out, whatever the cause. The shard's round then raises the error.
        """
        ...


class Sharers(Protocol):
    """The processes that share the subscriptions of an environment. A process's entry is a lease, which ends unless the
    process renews it. Raises RedisAway."""

    def enter(self, environment: str, *, token: str, digest: str, seconds: float) -> Collection[str]:
        """Adds the process, or renews its entry. Returns the tokens of all sharers with the same digest. The process's
        own token is among them.

        `digest`: the digest of the process's subscriptions.
        """
        ...

    def leave(self, environment: str, *, token: str) -> None:
        """Removes the entry."""
        ...


class Rounds(Protocol):
    """Stores rounds, since when each subscription has rounds, and the floors that announcement consumers read. Raises
    DatabaseAway."""

    def since_ms(self, subscription: Subscription) -> int | None:
        """Returns the time since which the subscription answers for messages. 0: for every message. None: the
        subscription has had no round yet.

        An older ledger, or one without the right, cannot store this time. Then the result is 0, and the log says so
        once.
        """
        ...

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Stores, before the subscription's first round, since when the subscription answers for messages. Returns the
        stored time.

        The time is `at_ms`, or database time if that is earlier. The time is 0 if the ledger has rounds, candidates or
        floors of the subscription. The time is also 0 if `at_ms` is None, which means that Redis knows the
        subscription. The time that was stored first stays.
        """
        ...

    def store(self, *done: RoundDone) -> None:
        """Writes one row for each round: all rows or none. Storing a round twice is harmless."""
        ...

    def void_after(self, shard: Shard, *, epoch: str, generation: int, at_ms: int | None = None) -> int:
        """Marks rounds of the epoch as void because Redis fell back: those that do not precede the memory's newest
        round. Returns their number.

        Such a round has a higher generation, or a later time than `at_ms` (None: the time of the newest round is
        unknown). People, outages and the audit read these marks; the floor does not need them.
        """
        ...

    def last(self, shard: Shard) -> RoundDone | None:
        """Returns the newest round that is not void."""
        ...

    def keep_rest(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Stores in one transaction that all shards of these subscriptions were seen at rest `seconds_ago`. The shards
        are in the order of their numbers. False: the ledger cannot store this."""
        ...

    def raise_floor(
        self, subscription: Subscription, floor: Mapping[str, int], proofs: Mapping[str, QueueProof] | None = None
    ) -> None:
        """Raises the floor of each queue ("<broker>/<queue>") to the value in `floor`, with its proof, if the stored
        floor is lower.

        A floor sinks only if its proof says that the queue began again (contract/queue_proof.py). Such a change is a
        compare-and-set.
        """
        ...

"""Half sets, commit sets, rounds, leases and captures in memory. All of them behave as reconciler/shards does in Redis.

Thread-safe. Every call takes one lock, as Redis runs one command at a time.

A key is announced, a round finds it pending, its consumption is recorded, and the next round has matched it:

>>> from reconciler.testing import ManualClock
>>> shards = MemoryShards(ManualClock())
>>> billing = Subscription(environment="test", topic="ORDERS", group="billing")
>>> shard = Shard(subscription=billing, number=0)
>>> queue = AnnouncementQueue(unique_key_topic="UNIQUE_KEYS", broker="broker-a", queue_id=0)
>>> key = "7F0000010000000000000000000000A1"
>>> shards.admit(shard, queue, expected=None, following=1, unique_keys=[key]).admitted
True
>>> epoch = shards.begin_epoch(shard)
>>> shards.take_round(shard, epoch=epoch).counts.pending_after
1
>>> shards.record(billing, [key], shards=1)
>>> shards.take_round(shard, epoch=epoch).counts.pending_after
0
"""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from reconciler.clock import Clock, Standstill
from reconciler.contract.keyspace import (
    AHEAD_MS_MAX,
    APART_KEYS_MAX,
    COMMIT_GENERATIONS_DEFAULT,
    COVERED_ROUNDS_MAX,
    SHARDS_DEFAULT,
    TIMES_KEPT,
    offsets_field,
    require_history_generations,
)
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import member_of, shard_of
from reconciler.errors import InvariantViolation, ReconcilerError, warn_of_former_paths
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue, KnownRecords, QueuePlace
from reconciler.policy.ports.history import Capture, CapturedRound, PendingSnapshot, RoundMark
from reconciler.policy.ports.rounds import (
    NextRound,
    PendingKey,
    RoundCounts,
    RoundDone,
    ShardLook,
    ShardReading,
    ShardState,
)
from reconciler.shards.readable_rounds import TakenRound, readable_rounds


@dataclass(slots=True)
class _Memory:
    """One shard's keys."""

    commit: list[set[str]]
    half: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)
    pending: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    #: Queue -> the proof of its offset.
    proofs: dict[str, KnownRecords] = field(default_factory=dict)
    epoch: str | None = None
    #: at_ms of each round that still counts -> the offsets of the round (with_round).
    covered: dict[int, Mapping[str, int]] = field(default_factory=dict)
    #: at_ms of each of these rounds -> the proofs of the offsets of the round.
    covered_proofs: dict[int, Mapping[str, QueueProof]] = field(default_factory=dict)
    round_at_ms: int | None = None
    #: Generation -> the sets of the round. The next dictionary has, for more rounds, the description of the round. The
    #: history reads both.
    kept: dict[int, CapturedRound] = field(default_factory=dict)
    taken: dict[int, TakenRound] = field(default_factory=dict)
    #: Lease name -> (token, wall time of its end).
    leases: dict[str, tuple[str, int]] = field(default_factory=dict)


class MemoryShards:
    """The ports ShardMemory, RoundLeases, Sharers, HalfSets, CommitSets and RoundCapture over dictionaries.

    `wipe` acts like a Redis that lost everything. `save` and `restore` act like a Redis that fell back to its last
    save.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        commit_generations: int = COMMIT_GENERATIONS_DEFAULT,
        history_generations: int = 0,
    ) -> None:
        require_history_generations(history_generations, commit_generations=commit_generations)
        self._clock = clock
        self._standstill = Standstill(clock)
        self._commit_generations = commit_generations
        self._history_generations = history_generations
        self._shards: dict[Shard, _Memory] = {}
        self._last_ms: dict[Shard, int] = {}
        #: Environment -> token of a sharer -> the sharer's digest, the time of its renewal, and the length in ms.
        self._sharers: dict[str, dict[str, tuple[str, int, int]]] = {}
        self._lock = threading.RLock()
        #: A test sets this to True if the keys are spread as in a cluster.
        self.is_spread = False

    # ---- what a Redis may do to its memory

    def wipe(self) -> None:
        """Loses everything."""
        with self._lock:
            self._shards.clear()
            self._sharers.clear()

    def save(self) -> object:
        """Returns the contents that a save on disk would have."""
        with self._lock:
            return copy.deepcopy(self._shards)

    def restore(self, saved: object) -> None:
        """Falls back to the saved contents, and loses later writes."""
        if not isinstance(saved, dict):
            raise TypeError("expected what save() returned")
        with self._lock:
            self._shards = copy.deepcopy(saved)

    # ---- HalfSets

    def position(self, shard: Shard, queue: AnnouncementQueue) -> int | None:
        """Returns the stored next offset."""
        with self._lock:
            return self._memory(shard).offsets.get(offsets_field(queue.broker, queue.queue_id))

    def positions(self, places: Sequence[QueuePlace]) -> Mapping[QueuePlace, int | None]:
        """Returns the stored next offsets."""
        with self._lock:
            return {
                (shard, queue): self._memory(shard).offsets.get(offsets_field(queue.broker, queue.queue_id))
                for shard, queue in places
            }

    def known_records(self, shard: Shard, queue: AnnouncementQueue) -> KnownRecords:
        """Returns the proofs that are kept beside the offset."""
        with self._lock:
            return self._memory(shard).proofs.get(offsets_field(queue.broker, queue.queue_id), KnownRecords())

    def admit(
        self,
        shard: Shard,
        queue: AnnouncementQueue,
        *,
        expected: int | None,
        following: int,
        unique_keys: Sequence[str],
        apart: Sequence[str] = (),
        record: QueueRecord | None = None,
        trail: Sequence[QueueRecord] | None = None,
    ) -> Admission:
        """Compares the offset, adds the keys and moves the offset, all in one step."""
        with self._lock:
            memory, name = self._memory(shard), offsets_field(queue.broker, queue.queue_id)
            stored = memory.offsets.get(name)
            if stored != expected:
                return Admission(admitted=False, offset=stored)
            memory.half.update(unique_keys)
            if len(memory.apart) < APART_KEYS_MAX:
                memory.apart.update(apart)
            if record is not None:
                memory.proofs[name] = KnownRecords(
                    proof=QueueProof(following=following, record=record),
                    trail=tuple(trail) if trail else memory.proofs.get(name, KnownRecords()).trail,
                )
            memory.offsets[name] = following
            return Admission(admitted=True, offset=following)

    def size(self, shard: Shard) -> int:
        """Counts keys in the half set."""
        with self._lock:
            return len(self._memory(shard).half)

    def take_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the announcement lease of a queue."""
        return self._take(shard, f"announcement/{queue.broker}", token, lease_seconds)

    def renew_leases(self, places: Sequence[QueuePlace], *, token: str, lease_seconds: float) -> Set[QueuePlace]:
        """Takes or renews the leases, and returns the places that the token holds."""
        return {
            (shard, queue)
            for shard, queue in places
            if self._take(shard, f"announcement/{queue.broker}", token, lease_seconds)
        }

    def release_lease(self, shard: Shard, queue: AnnouncementQueue, *, token: str) -> None:
        """Releases the announcement lease."""
        self._release(shard, f"announcement/{queue.broker}", token)

    # ---- CommitSets

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds consumed keys to their shards."""
        with self._lock:
            for key in unique_keys:
                number = shard_of(key, shards)
                self._memory(Shard(subscription=subscription, number=number)).commit[0].add(key)

    # ---- RoundLeases

    def take(self, shard: Shard, *, token: str, lease_seconds: float) -> bool:
        """Takes or renews the round lease."""
        return self._take(shard, "round", token, lease_seconds)

    def release(self, shard: Shard, *, token: str) -> None:
        """Releases the round lease."""
        self._release(shard, "round", token)

    def look(self, shards: Mapping[Shard, bool], *, token: str, lease_seconds: float) -> Mapping[Shard, ShardLook]:
        """Looks at each shard in one step."""
        found: dict[Shard, ShardLook] = {}
        for shard, renews in shards.items():
            with self._lock, suppress(InvariantViolation):
                state, memory = self._state(shard), self._memory(shard)
                is_ours = self._is_ours(shard, "round", token, lease_seconds)
                if renews and is_ours:
                    self._take(shard, "round", token, lease_seconds)
                found[shard] = ShardLook(
                    state=state,
                    members=len(memory.half) + sum(map(len, memory.commit)),
                    pending=len(memory.pending),
                    oldest_pending_ms=min(memory.pending.values(), default=None),
                    has_apart=bool(memory.apart),
                    is_ours=is_ours,
                    offsets=dict(memory.offsets),
                )
        return found

    # ---- Sharers

    def enter(self, environment: str, *, token: str, digest: str, seconds: float) -> Collection[str]:
        """Enters or renews the sharer. Returns the sharers that have the same digest."""
        now_ms, length_ms = self._clock.now_ms(), round(seconds * 1000)
        with self._lock:
            entries = self._sharers.setdefault(environment, {})
            entries[token] = (digest, now_ms, length_ms)
            for name, (_, at_ms, of_ms) in list(entries.items()):
                if not at_ms <= now_ms < at_ms + of_ms:
                    del entries[name]
            return {name for name, (shared, _, _) in entries.items() if shared == digest}

    def leave(self, environment: str, *, token: str) -> None:
        """Removes the sharer."""
        with self._lock:
            self._sharers.get(environment, {}).pop(token, None)

    # ---- ShardMemory

    def state(self, shard: Shard) -> ShardState:
        """Returns epoch, generation and time of the last round."""
        with self._lock:
            return self._state(shard)

    def readings(self, shards: Collection[Shard]) -> Mapping[Shard, ShardReading]:
        """Reads one shard after the other."""
        found = {}
        for shard in shards:
            with suppress(ReconcilerError), self._lock:
                size, oldest_ms = self.pending_size(shard)
                found[shard] = ShardReading(
                    state=self._state(shard),
                    pending=size,
                    oldest_pending_ms=oldest_ms,
                    consumed=sum(map(len, self._memory(shard).commit)),
                )
        return found

    def begin_epoch(self, shard: Shard) -> str:
        """Makes an epoch marker unless a marker exists."""
        with self._lock:
            memory = self._memory(shard)
            if memory.epoch is None:
                memory.epoch = f"{shard.subscription.environment}:{secrets.token_hex(8)}"
            self._require_own_epoch(shard, memory.epoch)
            return memory.epoch

    def take_round(self, shard: Shard, *, epoch: str, not_before_ms: int = 0) -> RoundDone | None:
        """Takes the round in one step."""
        with self._lock:
            memory = self._memory(shard)
            self._require_own_epoch(shard, memory.epoch)
            if memory.epoch != epoch:
                return None
            now_ms = self._clock.now_ms()
            at_ms = max(
                now_ms,
                not_before_ms,
                self._last_ms.get(shard, 0) + 1,
                (memory.round_at_ms or 0) + 1,
                max(memory.pending.values(), default=0),
            )
            clock_ms = now_ms if at_ms > now_ms + AHEAD_MS_MAX else at_ms
            consumed = set().union(*memory.commit)
            announced, before = len(memory.half), len(memory.pending)
            new = memory.half - consumed
            for key in new:
                memory.pending.setdefault(key, clock_ms)
            for key in [key for key, first_seen_ms in memory.pending.items() if first_seen_ms > clock_ms]:
                memory.pending[key] = clock_ms
            united = len(memory.pending)
            # Only the youngest commit set can hold a pending key (round.lua says why).
            late = memory.commit[0] & memory.pending.keys()
            for key in late:
                del memory.pending[key]
            memory.generation += 1
            self._keep(shard, memory, at_ms, late)
            memory.commit = [set(), *memory.commit[: self._commit_generations]]
            memory.half = set()
            self._last_ms[shard] = memory.round_at_ms = at_ms
            oldest_ms = min(memory.pending.values(), default=None)
            memory.covered, floor = with_round(
                memory.covered, at_ms=at_ms, offsets=dict(memory.offsets), oldest_pending_ms=oldest_ms
            )
            return RoundDone(
                shard=shard,
                epoch=epoch,
                generation=memory.generation,
                at_ms=at_ms,
                clock_ms=clock_ms,
                offsets=dict(memory.offsets),
                floor=floor,
                floor_proofs=self._floor_proofs(memory, at_ms, oldest_ms),
                oldest_pending_ms=oldest_ms,
                counts=RoundCounts(
                    announced=announced,
                    matched=announced - len(new),
                    pending_before=before,
                    pending_added=united - before,
                    pending_matched=united - len(memory.pending),
                    pending_after=len(memory.pending),
                ),
            )

    def take_small_rounds(self, rounds: Sequence[NextRound]) -> Mapping[Shard, RoundDone]:
        """Takes each round in one step."""
        found: dict[Shard, RoundDone] = {}
        for one in rounds:
            with self._lock, suppress(InvariantViolation):
                if self._memory(one.shard).generation == one.generation:
                    done = self.take_round(one.shard, epoch=one.epoch, not_before_ms=one.not_before_ms)
                    found |= {one.shard: done} if done is not None else {}
        return found

    def _floor_proofs(self, memory: _Memory, at_ms: int, oldest_pending_ms: int | None) -> Mapping[str, QueueProof]:
        known = {name: kept.proof for name, kept in memory.proofs.items() if kept.proof is not None}
        own = {name: proof for name, proof in known.items() if proof.following == memory.offsets.get(name)}
        memory.covered_proofs = {
            time: proofs for time, proofs in {**memory.covered_proofs, at_ms: own}.items() if time in memory.covered
        }
        before = [time for time in memory.covered if oldest_pending_ms is None or time < oldest_pending_ms]
        return memory.covered_proofs.get(max(before), {}) if before else {}

    def _keep(self, shard: Shard, memory: _Memory, at_ms: int, late: set[str]) -> None:
        """Keeps the keys that the round moved, for captures."""
        if not self._history_generations:
            memory.kept, memory.taken = {}, {}
            return
        announced, consumed, matched = (
            tuple(sorted(member_of(key) for key in keys)) for keys in (memory.half, memory.commit[0], late)
        )
        number = memory.generation
        memory.taken[number] = TakenRound(
            at_ms=at_ms, announced=len(announced), consumed=len(consumed), matched=len(matched)
        )
        memory.taken.pop(number - TIMES_KEPT, None)
        memory.kept[number] = CapturedRound(
            shard=shard,
            epoch=memory.epoch or "",
            generation=number,
            at_ms=at_ms,
            announced=announced,
            consumed=consumed,
            left_matched=matched,
        )
        for old in [one for one in memory.kept if one <= number - self._history_generations]:
            del memory.kept[old]

    # ---- RoundCapture

    def capture(self, shard: Shard, *, after: RoundMark | None) -> Capture:
        """Returns the kept rounds."""
        with self._lock:
            memory = self._memory(shard)
            self._require_own_epoch(shard, memory.epoch)
            plan = readable_rounds(after, epoch=memory.epoch, generation=memory.generation, taken=memory.taken)
            rounds = tuple(one for number, one in sorted(memory.kept.items()) if number >= plan.first_readable)
            first = rounds[0].generation if rounds else memory.generation + 1
            return Capture(
                shard=shard,
                epoch=memory.epoch,
                generation=memory.generation,
                now_ms=self._clock.now_ms(),
                rounds=rounds,
                missed=(plan.first_new, first - 1) if first > plan.first_new else None,
                new_memory=plan.new_memory,
                fell_back=plan.fell_back,
            )

    def snapshot(self, shard: Shard) -> PendingSnapshot:
        """Returns all pending keys in one page."""
        with self._lock:
            memory = self._memory(shard)
            self._require_own_epoch(shard, memory.epoch)
            page = sorted((member_of(key), at) for key, at in memory.pending.items())
            page.sort(key=lambda one: (one[1], one[0]))
            return PendingSnapshot(
                shard=shard,
                epoch=memory.epoch,
                generation=memory.generation,
                at_ms=self._clock.now_ms(),
                pages=iter([page] if page else []),
            )

    def due(
        self, shard: Shard, *, first_seen_until_ms: int, limit: int, after: PendingKey | None = None
    ) -> list[PendingKey]:
        """Returns a page of pending keys, beginning with the oldest key."""
        with self._lock:
            memory = self._memory(shard)
            found = [(at, member_of(key), key) for key, at in memory.pending.items() if at <= first_seen_until_ms]
        if after is not None:
            place = (after.first_seen_ms, member_of(after.unique_key))
            found = [entry for entry in found if entry[:2] > place]
        return [
            PendingKey(unique_key=key, first_seen_ms=at, is_apart=key in memory.apart)
            for at, _, key in sorted(found)[:limit]
        ]

    def forget(self, shard: Shard, unique_keys: Sequence[str]) -> int:
        """Removes keys from pending, and counts them."""
        with self._lock:
            pending = self._memory(shard).pending
            return sum(pending.pop(key, None) is not None for key in unique_keys)

    def apart(self, shard: Shard, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        """Returns the whole set in one page."""
        del cursor
        with self._lock:
            return 0, sorted(self._memory(shard).apart)

    def compared(self, shard: Shard, *, not_taken: Sequence[str], going_on: Sequence[str]) -> int:
        """Removes keys from pending and from the keys set apart. Keys of the half set stay set apart for the next
        round."""
        with self._lock:
            memory = self._memory(shard)
            left = self.forget(shard, not_taken)
            memory.apart.difference_update(set(not_taken) - memory.half, going_on)
            return left

    def pending_size(self, shard: Shard) -> tuple[int, int | None]:
        """Returns size and lowest time of pending."""
        with self._lock:
            pending = self._memory(shard).pending
            return len(pending), min(pending.values(), default=None)

    # ---- inside

    def _state(self, shard: Shard) -> ShardState:
        memory = self._memory(shard)
        self._require_own_epoch(shard, memory.epoch)
        return ShardState(
            epoch=memory.epoch,
            generation=memory.generation,
            now_ms=self._clock.now_ms(),
            round_at_ms=memory.round_at_ms,
        )

    def _memory(self, shard: Shard) -> _Memory:
        if shard not in self._shards:
            self._shards[shard] = _Memory(commit=[set()])
        return self._shards[shard]

    def _require_own_epoch(self, shard: Shard, epoch: str | None) -> None:
        environment = shard.subscription.environment
        if epoch is not None and epoch.rpartition(":")[0] != environment:
            wrong = f"{shard}: epoch {epoch!r} is not of environment {environment!r}"
            raise InvariantViolation(wrong, cause="other-environment")

    def _is_ours(self, shard: Shard, name: str, token: str, lease_seconds: float) -> bool | None:
        """Returns None if nobody holds the lease."""
        holder, until_ms = self._memory(shard).leases.get(name, (token, 0))
        if until_ms <= self._clock.now_ms():
            return None
        if holder == token:
            return True
        # The rule is that of Redis (lease_values.py): a living holder would have renewed the lease.
        is_over = self._standstill.seconds((shard, name), (holder, until_ms)) >= lease_seconds
        return None if is_over else False

    def _take(self, shard: Shard, name: str, token: str, lease_seconds: float) -> bool:
        with self._lock:
            if self._is_ours(shard, name, token, lease_seconds) is False:
                return False
            self._memory(shard).leases[name] = (token, self._clock.now_ms() + round(lease_seconds * 1000))
            return True

    def _release(self, shard: Shard, name: str, token: str) -> None:
        with self._lock:
            leases = self._memory(shard).leases
            if leases.get(name, ("", 0))[0] == token:
                del leases[name]


#: at_ms of a round -> "<broker>/<queue>" -> the next offset in the unique-key topic.
Covered = Mapping[int, Mapping[str, int]]


def with_round(
    covered: Covered, *, at_ms: int, offsets: Mapping[str, int], oldest_pending_ms: int | None
) -> tuple[dict[int, Mapping[str, int]], Mapping[str, int]]:
    """Computes the rounds whose offsets are kept, and the floor. The floor has the offsets of the newest round before
    the oldest pending key. The function is pure.

    The script of the round (reconciler/shards/round.lua) computes the same in Redis, and explains the reasons. A
    contract test compares both results.
    """
    times = sorted({*covered, at_ms})
    before = [time for time in times if oldest_pending_ms is None or time < oldest_pending_ms]
    kept = [time for time in times if not before or time >= before[-1]]
    if len(kept) > COVERED_ROUNDS_MAX:
        holes = {kept[i]: (kept[i + 1] - kept[i - 1]) / (at_ms - kept[i - 1]) for i in range(1, len(kept) - 1)}
        kept.remove(min(holes, key=lambda time: holes[time]))
    after = {time: offsets if time == at_ms else covered[time] for time in kept}
    return after, after[before[-1]] if before else {}


class MemoryCommitSink:
    """The CommitSink of the recorder. This sink writes to the commit sets in memory, with the kit's number of
    shards."""

    def __init__(self, shards: MemoryShards) -> None:
        self._shards = shards

    def record(self, subscription: Subscription, unique_keys: Sequence[str], *, shards: int) -> None:
        """Adds the keys to the commit sets."""
        self._shards.record(subscription, unique_keys, shards=shards)

    def stored_shards(self, subscription: Subscription) -> int | None:
        """Returns the kit's number of shards, as if `reconciler run` had written it."""
        del subscription
        return SHARDS_DEFAULT


warn_of_former_paths(__name__, {"MemoryShards": "reconciler.testing"})

"""Step 7, one shard: lease, memory check, the atomic difference, its durable record, the floor.

Every turn begins with a *look* at all shards. A shard is *at rest* if a round would move nothing: its half set and all
its commit sets are empty, and its memory is as this process' last round left it. Such a shard has no round for
`rest_seconds`. The pending keys of a resting shard are still judged and repaired. Every other shard has its round, even
if it could not be looked at.

All shards of a subscription may be at rest, and the ledger may keep that as the subscription's *row of rest*. Then
these shards rest for longer, and the row stands for the rounds of that time. The row is written again within
`rest_seconds`; one transaction writes the rows of all subscriptions.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from reconciler.clock import Clock
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import DatabaseAway, InvariantViolation
from reconciler.policy.events import EventSink, RoundsVoided, ShardRoundRan, ShardsAtRest, ShardStopped
from reconciler.policy.plan import EVERY_MESSAGE_MS
from reconciler.policy.ports.ledger import Outage
from reconciler.policy.ports.rounds import (
    NextRound,
    RestingShard,
    RoundDone,
    RoundLeases,
    Rounds,
    ShardLook,
    ShardMemory,
    ShardState,
)
from reconciler.policy.sharing import Sharing

#: A round that reads at most this many members ends within a few milliseconds, so several such rounds may be sent
#: together. Redis serves no other client meanwhile, so a larger round is sent alone.
SMALL_ROUND_MEMBERS = 1_000
#: Within this time, a shard at rest has a round, or its subscription gets a row of rest. Rounds and rows of rest show
#: until when commits are accounted for.
REST_SECONDS_MAX = 60.0
#: Even beside rows of rest, a shard at rest has a round within this time. That round moves its floor, from which
#: announcements are read again, beyond the announcements of other shards.
LONG_REST_SECONDS_MAX = 1_800.0
#: A row of rest that is older than this share of `rest_seconds` is written again, before its shards would have rounds.
_ROW_IS_YOUNG = 2 / 3
SHARD_STOPPED = Code("round.shard-stopped", shard=Field.NAME, why=Field.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRound:
    """The outcome of step 7 on one shard."""

    shard: Shard
    #: False: another owner has the shard, or the shard's memory is not what it must be.
    is_ours: bool
    #: True if the shard had rounds before and now has no epoch marker: Redis lost its memory.
    lost_memory: bool = False
    #: None: the shard rests, the atomic step did not run, or the reply was lost. Pending is correct in each case.
    done: RoundDone | None = None
    #: True if the shard is ours and had no round, because a round would move nothing.
    is_at_rest: bool = False
    #: False: no key is set apart.
    may_have_apart: bool = True
    now_ms: int = 0
    pending: int = 0
    oldest_pending_ms: int | None = None
    #: By how much Redis' clock is behind its earlier rounds: the clock was set back, or a node with a slower clock took
    #: over.
    clock_behind_seconds: float = 0.0
    problem: Fact | None = None


class ShardRounds:
    """Runs step 7. The lease saves work; correctness rests on the fence inside take_round.

    The threads of a process share this object. One thread at a time works on a shard, and another thread may look
    meanwhile.
    """

    def __init__(
        self,
        *,
        memory: ShardMemory,
        leases: RoundLeases,
        rounds: Rounds,
        owner: str,
        lease_seconds: float,
        clock: Clock,
        events: EventSink,
        floors_behind: int = 0,
        rest_seconds: float = REST_SECONDS_MAX,
        long_rest_seconds: float = LONG_REST_SECONDS_MAX,
        sharing: Sharing | None = None,
    ) -> None:
        """`floors_behind`: number of rounds after which the floor of a round is stored, because a history can read that
        many rounds back. If Redis loses rounds that the history has not read, their announcements lie above the floor
        and are read again.

        `rest_seconds`: the longest rest of a shard. `long_rest_seconds`: the longest rest beside a row of rest. With a
        history, a subscription has such a row only if no key is pending and its last rounds took nothing. `sharing`:
        the shares of several processes. None: this process takes every free shard."""
        self._memory = memory
        self._clock = clock
        self._leases = leases
        self._rounds = rounds
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._events = events
        self._floors_behind = floors_behind
        #: Rounds of this process whose floors wait to be stored, the oldest first. A crash leaves a lower floor.
        self._untold: dict[Shard, deque[RoundDone]] = {}
        #: Shards whose server answered the last request.
        self._answering: set[Shard] = set()
        self._rest_seconds = rest_seconds
        self._long_rest_seconds = max(rest_seconds, long_rest_seconds)
        #: Subscription -> when the look of its row of rest was taken, in monotonic seconds.
        self._rested: dict[Subscription, float] = {}
        #: When this turn's look was taken, in monotonic seconds.
        self._looked_at = float("-inf")
        #: Shard -> the last round that this process ran and stored, and its time in monotonic seconds.
        self._ran: dict[Shard, tuple[RoundDone, float]] = {}
        #: Shard -> when this process last took or renewed the lease, in monotonic seconds.
        self._renewed: dict[Shard, float] = {}
        self._sharing = sharing
        #: The results of this turn's look. A round removes the look of its shard.
        self._looks: dict[Shard, ShardLook] = {}

    def goes_on(self, shard: Shard, outage: Outage) -> bool:
        """Returns True if the open outage concerns other servers only, and the shard's server answered: to this
        process, or by a round that began later than the outage. A shard whose server was away, too, waits for the
        scan."""
        if outage.reason != "AWAY" or not self._memory.is_spread:
            return False
        if shard in self._answering:
            return True
        last = self._rounds.last(shard)
        return last is not None and last.at_ms > outage.started_at_ms

    def keeps(self, shard: Shard) -> bool:
        """Takes or renews the lease. False: another owner has the shard."""
        now = self._clock.monotonic_seconds()
        is_ours = self._leases.take(shard, token=self._owner, lease_seconds=self._lease_seconds)
        if is_ours:
            self._renewed[shard] = now
        return is_ours

    def release(self, shard: Shard) -> None:
        """Gives the lease back at shutdown."""
        self._leases.release(shard, token=self._owner)
        with suppress(DatabaseAway):  # the next owner's rounds store their own floors
            for done in self._untold.pop(shard, ()):
                self._tell_floor(done)

    def look(self, shards: Sequence[Shard]) -> None:
        """Begins a turn: looks at the shards together, and renews leases of which a third is over.

        Raises nothing. A shard that cannot be looked at has its round, and the round finds the cause.
        """
        if self._sharing is not None and not self._sharing.renew({shard.subscription for shard in shards}):
            shards = [shard for shard in shards if self._sharing.concerns(shard.subscription)]
        now = self._clock.monotonic_seconds()
        since = {shard: now - self._renewed.get(shard, float("-inf")) for shard in shards}
        renews = {shard: seconds >= self._lease_seconds / 3 and self._stays(shard) for shard, seconds in since.items()}
        found = self._leases.look(renews, token=self._owner, lease_seconds=self._lease_seconds)
        self._looked_at = now
        self.wake(shards)
        self._looks.update(found)
        for shard, look in found.items():
            if since[shard] >= self._lease_seconds:
                self._ran.pop(shard, None)  # another process may have had it meanwhile
            if look.is_ours and renews[shard]:
                self._renewed[shard] = now
        if self._sharing is not None:
            self._sharing.looked(found)

    def _stays(self, shard: Shard) -> bool:
        return self._sharing is None or self._sharing.renews(shard.subscription)

    def _may_take(self, shard: Shard) -> bool:
        return self._sharing is None or self._sharing.may_take(shard.subscription)

    def wake(self, shards: Sequence[Shard]) -> None:
        """Lets each of these shards have a round in this turn. During an outage, rounds show which servers answer."""
        for shard in shards:
            self._looks.pop(shard, None)

    def keep_rests(self, subscriptions: Mapping[Subscription, Sequence[Shard]]) -> None:
        """Writes rows of rest in one transaction. A subscription gets a row if this turn's look found all its shards at
        rest and its last row is not young. Do not call this during an outage. Raises DatabaseAway."""
        if self._long_rest_seconds <= self._rest_seconds:
            return
        seen, looks = {}, []
        for subscription, shards in subscriptions.items():
            if self._looked_at - self._rested.get(subscription, float("-inf")) >= self._rest_seconds * _ROW_IS_YOUNG:
                resting = [one for shard in shards if (one := self._resting(shard)) is not None]
                if len(resting) == len(shards):
                    seen[subscription] = [
                        RestingShard(round_at_ms=last.at_ms, offsets=look.offsets) for look, last in resting
                    ]
                    looks += [(last, look.state.now_ms) for look, last in resting]
        if not seen:
            return
        ago = self._clock.monotonic_seconds() - self._looked_at
        if self._rounds.keep_rest(seen, seconds_ago=ago):
            self._rested |= dict.fromkeys(seen, self._looked_at)
            self._events.emit(ShardsAtRest(looks=looks))

    def _resting(self, shard: Shard) -> tuple[ShardLook, RoundDone] | None:
        """Returns this turn's look at a shard at rest, and the shard's last round. None: the shard is not at rest.
        Rounds of an earlier turn may run meanwhile."""
        look = self._looks.get(shard)
        if look is None or not look.is_ours or look.members:
            return None
        last = self._rests_behind(shard, look.state, is_long=True)
        if last is None or (self._floors_behind and (look.pending or not self._has_quiet_floor(last))):
            return None  # the history's row of a shard at rest says that nothing is pending
        return look, last

    def _has_quiet_floor(self, last: RoundDone) -> bool:
        """Returns True if a floor was stored, and the rounds whose floors wait took nothing. During a long rest, these
        floors would be stored only hours later."""
        untold = tuple(self._untold.get(last.shard, ()))
        is_told = last.generation > self._floors_behind <= len(untold)
        return is_told and not any(done.counts.announced for done in untold)

    def are_calm(self, shards: Sequence[Shard], *, grace_seconds: float) -> bool:
        """Returns True if this turn's look found that no shard needs a round, and that no shard has a key to judge."""
        for shard in shards:
            seen = self._unmoved(shard, self._looks.get(shard))
            if seen is None or (seen.is_at_rest and (seen.may_have_apart or _is_old(seen, grace_seconds))):
                return False
        return True

    def since_ms(self, subscription: Subscription, *, shards: Sequence[Shard] = ()) -> int:
        """Returns since when the subscription answers for messages. `shards` are all its shards, if they are about to
        have their first round: then the time is stored now. Raises RedisAway and DatabaseAway."""
        return since_ms(subscription, shards, rounds=self._rounds, memory=self._memory, clock=self._clock)

    def run(self, shard: Shard) -> ShardRound:
        """Runs one round of the shard, unless the shard rests. Raises RedisAway and DatabaseAway."""
        self._answering.discard(shard)
        look = self._looks.pop(shard, None)
        unmoved = self._unmoved(shard, look)
        if unmoved is not None:
            self._answering.add(shard)
            return unmoved
        own = self._own_last(shard, look)
        self._ran.pop(shard, None)
        try:
            if look is not None and own is not None:
                done = self._run(shard, look.state, own)
            elif self._may_take(shard) and self.keeps(shard):
                done = self._begin(shard, self._memory.state(shard))
            else:
                done = ShardRound(shard=shard, is_ours=False)
        except InvariantViolation as error:
            self._events.emit(ShardStopped(shard=shard, cause=error.cause, reason=str(error)))
            return ShardRound(shard=shard, is_ours=False, problem=SHARD_STOPPED(shard=str(shard), why=str(error)))
        if not done.lost_memory:
            self._answering.add(shard)
        return done

    def run_small(self, shards: Sequence[Shard]) -> Mapping[Shard, ShardRound]:
        """Runs the rounds of those shards in which the look found few changed keys. The rounds are sent together, and
        one transaction stores their rows.

        Call `run` for every other shard, and for every shard that the result lacks. Raises DatabaseAway.
        """
        rounds: list[NextRound] = []
        for shard in shards:
            look = self._looks.get(shard)
            if look is None or look.members > SMALL_ROUND_MEMBERS or self._unmoved(shard, look) is not None:
                continue
            last = self._own_last(shard, look)
            if last is not None:
                after, not_before_ms = last.generation, last.at_ms + 1
                rounds.append(NextRound(shard=shard, epoch=last.epoch, generation=after, not_before_ms=not_before_ms))
        if not rounds:
            return {}
        for one in rounds:
            self._looks.pop(one.shard, None)
            self._ran.pop(one.shard, None)
            self._answering.discard(one.shard)
        found = self._memory.take_small_rounds(rounds)
        self._store(*found.values())
        self._answering.update(found)
        return {shard: self._seen(done) for shard, done in found.items()}

    def _unmoved(self, shard: Shard, look: ShardLook | None) -> ShardRound | None:
        """Returns the outcome for a shard that rests or that another owner has. None: the shard has a round."""
        if self._sharing is not None and not self._sharing.concerns(shard.subscription):
            return ShardRound(shard=shard, is_ours=False)
        if look is None or (look.is_ours is None and self._may_take(shard)):
            return None
        if not look.is_ours:
            return ShardRound(shard=shard, is_ours=False)
        rested_at = self._rested.get(shard.subscription, float("-inf"))
        is_long = self._clock.monotonic_seconds() - rested_at < self._rest_seconds
        if look.members or self._rests_behind(shard, look.state, is_long=is_long) is None:
            return None
        return ShardRound(
            shard=shard,
            is_ours=True,
            is_at_rest=True,
            may_have_apart=look.has_apart,
            now_ms=look.state.now_ms,
            pending=look.pending,
            oldest_pending_ms=look.oldest_pending_ms,
        )

    def _rests_behind(self, shard: Shard, state: ShardState, *, is_long: bool) -> RoundDone | None:
        """Returns the last round of this memory if this process ran that round not long ago. While Redis' clock is
        behind that round, rounds continue, because they correct the times of keys that were seen by a clock ahead.

        `is_long`: the row of rest exists."""
        last, at_seconds = self._ran.get(shard, (None, 0.0))
        rest_seconds = self._long_rest_seconds if is_long else self._rest_seconds
        rests = (
            last is not None
            and _is_left_by(last, state)
            and state.now_ms >= last.at_ms
            and self._clock.monotonic_seconds() - at_seconds < rest_seconds * share_of_rest(shard.subscription)
        )
        return last if rests else None

    def _own_last(self, shard: Shard, look: ShardLook | None) -> RoundDone | None:
        """Returns this process' last round if the look found the memory as that round left it, and this process held
        the lease all the time. Then the ledger has no later round, and neither lease nor state has to be asked for
        again."""
        if look is None or not look.is_ours or shard not in self._ran:
            return None
        last, _ = self._ran[shard]
        is_held = self._clock.monotonic_seconds() - self._renewed.get(shard, float("-inf")) < self._lease_seconds
        return last if is_held and _is_left_by(last, look.state) else None

    def _begin(self, shard: Shard, state: ShardState) -> ShardRound:
        last = self._rounds.last(shard)
        if state.epoch is None and last is not None:
            return ShardRound(shard=shard, is_ours=True, lost_memory=True, now_ms=state.now_ms)
        return self._run(shard, state, last)

    def _run(self, shard: Shard, state: ShardState, last: RoundDone | None) -> ShardRound:
        epoch = state.epoch if state.epoch is not None else self._memory.begin_epoch(shard)
        if last is not None and state.has_undone(last):
            self._void(shard, last)
        done = self._memory.take_round(shard, epoch=epoch, not_before_ms=last.at_ms + 1 if last is not None else 0)
        if done is None:
            pending, oldest_ms = self._memory.pending_size(shard)
            return ShardRound(
                shard=shard, is_ours=True, now_ms=state.now_ms, pending=pending, oldest_pending_ms=oldest_ms
            )
        self._store(done)
        return self._seen(done)

    def _store(self, *rounds: RoundDone) -> None:
        """Stores the rounds. Nothing of a round is judged before it is stored."""
        try:
            if rounds:
                self._rounds.store(*rounds)
        except Exception:  # a ledger that takes no row, for any reason, leaves no hole in the history
            self._tell(rounds)
            raise
        self._tell(rounds)  # all of them before any floor, because the ledger may refuse a floor
        for done in rounds:
            self._raise_floor(done)
            self._ran[done.shard] = (done, self._clock.monotonic_seconds())

    def _tell(self, rounds: Sequence[RoundDone]) -> None:
        for done in rounds:
            self._events.emit(ShardRoundRan(done=done))

    def _seen(self, done: RoundDone) -> ShardRound:
        return ShardRound(
            shard=done.shard,
            is_ours=True,
            done=done,
            now_ms=done.clock_ms if done.clock_ms is not None else done.at_ms,
            pending=done.counts.pending_after,
            oldest_pending_ms=done.oldest_pending_ms,
            clock_behind_seconds=_clock_behind_seconds(done),
        )

    def _raise_floor(self, done: RoundDone) -> None:
        """Queues the floor of a round, to be stored later. Floors of an earlier memory are never stored, because Redis
        lost the keys on which they rest."""
        untold = self._untold.setdefault(done.shard, deque())
        if untold and untold[-1].epoch != done.epoch:
            untold.clear()
        untold.append(done)
        if len(untold) > self._floors_behind:
            self._tell_floor(untold.popleft())

    def _tell_floor(self, done: RoundDone) -> None:
        self._rounds.raise_floor(done.shard.subscription, done.floor, done.floor_proofs)

    def _void(self, shard: Shard, last: RoundDone) -> None:
        """Marks rounds as void if Redis fell back behind these rounds. A second reading makes sure that no other owner
        ran a round between the two reads."""
        again = self._memory.state(shard)
        if again.has_undone(last):
            voided = self._rounds.void_after(
                shard, epoch=last.epoch, generation=again.generation, at_ms=again.round_at_ms
            )
            self._events.emit(RoundsVoided(shard=shard, rounds=voided))


def since_ms(
    subscription: Subscription, shards: Sequence[Shard], *, rounds: Rounds, memory: ShardMemory, clock: Clock
) -> int:
    """Returns what ShardRounds.since_ms returns. Call this before a shard gets its first epoch marker, because the
    marker would look like a former round."""
    noted = rounds.since_ms(subscription)
    if noted is not None or not shards:
        return noted or EVERY_MESSAGE_MS
    return rounds.begin(subscription, at_ms=_first_round_ms(shards, memory, clock))


def _first_round_ms(shards: Sequence[Shard], memory: ShardMemory, clock: Clock) -> int | None:
    """Returns the earlier of two clocks' present times. None: Redis knows rounds that the ledger does not know. An
    older release ran these rounds, or the ledger was restored."""
    try:
        states = [memory.state(shard) for shard in shards]
    except InvariantViolation:
        return None  # the shard's own round reports the error
    if any(state.epoch is not None for state in states):
        return None
    return min(clock.now_ms(), *(state.now_ms for state in states))


def share_of_rest(of: Subscription | str) -> float:
    """Returns a share between two thirds and one, so that shards that went to rest together have their next rounds in
    different turns."""
    return 1 - zlib.crc32(str(of).encode()) % 1_000 / 3_000


def _is_left_by(last: RoundDone, state: ShardState) -> bool:
    return (state.epoch, state.generation, state.round_at_ms) == (last.epoch, last.generation, last.at_ms)


def _is_old(seen: ShardRound, grace_seconds: float) -> bool:
    oldest_ms = seen.oldest_pending_ms
    return oldest_ms is not None and oldest_ms <= seen.now_ms - round(grace_seconds * 1000)


def _clock_behind_seconds(done: RoundDone) -> float:
    return 0.0 if done.clock_ms is None else (done.at_ms - done.clock_ms) / 1000

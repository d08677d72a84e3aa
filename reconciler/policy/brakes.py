"""Brakes of step 10: a token bucket per topic, and the circuit breaker.

Buckets are in memory, and a restart only refills them. The breaker's state is in the ledger as a hold of kind BREAKER,
so all processes see it. Only the number of calm rounds is in memory, and a restart counts them from 0 again.

Several processes may share a topic's subscriptions and shards. A process whose round exceeds the ceiling renews the
hold's timestamp. A process lifts the hold if it owned shards of the topic in three consecutive calm rounds that all
started after that timestamp. If rounds are short, more of them are needed, because together they must last as long as
three full rounds. The round after a storm renews the timestamp at every page. So another process with short calm rounds
cannot lift the hold in the middle of a long round. Stand-by processes own no shards and see no losses, so they never
count. Subscriptions without shards do not count either. Each process compares its own losses with the ceiling.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from reconciler.clock import Clock
from reconciler.contract.defaults import BREAKER_CANDIDATES_MIN, BREAKER_SHARE
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import (
    RATE_LIMIT,
    TOO_ABSENT,
    TOO_MANY,
    TOO_MANY_SO_FAR,
    TOO_MANY_TOGETHER,
    TOO_MANY_TOGETHER_SO_FAR,
)
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import HoldKind
from reconciler.policy.events import BreakerClosed, BreakerOpened, EventSink
from reconciler.policy.pace import FULL_SECONDS, RoundPace
from reconciler.policy.ports.ledger import Holds

#: The share of messages found nowhere counts only if at least this many halves were asked for.
HALF_ASKED_MIN = 50
ABSENT_SHARE_MAX = 0.2
CALM_ROUNDS_TO_CLOSE = 3
#: Maximum number of repairs of a topic at once. On average, the limit is repairs.rate_per_second.
REPAIRS_AT_ONCE = 1_000.0


class TokenBucket:
    """Lets `rate_per_second` through on average and `burst` at once. Used by one thread only."""

    def __init__(self, rate_per_second: float, *, burst: float) -> None:
        self._rate = rate_per_second
        self._burst = burst
        self._tokens = burst
        self._at_seconds: float | None = None

    def available(self, now_seconds: float) -> int:
        """Returns the number of whole tokens at a monotonic time. The number is never negative."""
        if self._at_seconds is not None:
            self._tokens = min(self._burst, self._tokens + (now_seconds - self._at_seconds) * self._rate)
        self._at_seconds = now_seconds
        # Adds a tiny amount that makes up for rounding in many small refills.
        return max(0, int(self._tokens + 1e-9))

    def charge(self, tokens: float) -> None:
        """Takes tokens. The bucket may go into debt, which later refills pay first."""
        self._tokens -= tokens


class RateLimit:
    """A token bucket for each topic, in the time of a clock. Shared by threads. Threads that ask at the same moment may
    each send one repair too many."""

    def __init__(self, rate_per_second: float, *, burst: float, clock: Clock) -> None:
        self._rate = rate_per_second
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._one_at_a_time = threading.Lock()

    def brake(self, topic: str) -> Fact | None:
        """Returns why nothing may be sent now; None: sending is allowed."""
        with self._one_at_a_time:
            has_token = self._bucket(topic).available(self._clock.monotonic_seconds()) > 0
        return None if has_token else RATE_LIMIT()

    def charge(self, topic: str) -> None:
        """Counts one send."""
        with self._one_at_a_time:
            self._bucket(topic).charge(1)

    def _bucket(self, topic: str) -> TokenBucket:
        if topic not in self._buckets:
            self._buckets[topic] = TokenBucket(self._rate, burst=self._burst)
        return self._buckets[topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLoad:
    """The numbers of one round of a subscription."""

    #: Announced keys, except those that were never committed.
    announced: int
    #: Keys that became due in this round but for which the round had no room.
    left_over: int
    #: Keys that were judged, except losses that an earlier round had proved.
    verified: int
    #: Losses among `verified`. A repair would follow each of these losses.
    losses: int
    #: Keys whose half was asked for. `found_nowhere` counts those of them that have no copy on any broker.
    half_asked: int
    found_nowhere: int

    def plus(self, other: RoundLoad) -> RoundLoad:
        """Returns the sum of both loads."""
        return RoundLoad(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def losses_expected(self) -> int:
        """Returns the losses, plus the same share of the keys that were left over."""
        return self.losses + (self.losses * self.left_over // self.verified if self.verified else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """Decides when the breaker opens. Rounds less than five seconds apart are judged together, like one round."""

    candidates_min: int = BREAKER_CANDIDATES_MIN
    share: float = BREAKER_SHARE
    pace: RoundPace = field(default_factory=RoundPace)

    @property
    def rounds_together(self) -> int:
        """Number of rounds that are judged together."""
        return self.pace.rounds(1)

    @property
    def calm_rounds(self) -> int:
        """Number of consecutive calm rounds that close the breaker."""
        return self.pace.rounds(CALM_ROUNDS_TO_CLOSE)

    def ceiling(self, announced: int, *, rounds: int = 1) -> float:
        """Returns the most losses that this number of rounds may prove together. More losses open the breaker."""
        return max(self.candidates_min * max(1.0, self.pace.full_rounds(rounds)), self.share * announced)

    def too_many(self, load: RoundLoad, *, rounds: int = 1) -> Fact | None:
        """Returns why the number of losses opens the breaker. None: the breaker stays closed."""
        ceiling = self.ceiling(load.announced, rounds=rounds)
        if load.losses_expected <= ceiling:
            return None
        counts: dict[str, float] = {"losses": load.losses, "ceiling": ceiling}
        if load.left_over:
            counts |= {"verified": load.verified, "left_over": load.left_over}
        if rounds == 1:
            return TOO_MANY_SO_FAR(**counts) if load.left_over else TOO_MANY(**counts)
        counts["seconds"] = self.pace.full_rounds(rounds) * FULL_SECONDS
        return TOO_MANY_TOGETHER_SO_FAR(**counts) if load.left_over else TOO_MANY_TOGETHER(**counts)

    def too_absent(self, half_asked: int, found_nowhere: int) -> Fact | None:
        """Returns why the share of messages found nowhere opens the breaker. None: the breaker stays closed."""
        if half_asked >= HALF_ASKED_MIN and found_nowhere > ABSENT_SHARE_MAX * half_asked:
            return TOO_ABSENT(found_nowhere=found_nowhere, half_asked=half_asked)
        return None


class CircuitBreaker:
    """Stops the repairs of a topic by a hold of kind BREAKER. Used by the thread of the rounds only."""

    def __init__(self, *, holds: Holds, rules: BreakerRules, owner: str, clock: Clock, events: EventSink) -> None:
        self._holds = holds
        self.rules = rules
        self._owner = owner
        self._clock = clock
        self._events = events
        #: Start times of the last consecutive calm rounds, at most as many as close the breaker. None: other processes
        #: have all shards of the subscription.
        self._calm: dict[Subscription, deque[float] | None] = {}
        #: Start times and loads of earlier rounds that are judged together with the next round.
        self._earlier: dict[Subscription, deque[tuple[float, RoundLoad]]] = {}

    def ceiling(self, subscription: Subscription, load: RoundLoad) -> float:
        """Returns the most losses that a round may prove if it begins now. First drops earlier rounds that are too
        old."""
        earlier, now = self._earlier.get(subscription, deque()), self._clock.monotonic_seconds()
        while earlier and now - earlier[0][0] > FULL_SECONDS:
            earlier.popleft()
        return self.rules.ceiling(load.announced)

    def too_many(self, subscription: Subscription, load: RoundLoad) -> Fact | None:
        """Returns why the losses of a round open the breaker. Rounds shortly before this round count, too."""
        return self._too_many(load, self._together(subscription, load))

    def implausible(self, subscription: Subscription, load: RoundLoad) -> Fact | None:
        """Returns why a round opens the breaker: by its losses, or by the messages that it found nowhere."""
        both = self._together(subscription, load)
        return self._too_many(load, both) or self.rules.too_absent(both.half_asked, both.found_nowhere)

    def _too_many(self, load: RoundLoad, both: RoundLoad) -> Fact | None:
        return self.rules.too_many(load) or self.rules.too_many(both, rounds=self.rules.rounds_together)

    def _together(self, subscription: Subscription, load: RoundLoad) -> RoundLoad:
        for _, earlier in self._earlier.get(subscription, ()):
            load = load.plus(earlier)
        return load

    def open_if(self, subscription: Subscription, why: Fact | None) -> None:
        """Opens the breaker if there is a reason."""
        if why is None:
            return
        self._calm[subscription] = self._no_calm()
        environment, topic = subscription.environment, subscription.topic
        if self._holds.place(environment, topic, HoldKind.BREAKER, by=self._owner, reason=why):
            cause = "too-absent" if why.code is TOO_ABSENT else "too-many"
            self._events.emit(BreakerOpened(environment=environment, topic=topic, cause=cause, reason=why))

    def renew_after_storm(self, subscription: Subscription) -> None:
        """Renews the hold until the round that follows a storm has ended calmly, however long that round takes.

        Otherwise a process with short calm rounds would lift the hold in the middle of that round. A hold that an
        operator lifted is not placed again.
        """
        calm = self._calm.get(subscription)
        if calm is not None and not calm:
            self._holds.renew(subscription.environment, subscription.topic)

    def round_ended(
        self,
        subscription: Subscription,
        load: RoundLoad,
        *,
        began_seconds: float,
        has_shards: bool,
        is_open: bool,
        siblings: Sequence[Subscription],
    ) -> None:
        """Counts calm rounds. Closes the breaker when every subscription in which this process has shards had enough
        consecutive calm rounds.

        `load`: the numbers of this round alone. `began_seconds`: monotonic time. `is_open`: the round saw the breaker's
        hold; without a hold nothing is written. A subscription of the topic that has had no round yet keeps the breaker
        open.
        """
        self._count(subscription, load, began_seconds=began_seconds, has_shards=has_shards)
        ours = [calm for calm in (self._calm.get(sibling, self._no_calm()) for sibling in siblings) if calm is not None]
        if not is_open or not ours or min(len(calm) for calm in ours) < self.rules.calm_rounds:
            return
        calm_seconds = self._clock.monotonic_seconds() - min(calm[0] for calm in ours)
        if self._holds.lift(subscription.environment, subscription.topic, HoldKind.BREAKER, calm_seconds=calm_seconds):
            self._events.emit(BreakerClosed(environment=subscription.environment, topic=subscription.topic))

    def _count(self, subscription: Subscription, load: RoundLoad, *, began_seconds: float, has_shards: bool) -> None:
        if not has_shards:
            self._calm[subscription] = None
            return
        if self.implausible(subscription, load):
            self._calm[subscription] = self._no_calm()
            # The rounds in `earlier` opened the breaker. Once the hold is lifted, the same rounds must not open it
            # again.
            self._earlier.pop(subscription, None)
            return
        earlier = self._earlier.setdefault(subscription, deque(maxlen=self.rules.rounds_together - 1))
        earlier.append((began_seconds, replace(load, left_over=0)))  # later rounds judge the keys that were left over
        calm = self._calm.get(subscription) or self._no_calm()
        calm.append(began_seconds)
        self._calm[subscription] = calm

    def _no_calm(self) -> deque[float]:
        return deque(maxlen=self.rules.calm_rounds)

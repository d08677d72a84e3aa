"""Which subscriptions a process has rounds of, where several processes of an environment share them.

Each process is a *sharer* for as long as it renews its entry. All compute the same even shares from the sharers, so
that none has to ask another. What moves does so by leases alone: a process stops to renew those of a subscription
that is not in its share, and goes on with its rounds until they are over. Then the sharer whose share it is takes them.
A few move at a time: a new owner's first round of a shard costs more than its rest.

Nothing waits for a sharer that does not take its share: what was free for the length of a lease is anybody's.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from reconciler.clock import Clock
from reconciler.contract.subscription import Shard, Subscription
from reconciler.errors import ReconcilerError
from reconciler.policy.ports.rounds import ShardLook, Sharers

#: Of all subscriptions, those that a process gives up in a third of a lease; at least one.
MOVED_AT_ONCE_SHARE = 0.05


class Sharing:
    """The share of one process. `renew` and `looked` are confined to one thread; every thread may ask the rest."""

    def __init__(self, sharers: Sharers, *, environment: str, owner: str, lease_seconds: float, clock: Clock) -> None:
        self._sharers = sharers
        self._environment = environment
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._renewed_at = float("-inf")
        self._known: Collection[str] = ()
        self._mine: Collection[Subscription] = ()
        #: Of which this process had a lease by the last look.
        self._held: Collection[Subscription] = ()
        #: Held and in another share; their leases are not renewed any more.
        self._leaving: set[Subscription] = set()
        #: Of another share, which nobody had for the length of a lease.
        self._adopted: set[Subscription] = set()
        #: Since when somebody could take a lease of theirs, in monotonic seconds.
        self._free_since: dict[Subscription, float] = {}

    def renew(self, subscriptions: Collection[Subscription]) -> bool:
        """Renews the entry of which a third is over, and computes the share again where sharers came or went.

        False: it is not due. While Redis is away the share stays as it is.
        """
        now = self._clock.monotonic_seconds()
        if now - self._renewed_at < self._lease_seconds / 3:
            return False
        self._renewed_at = now
        names = sorted(map(str, subscriptions))
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
        with suppress(ReconcilerError):
            sharers = self._sharers.enter(
                self._environment, token=self._owner, digest=digest, seconds=self._lease_seconds
            )
            if set(sharers) != set(self._known):
                self._known = sharers
                self._mine = share_of(self._owner, sharers, subscriptions)
                self._adopted.clear()
        going = [one for one in self._held if not self._is_own(one)]
        more = max(1, round(MOVED_AT_ONCE_SHARE * len(names)))
        staying = [one for one in going if one not in self._leaving]
        self._leaving = (self._leaving & set(going)) | set(staying[:more])
        return True

    def looked(self, looks: Mapping[Shard, ShardLook]) -> None:
        """What this turn's look has found."""
        now = self._clock.monotonic_seconds()
        free = {shard.subscription for shard, look in looks.items() if look.is_ours is None}
        self._held = {shard.subscription for shard, look in looks.items() if look.is_ours}
        for subscription in {shard.subscription for shard in looks} - free:
            self._free_since.pop(subscription, None)
        for subscription in free:
            if now - self._free_since.setdefault(subscription, now) >= self._lease_seconds:
                self._adopted.add(subscription)

    def may_take(self, subscription: Subscription) -> bool:
        """Whether a lease that nobody has is this process' to take."""
        return self._is_own(subscription)

    def renews(self, subscription: Subscription) -> bool:
        """Whether a lease that this process has is to stay."""
        return subscription not in self._leaving

    def concerns(self, subscription: Subscription) -> bool:
        """Whether this process has rounds of it, or is to have them."""
        return self._is_own(subscription) or subscription in self._held

    def leave(self) -> None:
        """At shutdown: the others take over at once. Raises RedisAway: the entry ends by itself."""
        self._sharers.leave(self._environment, token=self._owner)

    def _is_own(self, subscription: Subscription) -> bool:
        return not self._known or subscription in self._mine or subscription in self._adopted


def share_of(owner: str, sharers: Collection[str], subscriptions: Collection[Subscription]) -> Collection[Subscription]:
    """The subscriptions of one of the sharers. Of a sharer that comes or goes, few others than its own move."""
    most = math.ceil(len(subscriptions) / max(1, len(sharers)))
    taken: Counter[str] = Counter()
    share = set()
    for subscription in sorted(subscriptions, key=str):
        for sharer in sorted(sharers, key=partial(_place, subscription)):
            if taken[sharer] < most:
                taken[sharer] += 1
                if sharer == owner:
                    share.add(subscription)
                break
    return share


def _place(subscription: Subscription, sharer: str) -> bytes:
    return hashlib.sha256(f"{sharer}\n{subscription}".encode()).digest()

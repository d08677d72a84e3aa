"""Decides for which subscriptions a process has rounds, if several processes of an environment share the subscriptions.

Each process is a *sharer* as long as it renews its entry. All sharers compute the same even shares from the list of
sharers, so they do not have to ask each other. Subscriptions move by leases alone. A process stops renewing the leases
of a subscription outside of its share, and runs rounds until these leases end. Then the sharer whose share has the
subscription takes the leases. Few subscriptions move at a time, because a new owner's first round of a shard costs more
than a shard at rest.

No subscription waits for a sharer that does not take its share. Any process may take a lease that was free for the
whole length of a lease.
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

#: The share of all subscriptions that a process gives up within a third of a lease. At least one subscription is given
#: up.
MOVED_AT_ONCE_SHARE = 0.05


class Sharing:
    """The share of one process. One thread calls `renew` and `looked`; every thread may call the other methods."""

    def __init__(self, sharers: Sharers, *, environment: str, owner: str, lease_seconds: float, clock: Clock) -> None:
        self._sharers = sharers
        self._environment = environment
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._renewed_at = float("-inf")
        self._known: Collection[str] = ()
        self._mine: Collection[Subscription] = ()
        #: Subscriptions of which this process had a lease at the last look.
        self._held: Collection[Subscription] = ()
        #: Subscriptions of another share that this process holds. The leases of these subscriptions are not renewed.
        self._leaving: set[Subscription] = set()
        #: Subscriptions of another share that no process had for the length of a lease.
        self._adopted: set[Subscription] = set()
        #: Subscription -> since when one of its leases is free, in monotonic seconds.
        self._free_since: dict[Subscription, float] = {}

    def renew(self, subscriptions: Collection[Subscription]) -> bool:
        """Renews the entry if a third of its time has passed. Computes the share again if sharers came or went.

        False: the entry was not due for renewal. While Redis is away, the share does not change.
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
        """Updates the share with the result of this turn's look."""
        now = self._clock.monotonic_seconds()
        free = {shard.subscription for shard, look in looks.items() if look.is_ours is None}
        self._held = {shard.subscription for shard, look in looks.items() if look.is_ours}
        for subscription in {shard.subscription for shard in looks} - free:
            self._free_since.pop(subscription, None)
        for subscription in free:
            if now - self._free_since.setdefault(subscription, now) >= self._lease_seconds:
                self._adopted.add(subscription)

    def may_take(self, subscription: Subscription) -> bool:
        """Returns True if this process may take a free lease."""
        return self._is_own(subscription)

    def renews(self, subscription: Subscription) -> bool:
        """Returns True if this process should keep a lease that it holds."""
        return subscription not in self._leaving

    def concerns(self, subscription: Subscription) -> bool:
        """Returns True if this process has, or should have, rounds of the subscription."""
        return self._is_own(subscription) or subscription in self._held

    def leave(self) -> None:
        """Removes the entry at shutdown, so that the other processes take over at once. If this raises RedisAway, the
        entry ends by itself."""
        self._sharers.leave(self._environment, token=self._owner)

    def _is_own(self, subscription: Subscription) -> bool:
        return not self._known or subscription in self._mine or subscription in self._adopted


def share_of(owner: str, sharers: Collection[str], subscriptions: Collection[Subscription]) -> Collection[Subscription]:
    """Returns the subscriptions of one sharer. If a sharer comes or goes, its own subscriptions move, and few
    others."""
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

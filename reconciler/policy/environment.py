"""Finds out whether another cluster uses this environment. The Redis keys and ledger rows of two clusters would mix.

Each process that writes keys or rows keeps a *use* in Redis and in the ledger. A use lists the brokers that the process
knows. The process reads the present use before it writes its own. Clusters often have brokers of the same name, so a
broker is identified by its cluster, name and address. Two processes belong to one cluster if they know one broker in
common, because brokers may be down, added or removed.

A use also contains the identity of its Redis, because processes with one ledger and two Redis servers would each see
half of the sets.

Another cluster's use may have harmless causes. All addresses of a cluster can change at once. Redis can lose its memory
and its identity. A use remains for a while after its process has ended. So such a use only raises a doubt. If the use
is renewed after that, this process refuses to work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from reconciler.clock import Clock
from reconciler.contract.row_rules import BROKERS_MAX
from reconciler.errors import InvalidValue, TransientError
from reconciler.policy.ports.environment import USE_SECONDS, EnvironmentUse, EnvironmentUses, RedisIdentity

#: Seconds between two renewals of a use.
RENEW_SECONDS = 5.0
#: An address stays known for this time after a name server last listed it. One of two name servers may list a dead
#: address for two minutes (RouteInfoManager.scanNotActiveBroker).
ADDRESS_SECONDS = 600.0
#: Maximum number of brokers that an error message names.
_NAMED = 3


def conflict(
    place: str, environment: str, use: EnvironmentUse | None, brokers: frozenset[str], redis: str | None
) -> InvalidValue | None:
    """Returns the conflict with a use, and what to do about it; None: there is no conflict. There are three conflicts:
    both sides know brokers but none in common, they have different Redis servers, or Redis was emptied. A side that
    knows no broker proves nothing. `redis` has the form of EnvironmentUse.redis and is read after the use. It begins
    with a blank if Redis has no identity. None: Redis is away.
    """
    if use is None or not use.brokers or not brokers:
        return None
    stop = f"or stop the other process: {USE_SECONDS:.0f} s later the environment is free"
    if use.brokers.isdisjoint(brokers):
        return InvalidValue(
            "environment",
            environment,
            f"another cluster is run with it: in {place}, {use.by} knows {_some(use.brokers)}, and this process knows "
            f"{_some(brokers)}; give each cluster an environment of its own, {stop}",
        )
    if redis is None or not use.redis or _identity(use.redis) == _identity(redis):
        return None
    if not _identity(redis) and use.redis.endswith(redis):  # the same address
        return InvalidValue(
            "environment",
            environment,
            f"Redis was emptied: in {place}, {use.by} has Redis {use.redis}, and what is there now has no identity. "
            f"This ends by itself within {RENEW_SECONDS:.0f} s if that process works, and {USE_SECONDS:.0f} s after "
            "its death. If it does not, that process has another Redis by this address: give all processes of the "
            "environment one redis.url",
        )
    return InvalidValue(
        "environment",
        environment,
        f"another Redis is run with it: in {place}, {use.by} has Redis {use.redis}, and this process has Redis "
        f"{redis.strip()}; give all processes of the environment one redis.url, {stop}. A Redis that has lost its "
        f"memory counts as another one for {USE_SECONDS:.0f} s at most",
    )


def told_redis(identity: str, address: str) -> str:
    """Returns the text of a Redis in a use: its identity and address."""
    return f"{identity} at {address}"


def _identity(redis: str) -> str:
    return redis.partition(" ")[0]


def _some(brokers: Iterable[str]) -> str:
    names = sorted(brokers)
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


@contextmanager
def _noted(away: list[TransientError]) -> Iterator[None]:
    try:
        yield
    except TransientError as error:
        away.append(error)


class EnvironmentGuard:
    """Keeps the use of one process up to date. Only one thread at a time uses this guard."""

    def __init__(
        self,
        uses: Sequence[EnvironmentUses],
        brokers: Callable[[], frozenset[str]],
        redis: RedisIdentity,
        *,
        redis_at: str,
        environment: str,
        by: str,
        clock: Clock,
    ) -> None:
        """`brokers`: returns the brokers that the name servers list now, or nothing if no name server answers.
        `redis_at`: the address of Redis, for people."""
        self._uses = uses
        self._brokers = brokers
        self._redis = redis
        self._redis_at = redis_at
        self._environment = environment
        self._by = by
        self._clock = clock
        #: Broker -> when name servers last listed it.
        self._known: dict[str, float] = {}
        #: Place -> the renewal of the use that is in doubt at this place.
        self._doubted: dict[str, str] = {}
        self._looked_at: float | None = None
        #: The identity of our Redis at the last renewal of our use.
        self._identity = ""

    def look(self) -> InvalidValue | None:
        """Renews our use, unless a use is in doubt. Then returns the doubt, and the next look decides.

        While no name server answers, no use is doubted or renewed. Raises InvalidValue if another cluster uses this
        environment. Raises TransientError if a place is away, after the other place was renewed.
        """
        self._looked_at = self._clock.monotonic_seconds()
        known = self._known_brokers(self._looked_at)
        away: list[TransientError] = []
        found: dict[str, EnvironmentUse | None] = {}
        for uses in self._uses:
            with _noted(away):
                found[uses.place] = uses.current(self._environment)
        redis: str | None = None
        with _noted(away):
            redis = told_redis(self._redis.identity(self._environment), self._redis_at)
        doubts = [doubt for place, use in found.items() for doubt in self._doubts(place, use, known, redis)]
        if known and not doubts:
            self._renew(known, away)
        if away:
            raise away[0]
        return doubts[0] if doubts else None

    def keep(self) -> None:
        """Calls look(), unless the last look was less than RENEW_SECONDS ago."""
        now = self._clock.monotonic_seconds()
        if self._looked_at is None or now - self._looked_at >= RENEW_SECONDS:
            self.look()

    def _known_brokers(self, now: float) -> frozenset[str]:
        told = self._brokers()
        if not told:
            return told
        earlier = {name: at for name, at in self._known.items() if now - at < ADDRESS_SECONDS and name not in told}
        newest_first = dict.fromkeys(sorted(told), now) | earlier
        self._known = dict(list(newest_first.items())[:BROKERS_MAX])
        return frozenset(self._known)

    def _doubts(
        self, place: str, use: EnvironmentUse | None, known: frozenset[str], redis: str | None
    ) -> list[InvalidValue]:
        before = self._doubted.pop(place, None)
        if use is not None and self._identity == _identity(use.redis):
            redis = None  # the use is ours, from before Redis lost its memory
        error = conflict(place, self._environment, use, known, redis)
        if use is None or error is None:
            return []
        if before not in (None, use.renewal):
            raise error
        self._doubted[place] = use.renewal
        return [error]

    def _renew(self, known: frozenset[str], away: list[TransientError]) -> None:
        """Creates the identity before the first use that contains it. While Redis is away, a use contains no
        identity."""
        identity = ""
        with _noted(away):
            identity = self._identity = self._redis.keep_identity(self._environment)
        redis = told_redis(identity, self._redis_at) if identity else ""
        for uses in self._uses:
            with _noted(away):
                uses.renew(self._environment, known, by=self._by, redis=redis)

"""Whether another cluster is run with this environment: its Redis keys and its ledger rows would mix with ours.

Each process that writes them keeps a *use* in Redis and in the ledger, which says what brokers it knows, and looks
there first. Clusters often have brokers of the same name, so a broker counts with its cluster, name and address. Two
processes are of one cluster if they know one broker in common: some may be down, added or removed.

All addresses of a cluster can change at once, and a use stays for a while after its process. So a use that has no
broker in common with ours is a doubt first, and a refusal when it is renewed after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from reconciler.clock import Clock
from reconciler.contract.row_rules import BROKERS_MAX
from reconciler.errors import InvalidValue, TransientError
from reconciler.policy.ports import USE_SECONDS, EnvironmentUse, EnvironmentUses

#: How often a use is renewed.
RENEW_SECONDS = 5.0
#: An address is known for so long after name servers told it last. Of two name servers one may tell a dead address for
#: two minutes (RouteInfoManager.scanNotActiveBroker).
ADDRESS_SECONDS = 600.0
#: Brokers that a message names.
_NAMED = 3


def conflict(place: str, environment: str, use: EnvironmentUse | None, brokers: Iterable[str]) -> InvalidValue | None:
    """What is wrong, and what to do, if both know brokers, and none in common. Who knows no broker says nothing."""
    known = frozenset(brokers)
    if use is None or not use.brokers or not known or not use.brokers.isdisjoint(known):
        return None
    return InvalidValue(
        "environment",
        environment,
        f"another cluster is run with it: in {place}, {use.by} knows {_some(use.brokers)}, and this process knows "
        f"{_some(known)}; give each cluster an environment of its own, or stop the other process: {USE_SECONDS:.0f} s "
        "later the environment is free",
    )


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
    """Keeps the use of one process. Confined to one thread at a time."""

    def __init__(
        self,
        uses: Sequence[EnvironmentUses],
        brokers: Callable[[], frozenset[str]],
        *,
        environment: str,
        by: str,
        clock: Clock,
    ) -> None:
        """`brokers`: what the name servers tell now; empty where none answers."""
        self._uses = uses
        self._brokers = brokers
        self._environment = environment
        self._by = by
        self._clock = clock
        #: Broker -> when name servers told it last.
        self._known: dict[str, float] = {}
        #: Place -> renewal of the use that is doubted there.
        self._doubted: dict[str, str] = {}
        self._looked_at: float | None = None

    def look(self) -> InvalidValue | None:
        """Renews our use, unless there is a doubt, which is returned: the next look decides.

        A process that no name server answers doubts nothing and renews nothing. Raises InvalidValue if another cluster
        is run with this environment; TransientError if a place is away, after the other one was renewed.
        """
        self._looked_at = self._clock.monotonic_seconds()
        known = self._known_brokers(self._looked_at)
        doubts: list[InvalidValue] = []
        away: list[TransientError] = []
        for uses in self._uses:
            with _noted(away):
                doubts += self._doubts(uses, known)
        if known and not doubts:
            for uses in self._uses:
                with _noted(away):
                    uses.renew(self._environment, known, by=self._by)
        if away:
            raise away[0]
        return doubts[0] if doubts else None

    def keep(self) -> None:
        """look(), unless the last one was less than RENEW_SECONDS ago."""
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

    def _doubts(self, uses: EnvironmentUses, known: frozenset[str]) -> list[InvalidValue]:
        use = uses.current(self._environment)
        before = self._doubted.pop(uses.place, None)
        error = conflict(uses.place, self._environment, use, known)
        if use is None or error is None:
            return []
        if before not in (None, use.renewal):
            raise error
        self._doubted[uses.place] = use.renewal
        return [error]

"""Checks that the number of shards of a subscription equals that of the settings.

With two numbers, one key would be in two places. Redis stores the number beside the sets. After Redis has lost its
memory, the rounds in the ledger show the number. So if two processes have different settings, the process whose number
differs from earlier rounds is refused, even if it starts first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.shards.count import keep_shard_count, stored_shard_count, stored_shard_counts, why_refused
from reconciler.sql.rights import lacks_right
from reconciler.telling.account import shards_that_differ
from reconciler.wiring.connections import Connections
from reconciler.wiring.subscriptions import subscription_of
from reconciler.words import said

logger = logging.getLogger(__name__)

#: If a stored number is missing, all numbers are checked again after this time.
ALL_ASKED_SECONDS = 5.0


class ShardNumbers:
    """The numbers of shards of all subscriptions. Shared by threads. Methods raise RedisAway and DatabaseAway."""

    def __init__(self, connections: Connections) -> None:
        settings = connections.settings
        self._connections = connections
        self._shards = settings.unique_key_topic.queues
        self._subscriptions = [subscription_of(settings, configured) for configured in settings.subscriptions]
        self._lock = threading.Lock()
        self._told: dict[Subscription, Fact] = {}
        #: Monotonic time at which all numbers were last found to be right, or None.
        self._all_asked_at: float | None = None

    def problem(self, subscription: Subscription) -> Fact | None:
        """Returns why the sets of a subscription must not be used; None if they may be used. Only reads."""
        return self._refusal(subscription, self._number_of(subscription))

    def problems(self, subscriptions: Sequence[Subscription]) -> Mapping[Subscription, Fact]:
        """Returns subscription -> problem for the subscriptions that have one. All are asked together.

        Subscriptions whose server is away are left out.
        """
        numbers = dict(stored_shard_counts(self._connections.redis, subscriptions))
        without = [one for one, number in numbers.items() if number is None]
        numbers |= self._numbers_in_ledger(without) if without else {}
        found = ((one, self._refusal(one, number)) for one, number in numbers.items())
        return {one: why for one, why in found if why is not None}

    def told(self, subscription: Subscription) -> str | None:
        """Returns the problem of a subscription as a text for the log."""
        why = self.problem(subscription)
        return None if why is None else said(why)

    def keep(self, subscription: Subscription) -> Fact | None:
        """Returns the problem of a subscription, and logs it once. If Redis has no number, and the ledger's rounds show
        no other number, stores the settings' number.

        Raises ConfigurationError if all stored numbers are equal, and differ from the settings. Then the settings are
        wrong, even for a subscription without a stored number.
        """
        number = self._number_of(subscription)
        if number != str(self._shards) and not (number is None and self._are_all_just_asked()):
            self.require_one()
        if number is None:
            keep_shard_count(self._connections.redis, subscription, self._shards)
        why = self._refusal(subscription, number)
        self._note(subscription, why)
        return why

    def require_one(self) -> None:
        """Raises ConfigurationError if keep() would raise this error. Nothing is written."""
        asked_at = self._connections.clock.monotonic_seconds()
        numbers = self._numbers_of_all()
        refused = {number: self._refusal(one, number) for one, number in numbers.items() if number is not None}
        if len(refused) == 1 and (why := refused.popitem()[1]) is not None:
            raise ConfigurationError(said(why))
        self._all_asked_at = asked_at

    def _are_all_just_asked(self) -> bool:
        """Returns True if all numbers were checked a moment ago.

        At the first start no subscription has a number, and all subscriptions begin at once.
        """
        now = self._connections.clock.monotonic_seconds()
        return self._all_asked_at is not None and now - self._all_asked_at < ALL_ASKED_SECONDS

    def _refusal(self, subscription: Subscription, number: str | None) -> Fact | None:
        return None if number in (None, str(self._shards)) else why_refused(subscription, number, self._shards)

    def _number_of(self, subscription: Subscription) -> str | None:
        """Returns the number in Redis; if Redis has none, the number of the ledger's rounds if it differs from the
        settings. Otherwise None."""
        stored = stored_shard_count(self._connections.redis, subscription)
        return stored if stored is not None else self._numbers_in_ledger([subscription])[subscription]

    def _numbers_of_all(self) -> Mapping[Subscription, str | None]:
        """Returns subscription -> what _number_of() returns. All subscriptions are asked together."""
        redis = self._connections.redis
        numbers = dict(stored_shard_counts(redis, self._subscriptions))
        # The server of a missing subscription is away, so asking again raises the error.
        numbers |= {one: stored_shard_count(redis, one) for one in self._subscriptions if one not in numbers}
        without = [one for one, number in numbers.items() if number is None]
        if without:
            numbers |= self._numbers_in_ledger(without)
        return numbers

    def _numbers_in_ledger(self, subscriptions: Sequence[Subscription]) -> Mapping[Subscription, str | None]:
        reports = self._connections.ledger.reports
        try:
            if len(subscriptions) == 1:  # announcement consumers ask about one subscription at a time
                rounds = {subscriptions[0]: reports.last_rounds(subscriptions[0])}
            else:
                rounds = dict(reports.last_rounds_of(subscriptions))
        except DatabaseAway as error:
            if lacks_right(error):  # announcement consumers need no right to read rounds
                return dict.fromkeys(subscriptions)
            raise
        differing = {one: shards_that_differ(rounds[one], self._shards) for one in subscriptions}
        return {one: None if number is None else str(number) for one, number in differing.items()}

    def _note(self, subscription: Subscription, why: Fact | None) -> None:
        with self._lock:
            before = self._told.pop(subscription, None)
            if why is not None:
                self._told[subscription] = why
        if why is not None and why != before:
            told = {"subscription": str(subscription), "cause": why.code.name, "detail": said(why)}
            logger.error("subscription_waits", extra=told)

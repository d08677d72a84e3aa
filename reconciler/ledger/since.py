"""reconciler_subscription: the time since which a subscription answers for messages. This time is written once, and
only the rename of a group makes it earlier.

A new group has no effects of earlier messages. Without this time, each earlier message would look lost. If the ledger
cannot store the time (not upgraded, or no right to write it), the subscription answers for every message.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import sqlalchemy as sa

from reconciler.clock import Clock, SystemClock
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, DatabaseAway, ReconcilerError
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.subscription_rows import named, of_subscription
from reconciler.policy.plan import EVERY_MESSAGE_MS
from reconciler.sql.rights import is_lacking, lacks_right
from reconciler.sql.tables import candidate, floor, round_row, subscription_row

#: A ledger that could not store the time is asked again after this pause.
ASK_AGAIN_SECONDS = 60.0

_log = logging.getLogger(__name__)


class SqlSince:
    """The rows of subscriptions in SQL. Thread-safe. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        #: The times that this process has read. No time changes while rounds run.
        self._noted: dict[Subscription, int] = {}
        self._has_told = False
        #: Until this time (monotonic seconds) the ledger counts as unable to store the time.
        self._cannot_until = 0.0

    def of(self, subscription: Subscription) -> int | None:
        """Returns the time in milliseconds UTC. 0 if the subscription answers for every message, or the time cannot be
        stored or read. None if no time is stored yet."""
        if subscription in self._noted:
            return self._noted[subscription]
        if self._clock.monotonic_seconds() < self._cannot_until:
            return EVERY_MESSAGE_MS
        c = subscription_row.c
        # The first query reads all subscriptions of the environment, because calls for the others follow.
        every = c.environment == subscription.environment
        is_asked = of_subscription(subscription, subscription_row) if self._noted else every
        try:
            with self._database.reading() as connection:
                rows = connection.execute(sa.select(c.topic, c.consumer_group, c.since_ms).where(is_asked)).all()
        except (DatabaseAway, ConfigurationError) as error:
            return self._cannot(error)
        for row in rows:
            if isinstance(row.topic, str) and isinstance(row.consumer_group, str):
                one = replace(subscription, topic=row.topic, group=row.consumer_group)
                self._noted[one] = row.since_ms if type(row.since_ms) is int else EVERY_MESSAGE_MS
        return self._noted.get(subscription)

    def begin(self, subscription: Subscription, *, at_ms: int | None) -> int:
        """Stores the time unless one is stored, and returns the stored one. `at_ms`: None lets the subscription answer
        for every message."""
        try:
            with self._database.reading() as connection:
                its_rows = [of_subscription(subscription, table) for table in (round_row, candidate, floor)]
                had_rounds = at_ms is None or any(
                    connection.execute(sa.select(sa.literal(1)).where(its).limit(1)).first() for its in its_rows
                )
                since_ms = None if at_ms is None or had_rounds else min(at_ms, self._database.read_now_ms(connection))
            with self._database.writing() as connection:
                row = named(subscription) | {"since_ms": since_ms}
                self._database.insert_missing(connection, subscription_row, [row])
        except (DatabaseAway, ConfigurationError) as error:
            return self._cannot(error)
        return self.of(subscription) or EVERY_MESSAGE_MS

    def rename(self, old: Subscription, new: Subscription) -> bool:
        """Gives the new name of a group the earlier of both times, because a round may have run under the new name
        before the rename. False if the login may not change the row: the new name then keeps the later time.

        An old name without a time answers for every message.
        """
        of_old = self.of(old) or EVERY_MESSAGE_MS
        if self.begin(new, at_ms=of_old or None) <= of_old:
            return True
        is_later = subscription_row.c.since_ms > of_old
        try:
            with self._database.writing() as connection:
                connection.execute(
                    sa.update(subscription_row)
                    .where(of_subscription(new, subscription_row), is_later)
                    .values(since_ms=of_old or None)
                )
        except DatabaseAway as error:
            if not lacks_right(error):
                raise
            return False
        self._noted.pop(new, None)
        return True

    def _cannot(self, error: ReconcilerError) -> int:
        """Returns 0 for a missing table or right, like earlier releases. Raises other errors."""
        if not is_lacking(error):
            raise error
        self._cannot_until = self._clock.monotonic_seconds() + ASK_AGAIN_SECONDS
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "since_not_kept: %s: a group that is added answers for every message that is announced, old ones too: "
                "`reconciler db upgrade ledger`, and the rights that `reconciler doctor` names (%s)",
                subscription_row.name,
                error,
            )
        return EVERY_MESSAGE_MS

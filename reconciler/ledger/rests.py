"""The row of rest, in reconciler_subscription: the time at which all shards of a subscription were last seen at rest.

The row proves that rounds would have moved no key until this time. The row names the last round of each shard. If such
a round became void, or a later round followed, the rounds' own rows count. If the ledger has no column for rests, or
the login may not write it, shards at rest continue to have rounds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from reconciler.clock import Clock, SystemClock
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.newer_column import NewerColumn
from reconciler.policy.ports.rounds import RestingShard
from reconciler.sql.rights import is_lacking, lacks_right
from reconciler.sql.tables import subscription_row
from reconciler.telling.ports.reports import StoredRest

#: A ledger that could not store a rest is asked again after this time.
ASK_AGAIN_SECONDS = 60.0
_WITHOUT = "shards at rest have a round a minute each"

_log = logging.getLogger(__name__)


class SqlRests:
    """The rows of rest in SQL. Thread-safe. Raises DatabaseAway."""

    def __init__(self, database: LedgerDatabase, *, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._column = NewerColumn(subscription_row.c.rest, without=_WITHOUT)
        self._has_told = False
        #: True if the database last refused to show rows of rest to this login.
        self.are_hidden = False
        #: Until this time (monotonic seconds) the ledger counts as unable to store rests.
        self._cannot_until = 0.0

    def keep(self, seen: Mapping[Subscription, Sequence[RestingShard]], *, seconds_ago: float) -> bool:
        """Writes all rests in one statement, into existing rows. False if the ledger cannot store them."""
        if self._clock.monotonic_seconds() < self._cannot_until:
            return False
        row = subscription_row.c
        kept = sa.update(subscription_row).where(
            row.environment == sa.bindparam("of_environment"),
            row.topic == sa.bindparam("of_topic"),
            row.consumer_group == sa.bindparam("of_group"),
        )
        try:
            with self._database.writing() as connection:
                if not self._column.is_there(connection):
                    self._cannot_until = self._clock.monotonic_seconds() + ASK_AGAIN_SECONDS
                    return False
                at_ms = self._database.read_now_ms(connection) - round(seconds_ago * 1000)
                connection.execute(
                    kept.values(rest=sa.bindparam("seen")),
                    [
                        {
                            "of_environment": subscription.environment,
                            "of_topic": subscription.topic,
                            "of_group": subscription.group,
                            "seen": _text(at_ms, shards),
                        }
                        for subscription, shards in sorted(seen.items(), key=lambda one: str(one[0]))
                    ],
                )
        except (DatabaseAway, ConfigurationError) as error:
            if not is_lacking(error):
                raise
            self._cannot_until = self._clock.monotonic_seconds() + ASK_AGAIN_SECONDS
            if not self._has_told:
                self._has_told = True
                _log.warning("rest_not_kept: %s: %s (%s)", subscription_row.name, _WITHOUT, error)
            return False
        return True

    def of(self, subscription: Subscription) -> StoredRest | None:
        """Returns the row of rest. None if no readable row is stored."""
        row = subscription_row.c
        is_it = (row.topic == subscription.topic) & (row.consumer_group == subscription.group)
        return self._read(subscription.environment, is_it).get(subscription)

    def every(self, environment: str) -> Mapping[Subscription, StoredRest]:
        """Returns the rows of rest of an environment."""
        return self._read(environment, sa.true())

    def _read(self, environment: str, wanted: sa.ColumnElement[bool]) -> Mapping[Subscription, StoredRest]:
        row = subscription_row.c
        query = sa.select(row.topic, row.consumer_group, row.rest)
        try:
            with self._database.reading() as connection:
                if not self._column.is_there(connection):
                    return {}
                of = query.where(row.environment == environment, row.rest.is_not(None), wanted)
                rows = connection.execute(of).all()
        except DatabaseAway as error:
            if not lacks_right(error):
                raise
            self.are_hidden = True
            return {}
        self.are_hidden = False
        read = {
            Subscription(environment=environment, topic=topic, group=group): _rest(text) for topic, group, text in rows
        }
        return {subscription: rest for subscription, rest in read.items() if rest is not None}


def _text(at_ms: int, shards: Sequence[RestingShard]) -> str:
    seen = [[shard.round_at_ms, dict(shard.offsets)] for shard in shards]
    return json.dumps({"at_ms": at_ms, "shards": seen}, separators=(",", ":"))


def _rest(text: object) -> StoredRest | None:
    """Reads the text that `_text` writes. None for a text of another form."""
    try:
        document = json.loads(text) if isinstance(text, str) else None
        at_ms, shards = document["at_ms"], document["shards"]  # type: ignore[index]  # a TypeError says so
        seen = tuple(RestingShard(round_at_ms=time, offsets=offsets) for time, offsets in shards)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = [at_ms, *(shard.round_at_ms for shard in seen)]
    for shard in seen:
        if not isinstance(shard.offsets, dict):
            return None
        numbers += shard.offsets.values()
    return StoredRest(at_ms=at_ms, shards=seen) if all(type(number) is int for number in numbers) else None

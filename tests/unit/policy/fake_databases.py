"""The producers' outbox and the consumers' inbox in memory, which may be away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.errors import DatabaseAway
from reconciler.policy.commit_query import BusinessAnswer, BusinessState, digest_of, unknown
from reconciler.policy.effect_query import effect_of
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Presence, StoredMessage, WitnessAnswer
from reconciler.policy.ports.ledger import NotedHalf, NotedHalves
from tests.simulation.outbox_table import TableRow

T = TypeVar("T")


class FakeOutbox:
    """OutboxEvidence."""

    def __init__(self) -> None:
        self.rows: dict[str, TableRow] = {}
        self.configured = True
        self.away = False
        #: Of a replica: everything that was committed before has come. None: a primary.
        self.has_come_to_ms: int | None = None

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """Rows by key."""
        del topic, now_ms
        if self.away or not self.configured:
            return {k: Lookup.unknown("outbox", "away") for k in not_before_ms}
        return {k: self._answer(k, until) for k, until in not_before_ms.items()}

    def _answer(self, unique_key: str, not_before_ms: int) -> Lookup[OutboxRow]:
        row = self.rows.get(unique_key)
        if row is None and self.has_come_to_ms is not None and self.has_come_to_ms <= not_before_ms:
            return Lookup.unknown("outbox", "not proved to be a primary")
        return _lookup(None if row is None else row.seen)


class FakeQueries:
    """BusinessQueries: by unique key what the row of the business says."""

    def __init__(self) -> None:
        self.answers: dict[str, BusinessAnswer] = {}
        #: The copies that keys were taken from.
        self.asked: list[StoredMessage] = []
        #: By unique key the business's key of what has none of its own; None: the message gives none.
        self.keys: dict[str, str | None] = {}
        #: By (group, unique key) what the effect query says of it; no row where nothing was given.
        self.effect_answers: dict[tuple[str, str], BusinessAnswer] = {}
        #: Why no effect query answers.
        self.effects_away: Fact | None = None
        #: (group, unique key) of each question to an effect query.
        self.asked_effects: list[tuple[str, str]] = []
        #: Why nobody stands by the query.
        self.unaccepted: Fact | None = None

    def why_not_accepted(self, topic: str) -> Fact | None:
        """As it is set."""
        del topic
        return self.unaccepted

    def look_up(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, BusinessAnswer]:
        """NO_ROW for what was not given."""
        del topic
        self.asked += copies.values()
        return {key: self.answers.get(key, BusinessAnswer(BusinessState.NO_ROW)) for key in copies}

    def effects(
        self, subscription: Subscription, copies: Mapping[str, StoredMessage]
    ) -> Mapping[str, Lookup[InboxRow]]:
        """ABSENT for what was not given."""
        self.asked_effects += [(subscription.group, key) for key in copies]
        if self.effects_away is not None:
            return {key: effect_of(unknown(self.effects_away)) for key in copies}
        return {key: effect_of(self.effect_answers.get((subscription.group, key))) for key in copies}

    def key_digests(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, bytes]:
        """Each message has a key of its own, unless another one was given."""
        del topic
        keys = {unique_key: self.keys.get(unique_key, unique_key) for unique_key in copies}
        return {unique_key: digest_of(key) for unique_key, key in keys.items() if key is not None}

    def key_words(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, str]:
        """The keys themselves."""
        del topic
        keys = {unique_key: self.keys.get(unique_key, unique_key) for unique_key in copies}
        return {unique_key: key for unique_key, key in keys.items() if key is not None}


class FakeReading:
    """HalfReading of a broker's halves: they are noted under the keys that the query has now."""

    def __init__(self, halves: Sequence[StoredMessage], queries: FakeQueries, noted: NotedHalves, of: str) -> None:
        """`of`: the environment."""
        self._halves = halves
        self._queries = queries
        self._noted = noted
        self._environment = of
        #: Why some halves may not be noted.
        self.unread: Fact | None = None
        self.tells_no_newest = False
        self.reads = 0
        self.on_read: Callable[[], object] = lambda: None

    def read_to_end(self, topic: str) -> Fact | None:
        """As it is set."""
        self.reads += 1
        self.on_read()
        digests = self._queries.key_digests(topic, {half.unique_key: half for half in self._halves})
        noted = [
            NotedHalf(
                unique_key=half.unique_key,
                broker=half.broker,
                key_digest=digests.get(half.unique_key),
                tag_digest=digest_of(half.tag) if half.tag else None,
                stored_at_ms=half.store_timestamp_ms,
            )
            for half in self._halves
        ]
        self._noted.note(self._environment, topic, noted, replaces=True)
        return self.unread

    def is_newest(self, half: StoredMessage) -> bool | None:
        """Of the broker's queue, as it is now; None where that is set."""
        of = (half.broker, half.unique_key)
        younger = [one for one in self._halves if (one.broker, one.unique_key) == of]
        return None if self.tells_no_newest else all(one.queue_offset <= half.queue_offset for one in younger)


class FakeRest:
    """HalfReading of what announcement consumers have left: nothing, unless it is set."""

    def __init__(self) -> None:
        self.unread: Fact | None = None
        self.on_read: Callable[[], object] = lambda: None

    def read_to_end(self, topic: str) -> Fact | None:
        """As it is set."""
        del topic
        self.on_read()
        return self.unread


class FakeInbox:
    """InboxEvidence over all groups."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], InboxRow] = {}
        self.configured = True
        self.away = False
        #: Rows that appear after this many reads: an effect that is committed in between.
        self.later: list[tuple[int, InboxRow]] = []
        self.reads = 0

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        """Rows by key."""
        self.reads += 1
        for at, row in self.later:
            if self.reads > at:
                self.rows[row.group, row.unique_key] = row
        if self.away or not self.configured:
            return {k: Lookup.unknown("inbox", "away") for k in unique_keys}
        return {k: self._answer(self.rows.get((subscription.group, k))) for k in unique_keys}

    @staticmethod
    def _answer(row: InboxRow | None) -> Lookup[InboxRow]:
        """An incomplete row is neither found nor absent."""
        if row is None or row.incomplete is None:
            return _lookup(row)
        answer = WitnessAnswer(
            witness="inbox",
            presence=Presence.UNKNOWN,
            detail="incomplete",
            is_incomplete=True,
            applied_at_ms=row.applied_at_ms,
        )
        return Lookup(presence=Presence.UNKNOWN, answers=(answer,))

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """A page."""
        if self.away:
            raise DatabaseAway("inbox")
        rows = sorted(
            (r for (group, _), r in self.rows.items() if group == subscription.group and r.applied_at_ms >= since_ms),
            key=lambda r: (r.applied_at_ms, r.unique_key),
        )
        return [r for r in rows if after is None or (r.applied_at_ms, r.unique_key) > after][:limit]

    def newest_ms(self, subscription: Subscription) -> int | None:
        """The newest row of the group."""
        if self.away:
            raise DatabaseAway("inbox")
        return max(
            (r.applied_at_ms for (group, _), r in self.rows.items() if group == subscription.group), default=None
        )

    def is_configured(self, subscription: Subscription) -> bool:
        """As set."""
        del subscription
        return self.configured


def _lookup(row: T | None) -> Lookup[T]:
    if row is None:
        return Lookup(presence=Presence.ABSENT)
    return Lookup(presence=Presence.FOUND, records=(row,))

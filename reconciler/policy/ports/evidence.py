"""Questions to the witnesses (steps 8 and 9), and acts at brokers (step 10). The adapters are in
reconciler/evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Subscription
from reconciler.policy.commit_query import BusinessAnswer
from reconciler.policy.evidence import (
    ConsumeMode,
    FilterKind,
    HalfQuestions,
    InboxRow,
    Lookup,
    OutboxRow,
    ProducerLook,
    QueuePosition,
    Recorded,
    SendAnswer,
    StoredMessage,
    Watermark,
)
from reconciler.policy.ports.asked import Asked

#: The commit time of a key whose commit time is unknown. With this value only a primary proves that an outbox has no
#: row.
WHENEVER_COMMITTED_MS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """How far each broker's index had come when a probe was found in the index."""

    #: Broker -> store time of the probe in milliseconds. A broker that is missing here proved nothing.
    at_ms: Mapping[str, int]
    #: Broker that proved nothing -> the reason.
    why: Mapping[str, Fact] = field(default_factory=dict)

    def covers(self, brokers: Iterable[str], time_ms: int) -> bool:
        """Returns True if every broker's index had passed the time."""
        return all(self.at_ms.get(broker, -1) > time_ms for broker in brokers)


class BrokerEvidence(Protocol):
    """The brokers as witnesses. A broker that fails makes the answer UNKNOWN, and never raises an exception.

    A method that returns an `Asked` sends its request at once. The caller gets the answer by calling that value
    (asked.py).
    """

    def brokers_seen(self, topic: str) -> frozenset[str] | None:
        """Returns the brokers of the topic's route, now and since the last expect(). None: no name server answers."""
        ...

    def expect(self, topic: str, brokers: Collection[str]) -> None:
        """Names brokers that may hold messages of the topic besides those of its route. If such a broker cannot be
        asked, answers are UNKNOWN.

        These names replace the names of the call before. Brokers of the route count in any case.
        """
        ...

    def watermark(self, subscription: Subscription) -> Watermark:
        """Returns the group's low watermark over all queues of the topic and of %RETRY%, minus the skew margin.
        REACHED: the group pops."""
        ...

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """Returns the group's offsets in every queue. None: a broker did not answer."""
        ...

    def is_deserted(self, subscription: Subscription) -> bool:
        """Returns True only if every broker of the topic says that no member of the group is connected, and no broker
        says that the group pops.

        A group behind a proxy in cluster mode registers no members. Such a group counts as deserted when its pops have
        ended.
        """
        ...

    def consume_mode(self, subscription: Subscription) -> ConsumeMode:
        """Returns whether the group pulls or pops. PULL needs every broker of the topic to show it."""
        ...

    def filter_kind(self, subscription: Subscription) -> FilterKind:
        """Returns how the group filters the topic, as its members registered the filter at the brokers."""
        ...

    def horizon(self, topic: str) -> Horizon:
        """Sends a probe to every master of the topic's route, and waits until each broker's index has the probe."""
        ...

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """Returns how long a half is left to the broker's own check-back. 0: no producer could answer it."""
        ...

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """Returns the age at which an open half would have a put-back copy: the time-out plus two check intervals, and
        at least the half's immunity time.

        None: the half's broker has a release up to 4.2, or did not answer with its
        configuration.
        """
        ...

    def is_past_check(self, half: StoredMessage) -> bool | None:
        """Returns True if the check service of the half's broker has passed the half. The service passes each half that
        was ended.

        None: the broker does not show this, because of a release up to 4.2, halves in RocksDB, or a missing right.
        """
        ...

    def check_back_of(self, half: StoredMessage) -> HalfQuestions | None:
        """Returns for how long the half's broker still asks about the half. None: the broker did not answer with its
        configuration."""
        ...

    def producers_of(self, half: StoredMessage) -> ProducerLook:
        """Returns whether a producer of the half's group is connected to the half's broker now. Of earlier looks, only
        the time since when no producer was connected is remembered."""
        ...

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns committed or republished copies under the real topic. ABSENT only if the horizon covers
        `not_before_ms`."""
        ...

    def messages_of_key(
        self, topic: str, key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns messages that consumers get and whose KEYS contain `key`. ABSENT only if the horizon covers
        `not_before_ms`."""
        ...

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns all half copies. The oldest comes first, in commit-log order per broker. For 3.2.6 the outbox row's
        offsets are used, too."""
        ...

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Returns copies in TRANS_CHECK_MAX_TIME_TOPIC (4.5.2 and newer)."""
        ...

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Asked[Mapping[str, Lookup[StoredMessage]]]:
        """Returns copies in the group's own topics, with the copies that POP makes: {"retry": ..., "dead-letter":
        ...}."""
        ...


class OutboxEvidence(Protocol):
    """Producers' outboxes, which are only read."""

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """Returns an answer for every key, which is given with its time.

        FOUND: the committed rows of the key, usually one. Without such a row the answer is UNKNOWN, unless every outbox
        answered and proved that it shows everything that was committed before the key's time. Then the answer is FOUND
        with tombstones, or ABSENT.

        `now_ms`: the time of another clock than the host's, if there is one. A time that lies ahead of both clocks
        proves nothing.
        """
        ...


class BusinessQueries(Protocol):
    """The business's own tables, which are only read."""

    def look_up(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, BusinessAnswer]:
        """Returns for every unique key what the row of its business key says at the primary. `copies` has a copy of
        each key's message. An answer that was not declared is UNKNOWN. NO_ROW is returned only where no transaction can
        still bring a row."""
        ...

    def key_digests(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, bytes]:
        """Returns the digest of the business key for each unique key whose copy gives one. No database is asked."""
        ...

    def key_words(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, str]:
        """Returns the business key as a word for each unique key whose copy gives one that KEYS can contain. No
        database is asked."""
        ...

    def effects(
        self, subscription: Subscription, copies: Mapping[str, StoredMessage]
    ) -> Mapping[str, Lookup[InboxRow]]:
        """Returns for every unique key whether the subscription's effect query finds the effect, by the query key in
        the copy. FOUND has no record. ABSENT only if the primary answered."""
        ...

    def why_not_accepted(self, topic: str) -> Fact | None:
        """Returns why the topic's query may send nothing: no person has accepted the query in its present form. None: a
        person has. Raises DatabaseAway if the ledger is away."""
        ...


class HalfReading(Protocol):
    """Reads the half queues of all brokers that have a topic, for sends that a row of the business is to prove."""

    def read_to_end(self, topic: str) -> Fact | None:
        """Records in the ledger each half that a broker had stored before the call, under the key that the topic's
        query takes now. None: all halves are recorded. Otherwise returns why some may be missing. Raises
        DatabaseAway."""
        ...


class HalfReadingBeforeSends(HalfReading, Protocol):
    """Reads half queues, and finds right before a send the copies that brokers have put back."""

    def is_newest(self, half: StoredMessage) -> bool | None:
        """Returns True if the half's broker has no younger copy of the half in its queue now. END on an older copy
        delivers the message, but the broker still asks about the younger copy. None: the broker does not show that."""
        ...


class InboxEvidence(Protocol):
    """Consumers' inboxes, which are only read."""

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        """Returns for every key FOUND with its row, ABSENT, or UNKNOWN. UNKNOWN: the inbox is away, no inbox URL is
        configured, or a database without the row did not prove to be a primary."""
        ...

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """Returns a page of rows with applied_at_ms >= since_ms, ordered by (applied_at_ms, unique_key). Raises
        DatabaseAway.

        A replica may lack the newest rows, so a page does not prove that a key has no row.
        """
        ...

    def newest_ms(self, subscription: Subscription) -> int | None:
        """Returns the highest applied_at_ms among the rows that are visible now. None: no row is visible. Raises
        DatabaseAway."""
        ...

    def is_configured(self, subscription: Subscription) -> bool:
        """Returns False if no inbox URL is configured: then effects are UNKNOWN, and no key can be settled by its
        effect."""
        ...


class BrokerRepairs(Protocol):
    """The acts at brokers. Each act sends at most one request that can have an effect; its result is returned later."""

    def end_transaction(self, half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        """Begins to read the half copy again at its offset.

        The first call of the returned value checks the guards (half topic or PREPARED bits, REAL_TOPIC, PGROUP,
        UNIQ_KEY, digest) and sends END_TRANSACTION two-way with fromTransactionCheck=true. The second call, of what the
        first returns, waits for the answer.
        """
        ...

    def republish(self, message: StoredMessage) -> Asked[SendAnswer]:
        """Sends an ordinary message with the half's topic, body, TAGS, KEYS, UNIQ_KEY, flag and user properties."""
        ...

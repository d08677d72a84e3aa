"""What is asked of the witnesses (steps 8 and 9), whose adapters lie in reconciler/evidence; acts at brokers (10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

#: Commit time of a key without a known one: then only a primary proves that an outbox has no row.
WHENEVER_COMMITTED_MS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """How far each broker's index had come when a probe was found in it."""

    #: Broker -> store time of the probe, ms; a broker that is missing did not prove anything.
    at_ms: Mapping[str, int]

    def covers(self, brokers: Iterable[str], time_ms: int) -> bool:
        """True if every broker's index had passed the time."""
        return all(self.at_ms.get(broker, -1) > time_ms for broker in brokers)


class BrokerEvidence(Protocol):
    """What brokers know. A broker that fails is UNKNOWN in the answer, never an exception.

    Copies of a key are asked for at once, and heard when what is returned is called (asked.py).
    """

    def brokers_seen(self, topic: str) -> frozenset[str] | None:
        """Brokers of the topic's route, now and since the last expect(); None if no name server answers."""
        ...

    def expect(self, topic: str, brokers: Collection[str]) -> None:
        """From now on these may hold messages of the topic, too: one that cannot be asked makes answers UNKNOWN.

        Takes the place of what was expected before. Brokers of the route count in any case.
        """
        ...

    def watermark(self, subscription: Subscription) -> Watermark:
        """Low watermark of the group over all queues of topic and %RETRY%, minus the skew margin. REACHED: it pops."""
        ...

    def positions(self, subscription: Subscription) -> Sequence[QueuePosition] | None:
        """Offsets of the group in every queue; None if a broker did not answer."""
        ...

    def is_deserted(self, subscription: Subscription) -> bool:
        """True only if every broker of the topic says that no member of the group is connected, and none that it pops.

        A group behind a proxy in cluster mode registers no members: it counts as deserted when its pops have ended."""
        ...

    def consume_mode(self, subscription: Subscription) -> ConsumeMode:
        """Whether the group pulls or pops. PULL only if every broker of the topic shows it."""
        ...

    def filter_kind(self, subscription: Subscription) -> FilterKind:
        """How the group filters the topic, as its members registered it at the brokers."""
        ...

    def horizon(self, topic: str) -> Horizon:
        """Sends a probe to every master of the topic's route and waits until its index has it."""
        ...

    def check_back_wait_seconds(self, half: StoredMessage) -> float:
        """How long to leave a half to the broker's own check-back (decisions.md); 0: no producer could answer it."""
        ...

    def rollback_evident_after_seconds(self, half: StoredMessage) -> float | None:
        """Age at which an open half would have a put-back copy: time-out + 2 check intervals, at least its immunity.

        None: the half's broker cannot tell (up to 4.2, or its configuration was not answered).
        """
        ...

    def is_past_check(self, half: StoredMessage) -> bool | None:
        """Whether its broker's check service has come past the half, which it does with each that was ended.

        None: the broker does not tell (up to 4.2, halves in RocksDB, a right that is lacking).
        """
        ...

    def check_back_of(self, half: StoredMessage) -> HalfQuestions | None:
        """How long the half's broker goes on asking about it. None: the broker's configuration was not answered."""
        ...

    def producers_of(self, half: StoredMessage) -> ProducerLook:
        """Whether a producer of the half's group is connected to its broker, asked now: nothing is remembered but since
        when none was."""
        ...

    def committed_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Committed (or republished) copies under the real topic. ABSENT only if the horizon covers not_before_ms."""
        ...

    def messages_of_key(
        self, topic: str, key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Messages that consumers get and whose KEYS have the word. ABSENT only if the horizon covers not_before_ms."""
        ...

    def half_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int, outbox: OutboxRow | None
    ) -> Asked[Lookup[StoredMessage]]:
        """All half copies, oldest first (commit-log order per broker). 3.2.6 uses the outbox row's offsets too."""
        ...

    def parked_copies(
        self, topic: str, unique_key: str, *, horizon: Horizon, not_before_ms: int
    ) -> Asked[Lookup[StoredMessage]]:
        """Copies in TRANS_CHECK_MAX_TIME_TOPIC (4.5.2 and newer)."""
        ...

    def group_copies(
        self, subscription: Subscription, unique_key: str, *, horizon: Horizon
    ) -> Asked[Mapping[str, Lookup[StoredMessage]]]:
        """Copies in the group's own topics, those that POP makes included: {"retry": ..., "dead-letter": ...}."""
        ...


class OutboxEvidence(Protocol):
    """Producers' outboxes, by SELECT only."""

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        """For every key, given with its time: FOUND with its committed rows, usually one, else UNKNOWN unless every
        outbox answered and proved that it has all that was committed before that time: then FOUND with tombstones, or
        ABSENT. `now_ms`: the time of another clock than the host's, if there is one: what lies ahead of both is no
        proof."""
        ...


class CommitQueries(Protocol):
    """The business's own tables, by SELECT only."""

    def look_up(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, BusinessAnswer]:
        """For every unique key, given with a copy of its message, what the row of the copy's business key says at the
        primary. What it does not say as declared is UNKNOWN; NO_ROW only where no transaction may still bring one."""
        ...

    def key_digests(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, bytes]:
        """For each unique key whose copy gives a business key, the digest of that. No database is asked."""
        ...

    def key_words(self, topic: str, copies: Mapping[str, StoredMessage]) -> Mapping[str, str]:
        """For each unique key whose copy gives a business key that KEYS may have, that word. No database is asked."""
        ...

    def why_not_accepted(self, topic: str) -> Fact | None:
        """Why nothing may be sent by the query of the topic: nobody stands by it, as it is now. None: a person does.
        Raises DatabaseAway: the ledger says it."""
        ...


class HalfReading(Protocol):
    """The half queues of all brokers that have a topic, read for what a row of the business is to prove."""

    def read_to_end(self, topic: str) -> Fact | None:
        """Notes each half in the ledger that a broker had stored before the call, under the key that the topic's query
        takes now. None: all are there; else why some may not be. Raises DatabaseAway."""
        ...


class HalfReadingBeforeSends(HalfReading, Protocol):
    """The same, and what brokers have put back at the last moment."""

    def is_newest(self, half: StoredMessage) -> bool | None:
        """Whether its broker has no younger copy of the half in the queue, read now: END on an older copy delivers, and
        the broker goes on asking about the younger. None: it does not tell."""
        ...


class InboxEvidence(Protocol):
    """Consumers' inboxes, by SELECT only."""

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        """For every key: FOUND with its row, ABSENT, or UNKNOWN (away, no inbox URL configured, or no row in a database
        that did not prove to be a primary)."""
        ...

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        """Page of rows with applied_at_ms >= since_ms, ordered by (applied_at_ms, unique_key). Raises DatabaseAway.

        A replica may lack the newest ones: they are no proof of anything that has no row.
        """
        ...

    def newest_ms(self, subscription: Subscription) -> int | None:
        """The highest applied_at_ms among the rows that are visible now; None: no row. Raises DatabaseAway."""
        ...

    def is_configured(self, subscription: Subscription) -> bool:
        """False: no inbox URL; effects are UNKNOWN and nothing can be settled by them."""
        ...


class BrokerRepairs(Protocol):
    """The acts. Each sends at most one request that can have an effect, and is heard later what became of it."""

    def end_transaction(self, half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        """Begins to read the half copy again at its offset. Called, what is returned checks the guards (half topic or
        PREPARED bits, REAL_TOPIC, PGROUP, UNIQ_KEY, digest) and sends END_TRANSACTION two-way with
        fromTransactionCheck=true; what that returns hears the answer."""
        ...

    def republish(self, message: StoredMessage) -> Asked[SendAnswer]:
        """Sends an ordinary message with the half's topic, body, TAGS, KEYS, UNIQ_KEY, flag and user properties."""
        ...

"""The values that witnesses answer with. The policy decides on these values alone.

"Don't know" is a value (UNKNOWN), and never an exception or a False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from reconciler.contract.answers import ANSWER, ANSWERS, FOREIGN, OF_ANOTHER_MESSAGE, SAYS
from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.facts import Fact
from reconciler.contract.hand_over import MessageParts
from reconciler.contract.tables import OutboxState
from reconciler.contract.verdicts import Undecided

T = TypeVar("T")
S = TypeVar("S")


class Presence(StrEnum):
    """The answer of a look-up."""

    FOUND = "FOUND"
    ABSENT = "ABSENT"
    UNKNOWN = "UNKNOWN"


def as_foreign(text: str) -> Fact:
    """Returns a fact for foreign words, such as a driver's."""
    return FOREIGN(detail=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """The answer of one broker or database, which is kept as evidence."""

    witness: str
    presence: Presence
    #: The record that the witness has, or why its answer does not count. A plain text is foreign, such as a driver's
    #: error.
    detail: Fact | str
    #: True if the witness has an unreadable value under this key, which waiting does not cure.
    is_damaged: bool = False
    #: True if an inbox has the key, but its effect may be incomplete. The answer is neither FOUND nor ABSENT until a
    #: person decides.
    is_incomplete: bool = False
    #: When the inbox wrote its row, complete or incomplete. None: the inbox has no row, or the time cannot be read.
    applied_at_ms: int | None = None
    #: True if the answer is FOUND but the witness may have more records than it showed.
    is_partial: bool = False
    #: True if the answer is UNKNOWN because of the configuration, so that waiting changes nothing.
    is_by_set_up: bool = False
    #: The identity of an outbox without a row; halves carry this identity as their mark. None: the identity is not
    #: known.
    identity: str | None = None

    @property
    def fact(self) -> Fact:
        """The detail as a fact. Foreign words stay as they are."""
        return as_foreign(self.detail) if isinstance(self.detail, str) else self.detail

    @property
    def said(self) -> Fact:
        """A fact with the witness and its detail."""
        return SAYS(witness=self.witness, detail=self.fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[T]):
    """The answer of all witnesses together: FOUND if one of them answers FOUND; otherwise UNKNOWN if one answers
    UNKNOWN; otherwise ABSENT."""

    presence: Presence
    #: The records that were found, beginning with the oldest. Empty unless the answer is FOUND.
    records: tuple[T, ...] = ()
    answers: tuple[WitnessAnswer, ...] = ()

    @property
    def is_found(self) -> bool:
        """True if at least one witness has a record."""
        return self.presence is Presence.FOUND

    @property
    def is_absent(self) -> bool:
        """True if every witness answered and none has a record."""
        return self.presence is Presence.ABSENT

    @property
    def is_unknown(self) -> bool:
        """True if no witness has a record and at least one did not answer."""
        return self.presence is Presence.UNKNOWN

    @property
    def has_absence(self) -> bool:
        """True if a witness answered that it has no record, whatever other witnesses have."""
        return any(answer.presence is Presence.ABSENT for answer in self.answers)

    @property
    def is_complete(self) -> bool:
        """True if every witness answered, so that no further witness can have a record."""
        return all(answer.presence is not Presence.UNKNOWN for answer in self.answers)

    @property
    def undecided_by(self) -> Undecided:
        """The cause of UNKNOWN: a witness failed, or no configured witness could answer."""
        unknown = [answer for answer in self.answers if answer.presence is Presence.UNKNOWN]
        is_by_set_up = bool(unknown) and all(answer.is_by_set_up for answer in unknown)
        return Undecided.SET_UP if is_by_set_up else Undecided.WITNESS

    @property
    def reason(self) -> Fact:
        """All answers as one fact."""
        return _answers(ANSWER(witness=a.witness, presence=str(a.presence), detail=a.fact) for a in self.answers)

    @property
    def damage(self) -> Fact | None:
        """The unreadable values, if they alone make the answer UNKNOWN. None: the answer is not UNKNOWN, or has another
        cause."""
        damaged = [a.said for a in self.answers if a.is_damaged]
        others = any(a.presence is Presence.UNKNOWN and not a.is_damaged for a in self.answers)
        return _answers(damaged) if self.is_unknown and damaged and not others else None

    @property
    def incomplete(self) -> Fact | None:
        """The inboxes that have the key with an effect that may be incomplete. None: no inbox has such an effect."""
        halves = [a.said for a in self.answers if a.is_incomplete]
        return _answers(halves) if halves else None

    def only(self, counts: Callable[[T], bool]) -> Lookup[T]:
        """Returns the answer with only those records that `counts` accepts. The result is ABSENT only if no witness may
        have more."""
        kept = tuple(filter(counts, self.records))
        if not self.is_found or len(kept) == len(self.records) > 0:
            return self
        if kept:
            return replace(self, records=kept)
        answers = tuple(
            replace(
                answer,
                presence=Presence.UNKNOWN if answer.is_partial else Presence.ABSENT,
                detail=OF_ANOTHER_MESSAGE(detail=answer.fact),
            )
            if answer.presence is Presence.FOUND
            else answer
            for answer in self.answers
        )
        is_unknown = any(answer.presence is Presence.UNKNOWN for answer in answers)
        return Lookup(presence=Presence.UNKNOWN if is_unknown else Presence.ABSENT, answers=answers)

    def map(self, convert: Callable[[T], S]) -> Lookup[S]:
        """Returns the answer with each record converted."""
        return Lookup(presence=self.presence, records=tuple(map(convert, self.records)), answers=self.answers)

    @classmethod
    def unknown(cls, witness: str, detail: Fact | str) -> Lookup[T]:
        """Returns the answer of one witness that did not answer."""
        return cls(
            presence=Presence.UNKNOWN,
            answers=(WitnessAnswer(witness=witness, presence=Presence.UNKNOWN, detail=detail),),
        )


def _answers(answers: Iterable[Fact]) -> Fact:
    each = tuple(answers)
    # usually there is one answer, and ten million rows store it
    return each[0] if len(each) == 1 else ANSWERS(each=each)


class TransactionState(StrEnum):
    """The transaction bits of a stored record (MessageSysFlag)."""

    NONE = "none"
    PREPARED = "prepared"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, kw_only=True)
class StoredMessage(MessageParts):
    """A message as a broker stores it: half copy, committed copy or parked copy. The base has its other fields."""

    transaction_state: TransactionState
    #: The record's offset message id (MessageDecoder.createMessageId). Empty: no broker stored this record.
    offset_message_id: str = ""

    @classmethod
    def handed_over(cls, parts: MessageParts) -> Self:
        """Returns the message of a hand-over row."""
        return cls(**vars(parts), transaction_state=TransactionState.NONE)

    @property
    def tag(self) -> str | None:
        """Property TAGS."""
        return self.properties.get("TAGS") or None

    @cached_property
    def content_digest(self) -> bytes:
        """The digest of what a consumer sees (contract/content_digest.py). The digest is cached, because each case file
        of the key compares it."""
        return self.digest_under(self.unique_key)

    def digest_under(self, name: str) -> bytes:
        """Returns the digest that an inbox row of this message has if the row's key is `name`."""
        return digest_of_message(topic=self.real_topic, unique_key=name, properties=self.properties, body=self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A message as its producer's database stores it. Copies and effects are compared with this value. A tombstone has
    only these fields."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    content_digest: bytes | None
    created_at_ms: int

    @classmethod
    def of_copy(cls, copy: StoredMessage) -> Self:
        """Returns what the database would store for a message equal to the copy."""
        return cls(
            unique_key=copy.unique_key,
            topic=copy.real_topic,
            producer_group=copy.producer_group,
            tag=copy.tag,
            content_digest=copy.content_digest,
            created_at_ms=copy.born_timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Recorded):
    """The proof that a message was committed. Every send needs such a proof."""

    message_keys: str | None = None
    properties: Mapping[str, str] | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A visible row of the plug-in's outbox: the proof that it gives, and how far the plug-in has processed it."""

    #: A `Commit`, unless the row is a tombstone.
    message: Recorded
    state: OutboxState
    announced_at_ms: int | None
    settled_at_ms: int | None
    business_id: str | None
    half_broker: str | None
    half_commit_log_offset: int | None
    half_queue_offset: int | None

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> OutboxRow:
        """Makes a row from the columns of a table."""
        state = OutboxState(columns["state"])
        proved = Recorded if state is OutboxState.ROLLED_BACK else Commit
        own = {field.name: columns[field.name] for field in fields(cls) if field.name not in ("message", "state")}
        return cls(message=proved(**{field.name: columns[field.name] for field in fields(proved)}), state=state, **own)

    @property
    def commit(self) -> Commit | None:
        """The proof of the commit. None: the row is a tombstone."""
        return self.message if isinstance(self.message, Commit) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A visible row of a consumer group's inbox."""

    group: str
    unique_key: str
    topic: str
    content_digest: bytes | None
    source: str
    applied_at_ms: int
    duplicate_of: str | None = None
    #: The mark of a transaction that was committed before its handler had returned. None: the effect is complete.
    incomplete: str | None = None
    #: Why a scanned row cannot be read. None: the row can be read. Of an unreadable row only the place counts, because
    #: key and time may have any type.
    damage: str | None = None


class FilterKind(StrEnum):
    """How a group filters a topic (ExpressionType)."""

    #: The group filters by tags, or not at all.
    TAG = "TAG"
    #: The group filters by an expression over properties, which only brokers can evaluate.
    SQL92 = "SQL92"
    #: No broker knows a member of the group that subscribes to the topic.
    NONE = "none"
    #: A broker did not answer, and no other broker knows the filter.
    UNKNOWN = "unknown"


class ConsumeMode(StrEnum):
    """How a group takes messages. The mode decides what the group's offset proves
    (reconciler/evidence/pop_groups.py)."""

    #: The members pull: the offset passes a message only after the message was acknowledged or sent back.
    PULL = "pull"
    #: The group pops (5.0 and newer): the offset passes a message that was handed out, even if no member acknowledged
    #: it.
    POP = "pop"
    #: Brokers do not show whether the group pulls or pops.
    UNKNOWN = "unknown"


class WatermarkState(StrEnum):
    """Whether the group's position is known, and what it proves."""

    KNOWN = "KNOWN"
    #: The group pops: every message before the watermark was handed out once. Only an effect shows that a message was
    #: applied.
    REACHED = "REACHED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """A broker time: the group has consumed all messages that were stored before it. For REACHED, these messages were
    handed out to the group."""

    state: WatermarkState
    #: Milliseconds of broker store time; 0 if UNKNOWN.
    at_ms: int
    #: The queue in which the group is furthest behind, or why the watermark is unknown.
    detail: Fact
    #: How many messages the group has not passed, over all queues; 0 if UNKNOWN.
    waiting: int = 0
    #: Broker store time of the first of these messages. None: no message waits, or the time is unknown.
    waiting_since_ms: int | None = None
    #: True if the watermark is UNKNOWN because the group has stored no offset for a queue that contains messages.
    lacks_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """Offsets of a group in one queue of its topic or of its retry topic."""

    topic: str
    broker: str
    queue_id: int
    consumer_offset: int | None
    min_offset: int
    max_offset: int
    #: The broker may have assigned offsets below this offset twice, so the group's offset proves nothing there.
    doubtful_below: int = 0
    #: Among records at or after `doubtful_below`, a record at or before this place of the commit log belongs to an
    #: earlier queue.
    doubtful_log_offset: int = -1
    #: The offset and commit-log place of the last record that was seen in the queue. If another record has an offset at
    #: or below that offset but lies later in the commit log, its offset was assigned again.
    seen: tuple[int, int] | None = None

    @property
    def waiting(self) -> int:
        """Number of messages that the group has not passed. Without a stored offset, all messages in the queue
        count."""
        return max(0, self.max_offset - max(self.min_offset, self.consumer_offset or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfQuestions:
    """For how long the broker of a half asks the half's producers about it. The answer COMMIT delivers the message."""

    #: False: this broker never asks (up to 4.2).
    is_asked: bool
    #: Roughly when the broker gives up the half, by the broker's clock. The time is true if the broker runs and its
    #: rounds of questions are punctual.
    until_ms: int
    #: The age limit of the half, by the broker's clock. After this time the broker gives the half up without a
    #: question.
    never_after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLook:
    """Whether a producer of the half's group is connected to the half's broker, and so could answer the broker's
    question."""

    #: None: the broker does not say.
    is_connected: bool | None
    #: For how long every look of this process has found no producer connected.
    away_seconds: float = 0.0
    #: Earlier looks that found no producer, the oldest first: the seconds since the look, and the end of the half queue
    #: after the look.
    half_queue_ends: tuple[tuple[float, int], ...] = ()
    #: Seconds between two rounds of the broker's questions.
    interval_seconds: float = 0.0


class EndOutcome(StrEnum):
    """The answers to a two-way END_TRANSACTION or a republish, grouped by their consequences."""

    #: Response code 0: the broker executed the request.
    DONE = "DONE"
    #: The broker certainly did not execute the request, so another try makes sense: response codes 2, 11, 14, 215, 604.
    REFUSED_FOR_NOW = "REFUSED_FOR_NOW"
    #: The offset has another record, so the half has to be found again.
    MISMATCH = "MISMATCH"
    #: "find prepared transaction message failed": the half is gone.
    HALF_GONE = "HALF_GONE"
    #: No answer came: the broker may have executed the request.
    NO_ANSWER = "NO_ANSWER"
    #: Our own guard refused to send.
    NOT_SENT = "NOT_SENT"
    #: A look right before the send saw a reason to wait, or got no answer. Nothing was sent.
    HELD_BACK = "HELD_BACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer:
    """The answer to a repair that was sent."""

    outcome: EndOutcome
    code: int | None = None
    detail: str = ""

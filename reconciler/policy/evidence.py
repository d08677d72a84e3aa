"""Values that witnesses answer with: policy decides on these and on nothing else.

"Don't know" is a value (UNKNOWN), never an exception and never a False.
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
from reconciler.contract.tables import OutboxState
from reconciler.contract.verdicts import Undecided

T = TypeVar("T")
S = TypeVar("S")


class Presence(StrEnum):
    """Answer of a look-up."""

    FOUND = "FOUND"
    ABSENT = "ABSENT"
    UNKNOWN = "UNKNOWN"


def as_foreign(text: str) -> Fact:
    """What somebody else said, such as a driver."""
    return FOREIGN(detail=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """The answer of one broker or database, kept as evidence."""

    witness: str
    presence: Presence
    #: What it has, or why the answer does not count. A text is somebody else's, such as a driver's error.
    detail: Fact | str
    #: True: the witness has an unreadable value under this key; waiting does not mend it.
    is_damaged: bool = False
    #: True: an inbox has the key, and not whether its effect is whole: neither FOUND nor ABSENT until a person ends it.
    is_incomplete: bool = False
    #: Of an inbox that has a row, whole or incomplete: when it was written. None: no row, or it cannot be read.
    applied_at_ms: int | None = None
    #: True: FOUND, but the witness may have more than it showed.
    is_partial: bool = False
    #: True: UNKNOWN by what is configured; no waiting changes that.
    is_by_set_up: bool = False
    #: Of an outbox without a row: its name, which halves carry as their mark. None: not known.
    identity: str | None = None

    @property
    def fact(self) -> Fact:
        """The detail; what somebody else said as it is."""
        return as_foreign(self.detail) if isinstance(self.detail, str) else self.detail

    @property
    def said(self) -> Fact:
        """The witness and its detail."""
        return SAYS(witness=self.witness, detail=self.fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[T]):
    """Answer of all witnesses together: one FOUND is FOUND; else one UNKNOWN is UNKNOWN; else ABSENT."""

    presence: Presence
    #: What was found, oldest first; empty unless FOUND.
    records: tuple[T, ...] = ()
    answers: tuple[WitnessAnswer, ...] = ()

    @property
    def is_found(self) -> bool:
        """At least one witness has it."""
        return self.presence is Presence.FOUND

    @property
    def is_absent(self) -> bool:
        """Every witness answered, and none has it."""
        return self.presence is Presence.ABSENT

    @property
    def is_unknown(self) -> bool:
        """No witness has it, and at least one did not answer."""
        return self.presence is Presence.UNKNOWN

    @property
    def has_absence(self) -> bool:
        """A witness answered that it has nothing, whatever the others have."""
        return any(answer.presence is Presence.ABSENT for answer in self.answers)

    @property
    def is_complete(self) -> bool:
        """Every witness answered: no other one can have it, too."""
        return all(answer.presence is not Presence.UNKNOWN for answer in self.answers)

    @property
    def undecided_by(self) -> Undecided:
        """Of an UNKNOWN: whether a witness failed, or none is configured that could answer."""
        unknown = [answer for answer in self.answers if answer.presence is Presence.UNKNOWN]
        is_by_set_up = bool(unknown) and all(answer.is_by_set_up for answer in unknown)
        return Undecided.SET_UP if is_by_set_up else Undecided.WITNESS

    @property
    def reason(self) -> Fact:
        """The answers in one line."""
        return _answers(ANSWER(witness=a.witness, presence=str(a.presence), detail=a.fact) for a in self.answers)

    @property
    def damage(self) -> Fact | None:
        """The unreadable values, where they alone keep the answer UNKNOWN. None: another reason, or no UNKNOWN."""
        damaged = [a.said for a in self.answers if a.is_damaged]
        others = any(a.presence is Presence.UNKNOWN and not a.is_damaged for a in self.answers)
        return _answers(damaged) if self.is_unknown and damaged and not others else None

    @property
    def incomplete(self) -> Fact | None:
        """The inboxes that have the key with an effect that may be half. None: there is none."""
        halves = [a.said for a in self.answers if a.is_incomplete]
        return _answers(halves) if halves else None

    def only(self, counts: Callable[[T], bool]) -> Lookup[T]:
        """The answer with only the records that `counts` accepts: ABSENT only if no witness may have more."""
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
        """The answer with each record converted."""
        return Lookup(presence=self.presence, records=tuple(map(convert, self.records)), answers=self.answers)

    @classmethod
    def unknown(cls, witness: str, detail: Fact | str) -> Lookup[T]:
        """One witness that did not answer."""
        return cls(
            presence=Presence.UNKNOWN,
            answers=(WitnessAnswer(witness=witness, presence=Presence.UNKNOWN, detail=detail),),
        )


def _answers(answers: Iterable[Fact]) -> Fact:
    each = tuple(answers)
    return each[0] if len(each) == 1 else ANSWERS(each=each)  # as a rule there is one, and ten million rows keep it


class TransactionState(StrEnum):
    """Transaction bits of a stored record (MessageSysFlag)."""

    NONE = "none"
    PREPARED = "prepared"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A message as a broker has it: half copy, committed copy or parked copy."""

    unique_key: str
    #: Topic of the record: the half topic for a half of 4.3 and newer.
    topic: str
    #: Topic that consumers see.
    real_topic: str
    broker: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    transaction_state: TransactionState
    #: For a committed copy: commit-log offset of the half it was made from; else 0.
    prepared_transaction_offset: int
    #: PGROUP, empty where the record has none.
    producer_group: str
    #: TRANSACTION_CHECK_TIMES of a put-back copy; None on the first copy.
    check_times: int | None
    reconsume_times: int
    properties: Mapping[str, str]
    #: Uncompressed.
    body: bytes
    flag: int = 0
    #: The offset message id of the record (MessageDecoder.createMessageId); empty: this is no record of a broker.
    offset_message_id: str = ""

    @property
    def tag(self) -> str | None:
        """Property TAGS."""
        return self.properties.get("TAGS") or None

    @cached_property
    def content_digest(self) -> bytes:
        """Digest of what a consumer sees (contract/content_digest.py). Each file of its key compares it anew."""
        return self.digest_under(self.unique_key)

    def digest_under(self, name: str) -> bytes:
        """The digest that an inbox row of this message has whose key is `name`."""
        return digest_of_message(topic=self.real_topic, unique_key=name, properties=self.properties, body=self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A message as the database of its producer has it, with which copies and effects are compared. A tombstone is no
    more than this."""

    unique_key: str
    topic: str
    producer_group: str
    tag: str | None
    content_digest: bytes | None
    created_at_ms: int

    @classmethod
    def of_copy(cls, copy: StoredMessage) -> Self:
        """What its database would have of a message that is what the copy says."""
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
    """The proof that a message was committed: nothing is sent without one."""

    message_keys: str | None = None
    properties: Mapping[str, str] | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A visible row of the plug-in's outbox: what it proves, and how far the plug-in has come with it."""

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
        """The row of a table."""
        state = OutboxState(columns["state"])
        proved = Recorded if state is OutboxState.ROLLED_BACK else Commit
        own = {field.name: columns[field.name] for field in fields(cls) if field.name not in ("message", "state")}
        return cls(message=proved(**{field.name: columns[field.name] for field in fields(proved)}), state=state, **own)

    @property
    def commit(self) -> Commit | None:
        """The proof of the commit; None: a tombstone."""
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
    #: The mark of the transaction whose handler had not returned when it was committed; None: the effect is whole.
    incomplete: str | None = None
    #: Why a row of a scan cannot be read; None: it can. Of such a row only the place counts: key and time may be of any
    #: type.
    damage: str | None = None


class FilterKind(StrEnum):
    """How a group filters a topic (ExpressionType)."""

    #: By tags, or not at all.
    TAG = "TAG"
    #: By an expression over properties, which brokers evaluate and this program cannot.
    SQL92 = "SQL92"
    #: No broker knows a member of the group that subscribes to the topic.
    NONE = "none"
    #: A broker did not answer, and no other one knows.
    UNKNOWN = "unknown"


class ConsumeMode(StrEnum):
    """How a group takes messages, and so what its offset proves (reconciler/evidence/pop_groups.py)."""

    #: Its members pull: the offset passes a message that was acknowledged, or was sent back before.
    PULL = "pull"
    #: It pops (5.0 and newer): the offset passes a message that was handed out, acknowledged or not.
    POP = "pop"
    #: Brokers do not show which of the two.
    UNKNOWN = "unknown"


class WatermarkState(StrEnum):
    """Whether the group's position is known, and what it proves."""

    KNOWN = "KNOWN"
    #: The group pops: everything before was handed out once, and only an effect shows what came of it.
    REACHED = "REACHED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Everything stored before this broker time has been consumed by the group; handed out to it, where REACHED."""

    state: WatermarkState
    #: Milliseconds of broker store time; 0 when UNKNOWN.
    at_ms: int
    #: Queue that holds the watermark back, or why it is unknown.
    detail: Fact
    #: Messages that the group has not passed, over all queues; 0 when UNKNOWN.
    waiting: int = 0
    #: Broker store time of the first of them; None: none waits, or it is not known.
    waiting_since_ms: int | None = None
    #: UNKNOWN, because the group has stored no offset for a queue that holds messages.
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
    #: The broker may have given offsets below this one a second time: there the group's offset proves nothing.
    doubtful_below: int = 0
    #: A record of that offset or behind it is one of an earlier queue if it lies at this place of the commit log or
    #: before it.
    doubtful_log_offset: int = -1
    #: The last record that was seen of the queue: offset, place in the commit log. What lies at its offset or before
    #: it, and behind it in the log, was given an offset a second time since.
    seen: tuple[int, int] | None = None

    @property
    def waiting(self) -> int:
        """Messages that the group has not passed; without an offset all that the queue holds."""
        return max(0, self.max_offset - max(self.min_offset, self.consumer_offset or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfQuestions:
    """How long the broker of a half asks its producers about it. An answer COMMIT delivers the message."""

    #: False: this broker never asks (up to 4.2).
    is_asked: bool
    #: About when it gives the half up, if it runs and its rounds are in time. Broker's time.
    until_ms: int
    #: The half's age limit, after which it is given up without a question. Broker's time.
    never_after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLook:
    """Whether a producer of a half's group is connected to the half's broker, and could answer its question."""

    #: None: the broker does not tell.
    is_connected: bool | None
    #: For how long none was there, at each look of this process.
    away_seconds: float = 0.0
    #: How many seconds ago a look since then was, and where the half queue ended after it; oldest first.
    half_queue_ends: tuple[tuple[float, int], ...] = ()
    #: Time between two rounds of questions.
    interval_seconds: float = 0.0


class EndOutcome(StrEnum):
    """What a two-way END_TRANSACTION (or a republish) answered, grouped by what follows."""

    #: Code 0: executed.
    DONE = "DONE"
    #: Certainly not executed, worth another try: 2, 11, 14, 215, 604.
    REFUSED_FOR_NOW = "REFUSED_FOR_NOW"
    #: The record at the offset is another one: look again.
    MISMATCH = "MISMATCH"
    #: "find prepared transaction message failed": the half is gone.
    HALF_GONE = "HALF_GONE"
    #: No answer: it may have been executed.
    NO_ANSWER = "NO_ANSWER"
    #: A guard of ours refused to send.
    NOT_SENT = "NOT_SENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer:
    """Answer to a repair that was sent."""

    outcome: EndOutcome
    code: int | None = None
    detail: str = ""

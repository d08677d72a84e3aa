"""Values that describe a half: a copy on a broker, the rules by which the broker asks about the half, and the fate of
the half."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import Fact
from reconciler.halves.outcomes import HalfOutcomes
from reconciler.policy.commit_query import BusinessAnswer, BusinessState


class HalfFate(StrEnum):
    """The fate of a half that a look at the brokers shows. Only halves whose fate is in UNDELIVERED can be lost."""

    #: The half was neither committed nor rolled back, and its broker has not given it up.
    OPEN = "open"
    #: The half is so young that its end may not be visible yet.
    FRESH = "fresh"
    #: The message is in its topic, but the broker has not noticed that, and still asks.
    DELIVERED = "delivered"
    #: The half was rolled back, but the broker has not noticed that, and still asks.
    ENDED = "ended"
    #: The broker has given the half up. Nothing happens to the half any more unless a person acts.
    GIVEN_UP = "given-up"
    #: The broker has given the half up, but the message is in its topic.
    GIVEN_UP_DELIVERED = "given-up-delivered"


UNDELIVERED = frozenset({HalfFate.OPEN, HalfFate.GIVEN_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """A broker's rules for asking producers (BrokerConfig, TransactionalMessageServiceImpl)."""

    #: Time that a half waits for its first question (transactionTimeOut).
    timeout_seconds: float
    #: Time between two check rounds (transactionCheckInterval).
    interval_seconds: float
    #: Maximum number of questions about one half (transactionCheckMax).
    questions_max: int
    #: Retention of the broker (fileReservedTime). An older half is given up without a question.
    retention_seconds: float
    #: Longest time until the end of a half becomes visible.
    ended_seen_after_seconds: float

    @property
    def asked_for_seconds(self) -> float:
        """Longest time from the birth of a half until it is given up, if rounds begin in time."""
        return self.timeout_seconds + (self.questions_max + 2) * self.interval_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCopy:
    """One record of a half: the first copy, a copy that a check has put back, or a copy in the topic of given-up
    halves."""

    broker: str
    #: The real topic, which consumers see.
    topic: str
    producer_group: str
    #: Unique key of the message. Empty if the producer gave no key.
    unique_key: str
    queue_offset: int
    commit_log_offset: int
    born_ms: int
    store_ms: int
    #: Number of questions to producers that this copy shows.
    asked: int
    #: False for the first copy.
    is_put_back: bool
    #: Time that the half waits for its first question: transactionTimeOut, or the half's own
    #: CHECK_IMMUNITY_TIME_IN_SECONDS if that is longer.
    left_alone_seconds: float
    #: The id that the broker's tools use.
    offset_message_id: str
    tags: str = ""
    #: KEYS of the message. Empty if the message has none.
    keys: str = ""
    #: The business key, if a commit query asks for one. Empty if the half has no key, or several keys.
    business_key: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The topic and the key of a half, which are equal for all its copies. A half without a key has its place as
        the key."""
        return self.topic, self.unique_key or f"@{self.broker}/{self.commit_log_offset}"

    @property
    def since_ms(self) -> int:
        """Time since which the half surely exists. The birth time of a half comes from the producer's clock, which may
        be ahead."""
        return min(self.born_ms, self.store_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half, with the facts that a look at brokers found."""

    #: The newest copy of the half.
    copy: HalfCopy
    state: HalfFate
    #: Number of clients of the half's producer group that this broker could ask now. None if the broker did not say.
    producers: int | None = None
    #: Number of questions that the broker will still ask. None if the number is unknown, or if the broker asks none.
    questions_left: int | None = None
    #: Approximate time of the last question, in ms UTC.
    asked_until_ms: int | None = None
    #: Time from which the broker may delete the half, in ms UTC.
    kept_until_ms: int | None = None
    #: False if some broker could not be asked whether the message is in its topic.
    is_looked_up: bool = True
    #: The answer of the business's own tables. None if the tables were not asked.
    business: BusinessAnswer | None = None

    @property
    def business_state(self) -> BusinessState | None:
        """The state in the answer of the business, without the reason."""
        return None if self.business is None else self.business.state


@dataclass(slots=True, kw_only=True)
class BrokerFindings:
    """The findings on one broker so far."""

    broker: str
    address: str = ""
    version: str = ""
    halves: tuple[Half, ...] = ()
    #: Number of records that were read for these findings.
    records_read: int = 0
    #: (topic, producer group) -> outcomes of their halves. None if the outcomes are not counted.
    outcomes: dict[tuple[str, str], HalfOutcomes] | None = None
    #: Time for which the broker's check service has not moved from one half. None if the service moves, or if this is
    #: unknown.
    stands_seconds: float | None = None
    #: Facts that limit the findings.
    notes: list[Fact] | None = None
    #: The reason why the broker's halves could not be read. None if the halves were read.
    unread: Fact | None = None
    #: False if the scan was stopped before its end.
    is_finished: bool = False

    def note(self, fact: Fact) -> None:
        """Adds a fact that limits the findings."""
        self.notes = [*(self.notes or ()), fact]

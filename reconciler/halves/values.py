"""Values: a copy of a half on a broker, the rules by which that broker asks about it, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import Fact
from reconciler.halves.outcomes import HalfOutcomes
from reconciler.policy.commit_query import BusinessAnswer, BusinessState


class HalfFate(StrEnum):
    """What a look at the brokers says of a half. Only UNDELIVERED ones can be lost."""

    #: Neither committed nor rolled back, and its broker has not given it up.
    OPEN = "open"
    #: So young that its end may not be visible yet.
    FRESH = "fresh"
    #: Its message is in its topic, but the broker has not noticed, and goes on asking.
    DELIVERED = "delivered"
    #: It was rolled back, but the broker has not noticed, and goes on asking.
    ENDED = "ended"
    #: The broker has given it up. Nothing more happens to it by itself.
    GIVEN_UP = "given-up"
    #: The broker has given it up, but its message is in its topic.
    GIVEN_UP_DELIVERED = "given-up-delivered"


UNDELIVERED = frozenset({HalfFate.OPEN, HalfFate.GIVEN_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """How a broker asks producers (BrokerConfig, TransactionalMessageServiceImpl)."""

    #: transactionTimeOut: how long a half is left alone.
    timeout_seconds: float
    #: transactionCheckInterval.
    interval_seconds: float
    #: transactionCheckMax.
    questions_max: int
    #: fileReservedTime: a half that was born before is given up without a question.
    retention_seconds: float
    #: How long the end of a half may take to become visible.
    ended_seen_after_seconds: float

    @property
    def asked_for_seconds(self) -> float:
        """From the birth of a half until it is given up, at most, where rounds begin in time."""
        return self.timeout_seconds + (self.questions_max + 2) * self.interval_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCopy:
    """One record of a half: the first one, or one that a check has put back, or one in the topic of given-up halves."""

    broker: str
    #: The topic that consumers see.
    topic: str
    producer_group: str
    #: Empty where its producer gave none.
    unique_key: str
    queue_offset: int
    commit_log_offset: int
    born_ms: int
    store_ms: int
    #: How often producers were asked, as far as this copy knows.
    asked: int
    #: False: the first copy.
    is_put_back: bool
    #: How long it is left alone: transactionTimeOut, or its own CHECK_IMMUNITY_TIME_IN_SECONDS.
    left_alone_seconds: float
    #: What the broker's tools call it.
    offset_message_id: str
    tags: str = ""
    #: Key of the business, where a commit query asks for it; empty: none, or more than one.
    business_key: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The same for all copies of a half: its topic and key, or its place where it has no key."""
        return self.topic, self.unique_key or f"@{self.broker}/{self.commit_log_offset}"

    @property
    def since_ms(self) -> int:
        """Since when it has been there at least: its birth is its producer's word, whose clock may be ahead."""
        return min(self.born_ms, self.store_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half with what was found out."""

    #: Its newest copy.
    copy: HalfCopy
    state: HalfFate
    #: Clients of its producer group that this broker could ask now. None: it did not tell.
    producers: int | None = None
    #: Questions that the broker will still ask. None: nobody can tell, or it asks none.
    questions_left: int | None = None
    #: About when the last one is asked, ms UTC.
    asked_until_ms: int | None = None
    #: When the broker may delete it, ms UTC.
    kept_until_ms: int | None = None
    #: False: not every broker could be asked whether its message is in its topic.
    is_looked_up: bool = True
    #: What the business's own tables say. None: nobody asked them.
    business: BusinessAnswer | None = None

    @property
    def business_state(self) -> BusinessState | None:
        """The same, without the reason."""
        return None if self.business is None else self.business.state


@dataclass(slots=True, kw_only=True)
class BrokerFindings:
    """What was found on one broker, as far as its scan has come."""

    broker: str
    address: str = ""
    version: str = ""
    halves: tuple[Half, ...] = ()
    #: Records that were read for it.
    records_read: int = 0
    #: Topic and producer group -> how its halves ended. None: nobody asked.
    outcomes: dict[tuple[str, str], HalfOutcomes] | None = None
    #: For how long its check service has stood still before one half. None: it does not, or nobody can tell.
    stands_seconds: float | None = None
    #: What could not be seen, and why.
    notes: list[Fact] | None = None
    #: Why its halves could not be read. None: they were.
    unread: Fact | None = None
    #: False: it was stopped before its end.
    is_finished: bool = False

    def note(self, fact: Fact) -> None:
        """Adds what could not be seen."""
        self.notes = [*(self.notes or ()), fact]

"""Values: a copy of a half on a broker, the rules by which that broker asks about it, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.contract.facts import Fact
from reconciler.halves.outcomes import HalfOutcomes
from reconciler.policy.commit_query import BusinessAnswer, BusinessState


class HalfFate(StrEnum):
    """What a look at the brokers shows about a half. Only UNDELIVERED halves can be lost."""

    #: Neither committed, rolled back nor given up by its broker.
    OPEN = "open"
    #: So young that its end may not be visible yet.
    FRESH = "fresh"
    #: Its message is in its topic, but the broker has not noticed, and still asks.
    DELIVERED = "delivered"
    #: It was rolled back, but the broker has not noticed, and still asks.
    ENDED = "ended"
    #: The broker has given it up. Nothing happens to it any more without a person.
    GIVEN_UP = "given-up"
    #: The broker has given it up, but its message is in its topic.
    GIVEN_UP_DELIVERED = "given-up-delivered"


UNDELIVERED = frozenset({HalfFate.OPEN, HalfFate.GIVEN_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRules:
    """A broker's rules for asking producers (BrokerConfig, TransactionalMessageServiceImpl)."""

    #: transactionTimeOut: how long a half waits for its first question.
    timeout_seconds: float
    #: transactionCheckInterval.
    interval_seconds: float
    #: transactionCheckMax.
    questions_max: int
    #: fileReservedTime: a half that was born earlier is given up without a question.
    retention_seconds: float
    #: How long it may take until the end of a half becomes visible.
    ended_seen_after_seconds: float

    @property
    def asked_for_seconds(self) -> float:
        """Longest time from the birth of a half until it is given up, if rounds begin in time."""
        return self.timeout_seconds + (self.questions_max + 2) * self.interval_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCopy:
    """One record of a half: the first one, one that a check has put back, or one in the topic of given-up halves."""

    broker: str
    #: The topic that consumers see.
    topic: str
    producer_group: str
    #: Empty if its producer gave no key.
    unique_key: str
    queue_offset: int
    commit_log_offset: int
    born_ms: int
    store_ms: int
    #: How often producers were asked, as far as this copy shows.
    asked: int
    #: False: the first copy.
    is_put_back: bool
    #: How long it waits for its first question: transactionTimeOut, or its own CHECK_IMMUNITY_TIME_IN_SECONDS.
    left_alone_seconds: float
    #: The id that the broker's tools use.
    offset_message_id: str
    tags: str = ""
    #: The business key, if a commit query asks for it; empty: no key, or several.
    business_key: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The same for all copies of a half: its topic and key; without a key, its place."""
        return self.topic, self.unique_key or f"@{self.broker}/{self.commit_log_offset}"

    @property
    def since_ms(self) -> int:
        """Since when it surely exists: its birth is by its producer's clock, which may be ahead."""
        return min(self.born_ms, self.store_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half and what was found out about it."""

    #: Its newest copy.
    copy: HalfCopy
    state: HalfFate
    #: Number of clients of its producer group that this broker could ask now. None: the broker did not say.
    producers: int | None = None
    #: Number of questions that the broker will still ask. None: unknown, or it asks none.
    questions_left: int | None = None
    #: Roughly when the last question is asked, ms UTC.
    asked_until_ms: int | None = None
    #: When the broker may delete it, ms UTC.
    kept_until_ms: int | None = None
    #: False: not every broker could be asked whether its message is in its topic.
    is_looked_up: bool = True
    #: What the business's own tables say. None: they were not asked.
    business: BusinessAnswer | None = None

    @property
    def business_state(self) -> BusinessState | None:
        """The same without its reason."""
        return None if self.business is None else self.business.state


@dataclass(slots=True, kw_only=True)
class BrokerFindings:
    """What was found on one broker so far."""

    broker: str
    address: str = ""
    version: str = ""
    halves: tuple[Half, ...] = ()
    #: Number of records that were read for it.
    records_read: int = 0
    #: Topic and producer group -> how its halves ended. None: not asked for.
    outcomes: dict[tuple[str, str], HalfOutcomes] | None = None
    #: For how long its check service has not moved from one half. None: it moves, or that is unknown.
    stands_seconds: float | None = None
    #: What could not be read, and why.
    notes: list[Fact] | None = None
    #: Why its halves could not be read. None: they were read.
    unread: Fact | None = None
    #: False: the scan was stopped before its end.
    is_finished: bool = False

    def note(self, fact: Fact) -> None:
        """Adds a fact about what could not be read."""
        self.notes = [*(self.notes or ()), fact]

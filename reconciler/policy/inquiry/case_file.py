"""One key with all answers so far, and the next question. Each verdict and each repair is decided from one such file
alone.

A verdict asks about one group, a repair about every group of the topic. A repair opens a new file after its claim, so
that no answer from before the claim decides a send.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeVar

from reconciler.contract.defaults import RETENTION_SECONDS, SKEW_MARGIN_SECONDS
from reconciler.contract.facts import Fact
from reconciler.contract.reasons import COPY_MAY_BE_GONE, SEEN_COPY_GONE
from reconciler.contract.trace_context import traceparent_of
from reconciler.contract.unique_key import is_digits
from reconciler.contract.verdicts import Verdict
from reconciler.policy.commit_query import BusinessAnswer, Siblings
from reconciler.policy.evidence import (
    Commit,
    ConsumeMode,
    FilterKind,
    InboxRow,
    Lookup,
    OutboxRow,
    ProducerLook,
    QueuePosition,
    Recorded,
    StoredMessage,
)
from reconciler.policy.inquiry.delivery import difference, group_position, of_row, own_halves, reach, row_of
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from reconciler.policy.ports.ledger import NAMED_BY_PLACE, Repair

#: Maximum number of keys in one page of pending, in one read of the ledger, and in one query of an inbox or outbox.
PAGE_KEYS = 500
#: Messages that are older than this may be gone. Brokers with a full disk delete before fileReservedTime, and some
#: brokers keep messages for a shorter time than the settings say.
SURELY_KEPT_SECONDS_MAX = 18 * 3600.0
#: Maximum number of messages of one business key whose copies are looked for. The youngest are chosen.
SIBLINGS_ASKED_MAX = 16

F = TypeVar("F", bound="CaseFile")


class Question(StrEnum):
    """The next question. The members are in the order of cost."""

    INBOX = "inbox"
    OUTBOX = "outbox"
    HAND_OVERS = "hand-over rows"
    NOTED_HALVES = "noted halves"
    COMMITTED_COPIES = "committed copies"
    INBOX_AGAIN = "inbox again"
    GROUP_COPIES = "group copies"
    CONSUME_MODE = "consume_mode"
    COPIES_AGAIN = "committed copies again"
    HALF_COPIES = "half copies"
    CHECK_BACK = "check-back"
    FILTER_KIND = "filter"
    PARKED_COPIES = "parked copies"
    COMMIT_QUERY = "commit query"
    EFFECT_QUERY = "effect query"
    SIBLING_COPIES = "sibling copies"
    MESSAGES_OF_KEY = "messages of key"
    PRODUCERS = "producers"


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAge:
    """The age of a half by its broker's clock, and what that age means there."""

    age_seconds: float
    #: A half that is younger than this is left to the broker's own check-back.
    wait_seconds: float
    #: An open half that is older than this would have a put-back copy. None: the broker cannot show that.
    rollback_evident_after_seconds: float | None
    #: True if the broker's check service has passed the half. None: this is not known, or the half is younger than
    #: `rollback_evident_after_seconds`.
    is_past_check: bool | None = None

    def looks_rolled_back(self, halves: Sequence[StoredMessage]) -> bool:
        """Returns True if the halves look rolled back. From 4.3 on, an open half gets put-back copies. A rolled back
        half keeps its single copy. So does a half that a stopped check service has not reached."""
        after = self.rollback_evident_after_seconds
        return after is not None and self.age_seconds > after and _is_first_copy(halves)

    def may_become_evident(self, halves: Sequence[StoredMessage]) -> bool:
        """Returns True if the half is too young to show by itself whether it was ended."""
        after = self.rollback_evident_after_seconds
        return after is not None and self.age_seconds <= after and _is_first_copy(halves)


def _is_first_copy(halves: Sequence[StoredMessage]) -> bool:
    """Returns True if the broker has not put the half back."""
    return len(halves) == 1 and halves[0].check_times is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswers:
    """The answers about one group. A field that is None was not asked for yet."""

    #: False: no inbox is configured, so that effects cannot be looked for by the names of messages.
    has_inbox: bool = True
    #: True: an effect query shows effects in place of an inbox. The query needs a copy of the message.
    asks_effects: bool = False
    #: The answer of the inbox, or of the effect query.
    inbox: Lookup[InboxRow] | None = None
    #: The group's offsets, read before the committed copies are looked for. None also means that a broker did not
    #: answer.
    positions: Sequence[QueuePosition] | None = None
    #: The inbox's answer after the positions were read.
    inbox_again: Lookup[InboxRow] | None = None
    #: Copies in the group's retry and dead-letter topics.
    copies: Mapping[str, Lookup[StoredMessage]] | None = None
    #: The mode that decides what the group's offsets prove.
    consume_mode: ConsumeMode | None = None
    filter_kind: FilterKind | None = None

    @classmethod
    def of(cls, plan: SubscriptionPlan, *, has_inbox: bool) -> Self:
        """Returns the answers of a group that nobody has asked yet."""
        return cls(has_inbox=has_inbox, asks_effects=plan.asks_effects)

    @property
    def shows_effects(self) -> bool:
        """False: the effects of the group cannot be looked for."""
        return self.has_inbox or self.asks_effects


@dataclass(frozen=True, kw_only=True)
class CaseFile(ABC):
    """One key with all its answers. A field that is None was not asked for yet.

    Conclusions from the answers are cached in each file, because a decision reads them dozens of times, and the
    comparison of a copy with the outbox row computes a digest of its body.
    """

    unique_key: str
    topic: TopicPlan
    #: The groups whose effects are asked for: one for a verdict, every group of the topic for a repair.
    plans: tuple[SubscriptionPlan, ...]
    #: The largest difference between the clocks of two servers.
    skew_margin_seconds: float = SKEW_MARGIN_SECONDS
    #: The brokers' fileReservedTime.
    retention_seconds: float = RETENTION_SECONDS
    #: Group -> its answers, for each group in `plans`.
    of_group: Mapping[str, GroupAnswers] = field(default_factory=dict)
    outbox: Lookup[OutboxRow] | None = None
    #: The hand-overs of the key, one for each group.
    hand_overs: Sequence[Repair] | None = None
    copies: Lookup[StoredMessage] | None = None
    #: Committed copies, read again after the copies in the group's topics.
    copies_again: Lookup[StoredMessage] | None = None
    halves: Lookup[StoredMessage] | None = None
    check_back: HalfAge | None = None
    parked: Lookup[StoredMessage] | None = None
    #: True if the ledger has noted a half of the message, so that the half may be the only announcement.
    is_noted: bool | None = None
    #: The answer of the business's rows, found by the key in `key_copy`.
    business: BusinessAnswer | None = None
    #: The key as it may appear in the KEYS of a message.
    key_word: str | None = None
    #: Delivered messages whose KEYS contain the key. Any sender may have sent them, in any way.
    of_key: Lookup[StoredMessage] | None = None
    #: Other messages to which the row may belong.
    siblings: Siblings | None = None
    #: Delivered copies of the siblings.
    sibling_copies: Lookup[StoredMessage] | None = None
    #: Broker with a half -> the producers that could answer the broker's question about the half.
    producers: Mapping[str, ProducerLook] | None = None

    @abstractmethod
    def not_before_ms(self, question: Question) -> int:
        """Returns the time that a witness must have passed before its "not found" counts."""

    def is_asked_of_now(self, question: Question) -> bool:
        """Returns True if the index must have reached the moment of the question. Otherwise the start of the round or
        pass suffices."""
        del question
        return False

    @property
    def has_outbox(self) -> bool:
        """True if an outbox of the topic is configured."""
        return self.topic.evidence.has_outbox

    @property
    def redis_now_ms(self) -> int | None:
        """The present time by Redis. None: Redis was not asked."""
        return None

    @cached_property
    def row(self) -> OutboxRow | None:
        """The outbox row. None: it was not asked for yet, or none was found."""
        return row_of(self.outbox)

    @property
    def message(self) -> Recorded | None:
        """The message of the outbox row."""
        return None if self.row is None else self.row.message

    @property
    def commit(self) -> Commit | None:
        """The proof of the commit. None: outboxes were not asked yet, or have no proof."""
        return self.row.commit if self.row is not None else None

    @cached_property
    def own_copies(self) -> Lookup[StoredMessage] | None:
        """The answer about committed copies of the outbox row's message, without copies of other messages."""
        return None if self.copies is None else of_row(self.copies, self.message)

    @cached_property
    def own_halves(self) -> Lookup[StoredMessage] | None:
        """The answer about halves of the outbox row's message, without halves of other messages."""
        return None if self.halves is None else own_halves(self.halves, topic=self.topic, row=self.message)

    @cached_property
    def own_parked(self) -> Lookup[StoredMessage] | None:
        """The answer about parked copies of the outbox row's message, without copies of other messages."""
        return None if self.parked is None else own_halves(self.parked, topic=self.topic, row=self.message)

    @property
    def key_copy(self) -> StoredMessage | None:
        """The copy from which the business key is read: the first half, or a parked one."""
        found = [lookup for lookup in (self.own_halves, self.own_parked) if lookup is not None and lookup.is_found]
        return found[0].records[0] if found else None

    @property
    def effect_copy(self) -> StoredMessage | None:
        """The copy from which the key of an effect query is read: a committed copy, or else `key_copy`."""
        copies = self.own_copies
        return copies.records[0] if copies is not None and copies.is_found else self.key_copy

    @property
    def followed_siblings(self) -> tuple[str, ...]:
        """The siblings whose copies are looked for: the youngest ones."""
        found = self.siblings.unique_keys if self.siblings is not None else ()
        return tuple(key for key in found[:SIBLINGS_ASKED_MAX] if not key.startswith(NAMED_BY_PLACE))

    @property
    def former_names(self) -> Mapping[str, bytes]:
        """Former names of the effect -> the digest under each name. A consumer's plug-in up to 0.2.0 does not know keys
        of this form, so it recorded the effect under the offset message id of a committed copy."""
        if is_digits(self.unique_key) or self.own_copies is None:
            return {}
        named = (copy for copy in self.own_copies.records if copy.offset_message_id)
        return {copy.offset_message_id: copy.digest_under(copy.offset_message_id) for copy in named}

    @property
    def shows_first_half(self) -> bool:
        """Returns True if a broker still has the first half copy. Then the broker also has every copy that was made
        from it.

        A half that was put back or parked may be younger than a copy of the message. END on an older half copy delivers
        the message, but the broker forgets that END and asks until it parks the message
        (TransactionalMessageServiceImpl.fillOpRemoveMap). The delivered copy may have been deleted by age.
        """
        halves = self.own_halves
        return halves is not None and any(half.check_times is None for half in halves.records)

    def tells_former_names(self, written_ms: int, *, now_ms: int) -> bool:
        """Returns True if every copy that ever existed is still on a broker, so that no effect has an unknown former
        name.

        A copy of an older message may have been deleted by age, and then nobody knows its offset message id.
        """
        return is_digits(self.unique_key) or self.is_kept_since(written_ms, now_ms=now_ms)

    def given_perhaps(self, seen_ms: int, *, now_ms: int, sent_ms: int | None = None) -> Fact | None:
        """Returns a fact if a copy that nobody saw may have been delivered and then deleted by age. Such a copy matters
        only if nothing shows the effects of a group that a send would reach. None: no such copy ever existed.

        `seen_ms`: a time at which the message was known already, whatever its producer's clock says. `sent_ms`: when
        the message was sent again, perhaps to a broker without its half.
        """
        if all(self.of_group[p.group].shows_effects for p in self.reached):
            return None
        if (gone := self.gone_copy) is not None:
            return gone
        return COPY_MAY_BE_GONE() if self.may_lack_copies(seen_ms, now_ms=now_ms, sent_ms=sent_ms) else None

    @property
    def gone_copy(self) -> Fact | None:
        """Returns a fact if a committed copy that an earlier look saw is gone, and a group that a send would reach
        shows no effects. Whatever the age of the message: brokers with a full disk delete early."""
        unseen = [plan.group for plan in self.reached if not self.of_group[plan.group].shows_effects]
        is_gone = self.own_copies is not None and self.own_copies.is_absent
        return SEEN_COPY_GONE() if is_gone and unseen and self.saw_copy(unseen) else None

    @abstractmethod
    def saw_copy(self, groups: Sequence[str]) -> bool:
        """Returns True if an earlier look saw a committed copy that one of these groups may have been given."""

    def may_lack_copies(self, seen_ms: int, *, now_ms: int, sent_ms: int | None = None) -> bool:
        """Returns True if a copy that nobody saw may have been delivered and then deleted by age. The times are those
        of `given_perhaps`."""
        halves = self.own_halves.records if self.own_halves is not None else ()
        parked = self.own_parked.records if self.own_parked is not None else ()
        # A retried send leaves halves on two brokers, and either half may have been ended.
        first = {half.broker for half in halves if half.check_times is None}
        later = [copy for copy in (*halves, *parked) if copy.broker not in first]
        made_ms = [min(copy.born_timestamp_ms, copy.store_timestamp_ms, seen_ms) for copy in later]
        made_ms += [] if sent_ms is None else [sent_ms]
        is_half_gone = self.own_halves is not None and not self.own_halves.is_unknown and not first
        if is_half_gone and self.message is not None:
            made_ms.append(min(self.message.created_at_ms, seen_ms))
        return not all(self.is_kept_since(at_ms, now_ms=now_ms) for at_ms in made_ms)

    def is_kept_since(self, at_ms: int, *, now_ms: int) -> bool:
        """Returns True if brokers surely still have all messages that they stored since then."""
        return now_ms - at_ms <= min(self.retention_seconds / 4, SURELY_KEPT_SECONDS_MAX) * 1000

    @cached_property
    def given_ms(self) -> int | None:
        """The time at which groups were given the message: the store time of its newest committed copy, by its broker's
        clock. If the brokers may have lost a copy, the time of the outbox row. None: a first half copy without a
        committed copy shows that no group was given the message, or the answers do not suffice."""
        copies = self.own_copies
        if copies is not None and copies.is_found:
            return max(copy.store_timestamp_ms for copy in copies.records)
        may_be_gone = copies is not None and copies.is_absent and self._lacks_first_half
        return self.message.created_at_ms if may_be_gone and self.message is not None else None

    @cached_property
    def _lacks_first_half(self) -> bool:
        """Returns False also if the answers do not suffice."""
        halves, parked = self.own_halves, self.own_parked
        if halves is None or halves.is_unknown or self.shows_first_half:
            return False
        return halves.is_found or (parked is not None and not parked.is_unknown)

    def lies_before(self, plan: SubscriptionPlan) -> bool:
        """Returns True if groups surely were given the message before this group answers for messages.

        If brokers have no copy of a message any more, perhaps no group was given the message. Only a group that existed
        at that time proves that groups were given the message. If all groups came later, the topic or the ledger is
        new. Then the message counts for every group, unless a person has set the time.
        """
        given_ms = self.given_ms
        if given_ms is None or plan.answers_for(given_ms, skew_margin_seconds=self.skew_margin_seconds):
            return False
        copies = self.own_copies
        if not plan.is_since_noted or (copies is not None and copies.is_found):
            return True
        others = self.topic.subscriptions
        return any(one.answers_for(given_ms, skew_margin_seconds=self.skew_margin_seconds) for one in others)

    @property
    def tag(self) -> tuple[bool, str | None]:
        """(is known, tag) from the outbox. If no outbox is configured, any copy shows the tag."""
        message = self.message
        if message is not None or self.has_outbox:
            return message is not None, message.tag if message is not None else None
        for lookup in (self.own_copies, self.own_halves, self.own_parked):
            if lookup is not None and lookup.is_found:
                return True, lookup.records[-1].tag
        return False, None

    @cached_property
    def traceparent(self) -> str | None:
        """The span of the producer, from the outbox row or from a copy of its message. None: the span is not known."""
        commit = self.commit
        of_the_row = traceparent_of(commit.properties or {}) if commit is not None else None
        if of_the_row is not None:
            return of_the_row
        for lookup in (self.copies, self.halves, self.parked):
            for copy in lookup.records if lookup is not None else ():
                found = traceparent_of(copy.properties)
                # The digest is computed only if a span was found.
                if found is not None and difference(copy, self.message) is None:
                    return found
        return None

    @cached_property
    def missing(self) -> tuple[SubscriptionPlan, ...]:
        """The groups that take the message and whose effect is not known."""
        return self._lacking

    @cached_property
    def _lacking(self) -> tuple[SubscriptionPlan, ...]:
        known, tag = self.tag
        wanting = [p for p in self.plans if not known or p.accepts(tag)]
        return tuple(p for p in wanting if not self._has_effect(p.group))

    @property
    def reached(self) -> tuple[SubscriptionPlan, ...]:
        """The groups without a known effect that a copy of the message would reach."""
        return self._lacking

    @property
    def known_by_former_names(self) -> tuple[str, ...]:
        """Groups whose effect is recorded only under a former name. In such a group, each further copy would have a
        second effect."""
        again = {plan.group: self.of_group[plan.group].inbox_again for plan in self.plans}
        found = {group: lookup.records[0] for group, lookup in again.items() if lookup is not None and lookup.is_found}
        return tuple(sorted(group for group, row in found.items() if row.unique_key in self.former_names))

    def _has_effect(self, group: str) -> bool:
        answers = self.of_group[group]
        lookup = answers.inbox_again or answers.inbox  # the later answer also finds effects under former names
        return lookup is not None and lookup.is_found

    def position_of(self, plan: SubscriptionPlan) -> Verdict | Question:
        """Returns the group's position relative to the committed copies. Until that is known, returns the next
        question."""
        answers, copies = self.of_group[plan.group], self.own_copies
        short_of = reach(answers.positions, copies.records if copies is not None else ())
        # A dead letter proves that the group gave up, whatever its offset proves.
        is_in_doubt = short_of is Verdict.UNKNOWN and answers.positions is not None
        if short_of is not None and not is_in_doubt:
            return short_of
        # The inbox is asked again after the positions, because an effect is committed before its offset.
        if answers.has_inbox and answers.inbox_again is None:
            return Question.INBOX_AGAIN
        if answers.asks_effects and answers.inbox is None:
            return Question.EFFECT_QUERY
        effect = answers.inbox if answers.asks_effects else answers.inbox_again
        if effect is not None and not effect.is_absent:
            return Verdict.CONSUMED if effect.is_found else Verdict.UNKNOWN
        if answers.copies is None:
            return Question.GROUP_COPIES
        own = {name: of_row(copies, self.message) for name, copies in answers.copies.items()}
        verdict = group_position(answers.positions, own)
        if is_in_doubt:
            return verdict if verdict is Verdict.DEAD_LETTERED else Verdict.UNKNOWN
        # For a group that does not answer for the message, redelivery need not be known (3.2.6 never shows it).
        is_past = verdict in {Verdict.DELIVERED_NOT_APPLIED, Verdict.UNKNOWN}
        if is_past and answers.shows_effects and self.lies_before(plan):
            return Verdict.BEFORE_SINCE
        if verdict is not Verdict.DELIVERED_NOT_APPLIED:
            return verdict
        if answers.consume_mode is None:
            return Question.CONSUME_MODE
        return verdict if answers.consume_mode is ConsumeMode.PULL else Verdict.UNKNOWN

    def plans_asked(self, question: Question) -> tuple[SubscriptionPlan, ...]:
        """Returns the groups that a question is about."""
        match question:
            case Question.INBOX:
                return tuple(p for p in self.plans if self.of_group[p.group].has_inbox)
            case Question.EFFECT_QUERY:
                of = self.of_group
                return tuple(p for p in self.plans if of[p.group].asks_effects and of[p.group].inbox is None)
            case Question.INBOX_AGAIN | Question.GROUP_COPIES | Question.CONSUME_MODE:
                return tuple(p for p in self.missing if self.position_of(p) is question)
            case _:
                return self.plans

    def with_group_answers(self: F, name: str, answers: Mapping[str, Any]) -> F:
        """Returns the file with one more answer about some groups."""
        of_group = {g: replace(a, **{name: answers[g]}) if g in answers else a for g, a in self.of_group.items()}
        return replace(self, of_group=of_group)

    @cached_property
    def damage(self) -> Fact | None:
        """The unreadable value of a witness, if it alone prevents an answer. Otherwise None."""
        groups = self.of_group.values()
        asked: tuple[Lookup[InboxRow] | Lookup[OutboxRow] | Lookup[StoredMessage] | None, ...] = (
            *(answers.inbox_again or answers.inbox for answers in groups),
            self.outbox,
            self.own_copies,
            self.own_halves,
            self.own_parked,
            *(of_row(copies, self.message) for answers in groups for copies in (answers.copies or {}).values()),
        )
        return next((lookup.damage for lookup in asked if lookup is not None and lookup.damage is not None), None)

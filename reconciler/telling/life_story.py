"""The life of one message in the order of time, from all witnesses, for `reconciler explain`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState
from reconciler.contract.verdicts import LOSSES, MEANINGS, QUARANTINING, Undecided, Verdict, what_ends
from reconciler.policy.evidence import (
    Commit,
    InboxRow,
    Lookup,
    OutboxRow,
    Presence,
    Recorded,
    StoredMessage,
    as_foreign,
)
from reconciler.policy.inquiry.delivery import double_effect, late_effects_ms, message_of, other_content
from reconciler.policy.judging.suspect import TAKEN_BACK, undecided_by
from reconciler.policy.ports.ledger import DISMISSED_AT_MS, Candidate, HeldTopic
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.telling.life_events import (
    LifeEvent,
    action_event,
    copy_events,
    history_events,
    inbox_events,
    kind_of_copy,
    ledger_events,
    outbox_events,
)
from reconciler.telling.ports.reports import LedgerLife

# What the witnesses say:
SAYS = Code("story.says", lines=Field.FACTS)
NO_ANNOUNCEMENT = Code("story.no-announcement")
NOTED_BY_OUTBOX = Code("story.noted-by-outbox")
WAITS_IN_REDIS = Code("story.waits-in-redis")
TAKEN_BY_ROUND = Code("story.taken-by-round")
NOT_ASKED = Code("story.not-asked")
TOPIC_NOT_CONFIGURED = Code("story.topic-not-configured")
NOT_IN_REDIS = Code("story.not-in-redis")
NOT_TAKEN_YET = Code("story.not-taken-yet")
PENDING_SINCE = Code("story.pending-since", at_ms=Field.TIME)
CONSUMPTION_RECORDED = Code("story.consumption-recorded")
LEDGER_PENDING = Code("story.ledger-pending", number=Field.NUMBER)
LEDGER_LEFT = Code("story.ledger-left", state=Field.NAME)
SILENT = Code("story.silent", witness=Field.NAME, why=Field.FACT)
SILENT_BROKERS = Code("story.silent-brokers", copies=Field.NAMES, why=Field.FACT)

# What comes next: one sentence for each subscription.
_OUTLOOK: Mapping[str, Field] = {"subscription": Field.NAME}
TWO_EFFECTS = Code("story.two-effects", **_OUTLOOK, why=Field.FACT, ending=Field.FACT)
EFFECT_OF_ANOTHER = Code("story.effect-of-another", **_OUTLOOK, why=Field.FACT, ending=Field.FACT)
INCOMPLETE = Code("story.incomplete", **_OUTLOOK, why=Field.FACT, meaning=Field.FACT, ending=Field.FACT)
EFFECT_AFTER_DISMISSAL = Code("story.effect-after-dismissal", **_OUTLOOK, dismissal=Field.FACT, ending=Field.FACT)
DONE = Code("story.done", **_OUTLOOK)
ROLLED_BACK = Code("story.rolled-back", **_OUTLOOK)
NEVER_JUDGED = Code("story.never-judged", **_OUTLOOK)
IS_DISMISSED = Code("story.is-dismissed", **_OUTLOOK, dismissal=Field.FACT)
DISMISSED = Code("story.dismissed", verdict=Field.NAME)
DISMISSED_BY = Code(
    "story.dismissed-by", group=Field.NAME, by=Field.NAME, at_ms=Field.TIME, verdict=Field.NAME, why=Field.TEXT
)
PERSON_MUST_LOOK = Code("story.person-must-look", **_OUTLOOK, verdict=Field.NAME, meaning=Field.FACT, ending=Field.FACT)
WAITS_FOR_WORKER = Code("story.waits-for-worker", **_OUTLOOK, verdict=Field.NAME, unique_key=Field.NAME)
SETTLED_AS = Code("story.settled-as", **_OUTLOOK, verdict=Field.NAME)
GOES_ON = Code("story.goes-on", **_OUTLOOK, verdict=Field.NAME, meaning=Field.FACT, ending=Field.FACT)
#: Meaning and ending of UNKNOWN if its group was handed the message.
HANDED_OUT = Code("story.handed-out")
EFFECT_ENDS_IT = Code("story.effect-ends-it")
NOT_REPAIRED = Code(
    "story.not-repaired",
    **_OUTLOOK, verdict=Field.NAME, topic=Field.NAME, brakes=Field.NAMES, meaning=Field.FACT,
)  # fmt: skip
#: Outlooks of messages that wait for a person.
NEEDS_A_PERSON = frozenset({TWO_EFFECTS, EFFECT_OF_ANOTHER, INCOMPLETE, EFFECT_AFTER_DISMISSAL, PERSON_MUST_LOOK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """The present answer of one witness about the key."""

    #: One of: outbox, announcement, redis, broker, inbox.
    witness: str
    #: The subscription, or the topic and the kind of copy. Empty if only one witness has this name.
    about: str
    presence: Presence
    #: The answers of the witness.
    detail: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """The next step of rounds for the message."""

    #: verdict: a round asks the witnesses again. repair: a round continues the repair.
    what: Literal["verdict", "repair"]
    #: The subscription of a verdict. For a repair: the group, or EVERY_GROUP.
    about: str
    #: The earliest time, by the ledger's clock.
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfEffect:
    """An effect that may be half, and the commands that accept or delete its inbox row.

    The commands need a login that may write, because the login of inbox_url only reads.
    """

    subscription: Subscription
    unique_key: str

    def as_dict(self) -> dict[str, str]:
        """Returns topic, group and the commands as plain data for JSON."""
        return {
            "topic": self.subscription.topic,
            "group": self.subscription.group,
            "accept": self._command("accept", self.unique_key),
            "delete": self._command("delete", self.unique_key),
            "accept_all": self._command("accept", "--all"),
            "delete_all": self._command("delete", "--all"),
        }

    def _command(self, ending: str, what: str) -> str:
        of = f"--topic {shlex.quote(self.subscription.topic)} --group {shlex.quote(self.subscription.group)}"
        return f'reconciler incomplete {ending} {what} {of} --url @FILE --reason "..."'


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStory:
    """All answers about one unique key, and the conclusions from them."""

    unique_key: str
    events: tuple[LifeEvent, ...]
    #: Witnesses that gave no answer, so that the story may be incomplete.
    silent: tuple[Fact, ...]
    #: One line for each dependency that is away now.
    away: tuple[Fact, ...]
    #: One sentence for each subscription about the message's progress and its next step. Empty for a key without
    #: events.
    outlook: tuple[Fact, ...]
    #: The answers of all witnesses, in the order in which a message passes them.
    testimonies: tuple[Testimony, ...] = ()
    upcoming: tuple[Upcoming, ...] = ()
    #: Subscriptions without effect and verdict, to which the message may be on its way.
    unjudged: tuple[str, ...] = ()
    #: Configured topics of the message, as the outbox or a verdict names them.
    topics: tuple[str, ...] = ()
    #: The state of the ledger's rows as one word. An act that carries this word is refused if the rows have changed.
    seen: str = ""
    #: Effects of the message that may be half.
    incomplete: tuple[HalfEffect, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if at least one witness knows the key."""
        return bool(self.events)

    @property
    def is_at_rest(self) -> bool:
        """True if rounds have nothing left to do for the message, and every witness has answered."""
        return not (self.upcoming or self.unjudged or self.away or self.silent)

    @property
    def needs_a_person(self) -> bool:
        """True if only a person can end the work on the message for at least one subscription."""
        return any(line.code in NEEDS_A_PERSON for line in self.outlook)

    @property
    def is_dismissed(self) -> bool:
        """True if a person has dismissed the message for a group in which it has had no effect since."""
        return any(line.code is IS_DISMISSED for line in self.outlook)


def life_story_of(
    unique_key: str,
    *,
    outbox: Lookup[OutboxRow],
    copies: Mapping[str, Lookup[StoredMessage]],
    inboxes: Mapping[Subscription, Lookup[InboxRow]],
    ledger: LedgerLife,
    places: Mapping[Subscription, Lookup[KeyPlaces]] | None = None,
    holds: Sequence[HeldTopic] = (),
    history: Sequence[tuple[str, Mapping[str, Any]]] = (),
    history_problems: Sequence[str] = (),
    away: Sequence[Fact] = (),
    has_outbox: bool = True,
) -> LifeStory:
    """Returns the life of a message from the answers of all witnesses.

    `copies`: names are "<where> half", "<where> committed", "<where> parked", "<where> retry" or "<where> dead-letter".
    `places`: the key's places in Redis, for each subscription about which Redis was asked.

    `history`: (name of a stream, row of this stream). contract/history_row.py describes the rows. `has_outbox`: False
    if commit queries prove commits instead of outboxes. Then no answer of an outbox is missing.
    """
    row = message_of(outbox)
    by_kind = {name: list(copy_events(name, lookup.records, row)) for name, lookup in copies.items()}
    # Within one millisecond, events keep this order, in which causes come before effects.
    events = [
        *(event for name, of_kind in by_kind.items() if kind_of_copy(name) == "half" for event in of_kind),
        *outbox_events(outbox.records),
        *(event for name, of_kind in by_kind.items() if kind_of_copy(name) != "half" for event in of_kind),
        *(event for lookup in inboxes.values() for event in inbox_events(lookup, row)),
        *history_events(history),
        *ledger_events(ledger),
        *(action_event(action) for action in ledger.actions),
    ]
    silent = [_silent("outbox", outbox.reason)] if outbox.is_unknown and has_outbox else []
    unknown: dict[Fact, list[str]] = {}  # one reason, such as silent name servers, may hide every kind of copy
    for name, lookup in copies.items():
        if lookup.is_unknown:
            unknown.setdefault(lookup.reason, []).append(name)
    silent += [SILENT_BROKERS(copies=tuple(names), why=reason) for reason, names in unknown.items()]
    silent += [_silent(f"inbox of {s}", lookup.reason) for s, lookup in inboxes.items() if _is_silent(lookup)]
    of_redis = dict.fromkeys(lookup.reason for lookup in (places or {}).values() if lookup.is_unknown)
    silent += of_redis
    silent += [_silent("history", as_foreign(problem)) for problem in history_problems]
    return LifeStory(
        unique_key=unique_key,
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        silent=tuple(silent),
        away=tuple(away),
        outlook=tuple(_outlook(unique_key, inboxes, ledger, row, holds)) if events else (),
        testimonies=tuple(_testimonies(outbox, copies, inboxes, ledger, places or {})),
        upcoming=tuple(_upcoming(ledger)),
        unjudged=tuple(_unjudged(inboxes, ledger, row)) if events else (),
        topics=tuple(sorted(_topics(ledger, row) & {subscription.topic for subscription in inboxes})),
        seen=ledger.seen,
        incomplete=tuple(
            HalfEffect(subscription=subscription, unique_key=unique_key)
            for subscription, lookup in inboxes.items()
            if lookup.incomplete is not None
        ),
    )


def _silent(witness: str, why: Fact) -> Fact:
    return SILENT(witness=witness, why=why)


def _says(lines: Sequence[Fact]) -> Fact:
    return SAYS(lines=tuple(lines))


def _is_silent(inbox: Lookup[InboxRow]) -> bool:
    """Returns True if an inbox gave no answer. An inbox with an effect that may be half has answered."""
    halves = [a.is_incomplete for a in inbox.answers if a.presence is Presence.UNKNOWN]
    return inbox.is_unknown and not (halves and all(halves))


def _testimonies(
    outbox: Lookup[OutboxRow],
    copies: Mapping[str, Lookup[StoredMessage]],
    inboxes: Mapping[Subscription, Lookup[InboxRow]],
    ledger: LedgerLife,
    places: Mapping[Subscription, Lookup[KeyPlaces]],
) -> Iterator[Testimony]:
    yield Testimony(witness="outbox", about="", presence=outbox.presence, detail=outbox.reason)
    # No witness is asked for announcements, so a missing announcement is never proved.
    told = list(_told_of_announcement(outbox, ledger, places))
    yield Testimony(
        witness="announcement",
        about="",
        presence=Presence.FOUND if told else Presence.UNKNOWN,
        detail=_says(told) if told else NO_ANNOUNCEMENT(),
    )
    candidates = {candidate.subscription: candidate for candidate in ledger.candidates}
    for subscription in inboxes:
        yield _of_redis(subscription, places.get(subscription), candidates.get(subscription))
    for name, copy in copies.items():
        yield Testimony(witness="broker", about=name, presence=copy.presence, detail=copy.reason)
    for subscription, inbox in inboxes.items():
        yield Testimony(witness="inbox", about=str(subscription), presence=inbox.presence, detail=inbox.reason)
    if not inboxes:
        why = TOPIC_NOT_CONFIGURED()
        yield from (Testimony(witness=w, about="", presence=Presence.UNKNOWN, detail=why) for w in _OF_SUBSCRIPTIONS)


_OF_SUBSCRIPTIONS = ("redis", "broker", "inbox")


def _told_of_announcement(
    outbox: Lookup[OutboxRow], ledger: LedgerLife, places: Mapping[Subscription, Lookup[KeyPlaces]]
) -> Iterator[Fact]:
    """Yields one line for each proof that the message was announced."""
    if any(row.announced_at_ms is not None for row in outbox.records):
        yield NOTED_BY_OUTBOX()
    seen = [place for lookup in places.values() for place in lookup.records]
    if any(place.is_announced for place in seen):
        yield WAITS_IN_REDIS()
    if ledger.candidates or any(place.first_seen_ms is not None for place in seen):
        yield TAKEN_BY_ROUND()


def _of_redis(subscription: Subscription, places: Lookup[KeyPlaces] | None, candidate: Candidate | None) -> Testimony:
    """Returns the places of the key in Redis, and the state of its candidate. After an outage these may differ."""
    presence, told = Presence.UNKNOWN, [NOT_ASKED()]
    if places is not None:
        presence, told = places.presence, [places.reason]
    if presence is Presence.ABSENT:
        told = [NOT_IN_REDIS()]
    for place in places.records if places is not None else ():
        told = [NOT_TAKEN_YET()] if place.is_announced else []
        told += [] if place.first_seen_ms is None else [PENDING_SINCE(at_ms=place.first_seen_ms)]
        told += [CONSUMPTION_RECORDED()] if place.is_consumed else []
    if candidate is not None and candidate.state is CandidateState.OPEN:
        told.append(LEDGER_PENDING(number=candidate.attempts))
    elif candidate is not None:
        told.append(LEDGER_LEFT(state=str(candidate.state)))
    return Testimony(witness="redis", about=str(subscription), presence=presence, detail=_says(told))


def _topics(ledger: LedgerLife, row: Recorded | None) -> set[str]:
    return {candidate.subscription.topic for candidate in ledger.candidates} | (
        {row.topic} if row is not None else set()
    )


def _upcoming(ledger: LedgerLife) -> Iterator[Upcoming]:
    for candidate in ledger.candidates:
        if candidate.state is CandidateState.OPEN:
            yield Upcoming(what="verdict", about=str(candidate.subscription), at_ms=candidate.next_at_ms)
    for repair in ledger.repairs:
        if repair.state not in (RepairState.DONE, RepairState.FAILED):
            yield Upcoming(what="repair", about=repair.scope, at_ms=repair.next_at_ms)


def _unjudged(
    inboxes: Mapping[Subscription, Lookup[InboxRow]], ledger: LedgerLife, row: Recorded | None
) -> Iterator[str]:
    if row is not None and not isinstance(row, Commit):
        return
    judged = {candidate.subscription for candidate in ledger.candidates}
    yield from (str(s) for s, lookup in inboxes.items() if not lookup.is_found and s not in judged)


def _outlook(
    unique_key: str,
    inboxes: Mapping[Subscription, Lookup[InboxRow]],
    ledger: LedgerLife,
    row: Recorded | None,
    holds: Sequence[HeldTopic],
) -> Iterator[Fact]:
    candidates = {candidate.subscription: candidate for candidate in ledger.candidates}
    for subscription, lookup in inboxes.items():
        candidate = candidates.get(subscription)
        dismissal = None if candidate is None else _dismissal(candidate)
        of = str(subscription)
        if (doubled := double_effect(lookup)) is not None:
            yield TWO_EFFECTS(subscription=of, why=doubled, ending=what_ends(Verdict.COLLISION, unique_key))
        elif (other := other_content(lookup, row, topic=subscription.topic)) is not None:
            yield EFFECT_OF_ANOTHER(subscription=of, why=other, ending=what_ends(Verdict.COLLISION, unique_key))
        elif (halfway := lookup.incomplete) is not None:
            meaning, ending = MEANINGS[Verdict.INCOMPLETE](), what_ends(Verdict.INCOMPLETE, unique_key)
            yield INCOMPLETE(subscription=of, why=halfway, meaning=meaning, ending=ending)
        elif lookup.is_found and candidate and dismissal and _is_second(candidate, lookup):
            ending = what_ends(Verdict.COLLISION, unique_key)
            yield EFFECT_AFTER_DISMISSAL(subscription=of, dismissal=dismissal, ending=ending)
        elif lookup.is_found:
            yield DONE(subscription=of)
        elif candidate is None and row is not None and not isinstance(row, Commit):
            yield ROLLED_BACK(subscription=of)
        elif candidate is None:
            yield NEVER_JUDGED(subscription=of)
        elif dismissal:
            yield IS_DISMISSED(subscription=of, dismissal=dismissal)
        else:
            yield _next(candidate, ledger, holds)


def _waiting_for_workers(ledger: LedgerLife) -> set[str]:
    """Returns the groups from whose replay workers the message can be taken back: no worker has taken the hand-over
    yet.

    As long as a repair for every group is unfinished, there is no such group.
    """
    rows = {repair.scope: repair for repair in ledger.repairs}
    of_all = rows.pop(EVERY_GROUP, None)
    if of_all is not None and of_all.state not in FINISHED_REPAIRS:
        return set()
    return {scope for scope, row in rows.items() if row.state is RepairState.OPEN and row.token is None}


def _is_second(candidate: Candidate, inbox: Lookup[InboxRow]) -> bool:
    """Returns True if an effect came after the dismissal of the key, as far as the reconciler can tell."""
    return candidate.took_effect_dismissed or bool(late_effects_ms(candidate, inbox))


def _dismissal(candidate: Candidate) -> Fact | None:
    """Returns the fact who dismissed the key, when and why. None: nobody dismissed the key."""
    by, why = (candidate.evidence.get(name) for name in ("dismissed_by", "dismissed_because"))
    if not (candidate.is_dismissed or candidate.took_effect_dismissed):
        return None
    if not by:
        return DISMISSED(verdict=str(candidate.verdict))
    at_ms, before = (candidate.evidence.get(name) for name in (DISMISSED_AT_MS, TAKEN_BACK))
    is_woken = candidate.took_effect_dismissed
    verdict = before.get("verdict") if is_woken and isinstance(before, Mapping) else candidate.verdict
    return DISMISSED_BY(
        group=candidate.subscription.group,
        by=str(by),
        at_ms=at_ms if type(at_ms) is int else candidate.updated_at_ms,
        verdict=str(verdict),
        why=str(why),
    )


def _next(candidate: Candidate, ledger: LedgerLife, holds: Sequence[HeldTopic]) -> Fact:
    """Returns the fact for which a key without an effect waits."""
    of, topic, group = str(candidate.subscription), candidate.subscription.topic, candidate.subscription.group
    verdict, meaning, unique_key = Verdict(candidate.verdict), MEANINGS[candidate.verdict](), candidate.unique_key
    failed = {repair.scope for repair in ledger.repairs if repair.state is RepairState.FAILED}
    if group in _waiting_for_workers(ledger):
        return WAITS_FOR_WORKER(subscription=of, verdict=str(verdict), unique_key=unique_key)
    if candidate.state is CandidateState.QUARANTINED or failed & {EVERY_GROUP, group}:
        ending = what_ends(verdict if verdict in QUARANTINING else Verdict.QUARANTINED, unique_key)
        return PERSON_MUST_LOOK(subscription=of, verdict=str(verdict), meaning=meaning, ending=ending)
    if candidate.state is CandidateState.SETTLED:
        return SETTLED_AS(subscription=of, verdict=str(verdict))
    kinds = sorted(hold.kind.value for hold in holds if hold.topic == topic)
    if verdict in LOSSES and kinds:
        brakes = tuple(kinds)
        return NOT_REPAIRED(subscription=of, verdict=str(verdict), topic=topic, brakes=brakes, meaning=meaning)
    ending = what_ends(verdict, unique_key)
    if verdict is Verdict.UNKNOWN and undecided_by(candidate.evidence)[0] is Undecided.HANDED_OUT:
        meaning, ending = HANDED_OUT(), EFFECT_ENDS_IT()
    return GOES_ON(subscription=of, verdict=str(verdict), meaning=meaning, ending=ending)

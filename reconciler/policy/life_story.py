"""The life of one message in time order, from all witnesses: what `reconciler explain` tells. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from reconciler.clock import utc_text
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, OutboxState, RepairState
from reconciler.contract.verdicts import LOSSES, MEANINGS, Verdict
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Presence, StoredMessage
from reconciler.policy.inquiry.delivery import difference, double_effect, late_effects_ms, other_content, row_of
from reconciler.policy.judging.suspect import TAKEN_BACK
from reconciler.policy.ports import DISMISSED_AT_MS, Candidate, HeldTopic, KeyPlaces, LedgerLife, OperatorAction, Repair


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEvent:
    """One thing that happened to the message."""

    #: Milliseconds UTC by the clock of the witness; clocks of different witnesses may differ by the skew margin.
    at_ms: int
    #: outbox, broker, inbox, ledger, history, operator.
    witness: str
    what: str
    #: Numbers and names behind it, JSON-ready.
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What one witness says of the key now."""

    #: outbox, announcement, redis, broker or inbox.
    witness: str
    #: Which of them: a subscription, or a topic and a kind of copy; empty: there is one.
    about: str
    presence: Presence
    #: The answers behind it.
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """What comes next by itself."""

    #: verdict: it is asked about again; repair: it is gone on with.
    what: Literal["verdict", "repair"]
    #: A subscription; of a repair the group, or EVERY_GROUP.
    about: str
    #: Not before this, by the ledger's clock.
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfEffect:
    """An effect that may be half, and the commands that end its row. Who runs them has the inbox owner's URL: the login
    of inbox_url only reads."""

    subscription: Subscription
    unique_key: str

    def as_dict(self) -> dict[str, str]:
        """Topic, group, and a command each."""
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
    """What is known of one unique key."""

    unique_key: str
    events: tuple[LifeEvent, ...]
    #: Witnesses that could not tell: the story may be incomplete.
    silent: tuple[str, ...]
    #: Dependencies that are away now, one line each.
    away: tuple[str, ...]
    #: One sentence a subscription: how far the message is and what comes next. None of a key without events.
    outlook: tuple[str, ...]
    #: The witnesses side by side, in the order of a message's way.
    testimonies: tuple[Testimony, ...] = ()
    upcoming: tuple[Upcoming, ...] = ()
    #: Subscriptions of which no effect is seen and no verdict: it may be on its way.
    unjudged: tuple[str, ...] = ()
    #: Configured topics that the outbox or a verdict names.
    topics: tuple[str, ...] = ()
    #: What the ledger's rows say, as one word: an act that carries it is refused where they say something else by then.
    seen: str = ""
    #: Effects of it that may be half.
    incomplete: tuple[HalfEffect, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: complete; 3: a witness that is away may know more; 2: no witness knows the key."""
        if self.away:
            return 3
        return 0 if self.is_known else 2

    @property
    def is_known(self) -> bool:
        """Whether at least one witness knows the key."""
        return bool(self.events)

    @property
    def is_at_rest(self) -> bool:
        """Nothing comes next by itself, and every witness has answered."""
        return not (self.upcoming or self.unjudged or self.away or self.silent)

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "unique_key": self.unique_key,
            "seen": self.seen,
            "known": self.is_known,
            "events": [asdict(event) for event in self.events],
            "silent": list(self.silent),
            "away": list(self.away),
            "outlook": list(self.outlook),
            "incomplete": [effect.as_dict() for effect in self.incomplete],
        }


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
    away: Sequence[str] = (),
) -> LifeStory:
    """Puts the answers of all witnesses in order.

    `history` are rows of its streams (contract/history_row.py), each with its stream's name.
    `copies` are named "<where> half", "<where> committed", "<where> parked", "<where> retry" or "<where> dead-letter".
    `places`: what Redis has; a subscription that it lacks was not asked about.
    """
    row = row_of(outbox)
    by_kind = {name: list(_copy_events(name, lookup.records, row)) for name, lookup in copies.items()}
    # Within one millisecond: in the order in which things cause each other.
    events = [
        *(event for name, of_kind in by_kind.items() if _kind(name) == "half" for event in of_kind),
        *_outbox_events(outbox.records),
        *(event for name, of_kind in by_kind.items() if _kind(name) != "half" for event in of_kind),
        *(event for lookup in inboxes.values() for event in _inbox_events(lookup, row)),
        *_history_events(history),
        *_ledger_events(ledger),
        *(_action_event(action) for action in ledger.actions),
    ]
    silent = [f"outbox: {outbox.reason}"] if outbox.is_unknown else []
    unknown: dict[str, list[str]] = {}  # one reason, name servers that are away, may keep back every kind of copy
    for name, lookup in copies.items():
        if lookup.is_unknown:
            unknown.setdefault(lookup.reason, []).append(name)
    silent += [f"broker, {', '.join(names)}: {reason}" for reason, names in unknown.items()]
    silent += [f"inbox of {s}: {lookup.reason}" for s, lookup in inboxes.items() if _is_silent(lookup)]
    silent += dict.fromkeys(lookup.reason for lookup in (places or {}).values() if lookup.is_unknown)
    silent += [f"history: {problem}" for problem in history_problems]
    return LifeStory(
        unique_key=unique_key,
        events=tuple(sorted(events, key=lambda event: event.at_ms)),
        silent=tuple(silent),
        away=tuple(away),
        outlook=tuple(_outlook(inboxes, ledger, row, holds)) if events else (),
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


def _is_silent(inbox: Lookup[InboxRow]) -> bool:
    """An inbox that has half an effect has answered, though nobody can tell whether it is whole."""
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
    # Announcements are not looked up: nothing proves that there was none.
    told = list(_told_of_announcement(outbox, ledger, places))
    yield Testimony(
        witness="announcement",
        about="",
        presence=Presence.FOUND if told else Presence.UNKNOWN,
        detail="; ".join(told) or "neither the outbox, nor Redis, nor a verdict tells of one",
    )
    candidates = {candidate.subscription: candidate for candidate in ledger.candidates}
    for subscription in inboxes:
        yield _of_redis(subscription, places.get(subscription), candidates.get(subscription))
    for name, copy in copies.items():
        yield Testimony(witness="broker", about=name, presence=copy.presence, detail=copy.reason)
    for subscription, inbox in inboxes.items():
        yield Testimony(witness="inbox", about=str(subscription), presence=inbox.presence, detail=inbox.reason)
    if not inboxes:
        why = "not asked: no [[subscriptions]] section has its topic"
        yield from (Testimony(witness=w, about="", presence=Presence.UNKNOWN, detail=why) for w in _OF_SUBSCRIPTIONS)


_OF_SUBSCRIPTIONS = ("redis", "broker", "inbox")


def _told_of_announcement(
    outbox: Lookup[OutboxRow], ledger: LedgerLife, places: Mapping[Subscription, Lookup[KeyPlaces]]
) -> Iterator[str]:
    """What proves that it was announced, one line each."""
    if any(row.announced_at_ms is not None for row in outbox.records):
        yield "the outbox has noted it"
    seen = [place for lookup in places.values() for place in lookup.records]
    if any(place.is_announced for place in seen):
        yield "it waits in Redis for the next round"
    if ledger.candidates or any(place.first_seen_ms is not None for place in seen):
        yield "a round has taken it"


def _of_redis(subscription: Subscription, places: Lookup[KeyPlaces] | None, candidate: Candidate | None) -> Testimony:
    """What Redis has, and beside it what the ledger has of the same key: after an outage they differ."""
    presence, told = Presence.UNKNOWN, ["not asked"]
    if places is not None:
        presence, told = places.presence, [places.reason]
    if presence is Presence.ABSENT:
        told = ["neither announced, nor pending, nor consumed in the last rounds"]
    for place in places.records if places is not None else ():
        told = ["announced, taken by no round yet"] if place.is_announced else []
        told += [] if place.first_seen_ms is None else [f"pending since {utc_text(place.first_seen_ms)}"]
        told += ["its consumption is recorded"] if place.is_consumed else []
    if candidate is not None and candidate.state is CandidateState.OPEN:
        told.append(f"in the ledger: pending, {candidate.attempts} verifications")
    elif candidate is not None:
        told.append(f"in the ledger: left pending as {candidate.state}")
    return Testimony(witness="redis", about=str(subscription), presence=presence, detail="; ".join(told))


def _topics(ledger: LedgerLife, row: OutboxRow | None) -> set[str]:
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
    inboxes: Mapping[Subscription, Lookup[InboxRow]], ledger: LedgerLife, row: OutboxRow | None
) -> Iterator[str]:
    if row is not None and row.state is OutboxState.ROLLED_BACK:
        return
    judged = {candidate.subscription for candidate in ledger.candidates}
    yield from (str(s) for s, lookup in inboxes.items() if not lookup.is_found and s not in judged)


def _outbox_events(rows: Iterable[OutboxRow]) -> Iterator[LifeEvent]:
    for row in rows:
        about: dict[str, object] = {"topic": row.topic, "producer_group": row.producer_group, "tag": row.tag}
        about["state"] = row.state.value
        if row.state is OutboxState.ROLLED_BACK:
            yield _event(
                row.created_at_ms, "outbox", "a tombstone was written: the transaction counts as rolled back", about
            )
            continue
        half = {"broker": row.half_broker, "commit_log_offset": row.half_commit_log_offset}
        about |= {"business_id": row.business_id, "half": half}
        yield _event(row.created_at_ms, "outbox", "recorded in the local transaction, which has committed", about)
        if row.announced_at_ms is not None:
            yield _event(row.announced_at_ms, "outbox", "announced on the unique-key topic", {})
        if row.settled_at_ms is not None:
            yield _event(row.settled_at_ms, "outbox", "settled: every inbox has it", {})


def _copy_events(name: str, copies: Iterable[StoredMessage], row: OutboxRow | None) -> Iterator[LifeEvent]:
    words = {
        "half": "half message stored",
        "committed": "visible to consumers",
        "parked": "parked: the broker gave up asking",
        "retry": "put into the retry topic",
        "dead-letter": "put into the dead-letter topic",
    }
    kind = _kind(name)
    for copy in copies:
        what = words[kind]
        if kind == "half" and copy.check_times:
            what = f"half put back before check-back number {copy.check_times}"
        why = difference(copy, row)
        if why is not None:
            what = f"{what}, but of another message: {why}"
        evidence = {
            "topic": copy.topic,
            "broker": copy.broker,
            "queue": copy.queue_id,
            "queue_offset": copy.queue_offset,
            "commit_log_offset": copy.commit_log_offset,
        }
        if kind == "committed" and copy.prepared_transaction_offset:
            evidence["from_half_at"] = copy.prepared_transaction_offset
        yield _event(copy.store_timestamp_ms, "broker", what, evidence)


def _kind(name: str) -> str:
    return name.rpartition(" ")[2]


def _inbox_events(inbox: Lookup[InboxRow], row: OutboxRow | None) -> Iterator[LifeEvent]:
    for effect in inbox.records:
        evidence: dict[str, object] = {"group": effect.group, "source": effect.source}
        what = f"took effect in {effect.group}"
        other = other_content(inbox, row)
        if other is not None:
            what = f"another message of this key {what}: {other}"
        if effect.duplicate_of is not None:
            what = f"stood for by another message of the same business id in {effect.group}"
            evidence["duplicate_of"] = effect.duplicate_of
        yield _event(effect.applied_at_ms, "inbox", what, evidence)


def _ledger_events(ledger: LedgerLife) -> Iterator[LifeEvent]:
    for stored in ledger.rounds:
        done = stored.done
        yield _event(
            done.at_ms,
            "ledger",
            f"first seen unmatched for {done.shard.subscription} in round {done.generation}",
            {"shard": done.shard.number, "epoch": done.epoch, "void": stored.is_void},
        )
    for candidate in ledger.candidates:
        evidence = dict(candidate.evidence) | {"attempts": candidate.attempts, "state": candidate.state.value}
        if candidate.loss_verdict is not None:
            evidence["loss_verdict"] = candidate.loss_verdict.value
        yield _event(
            candidate.updated_at_ms, "ledger", f"verdict for {candidate.subscription}: {candidate.verdict}", evidence
        )
    for repair in ledger.repairs:
        yield from _repair_events(repair)


def _repair_events(repair: Repair) -> Iterator[LifeEvent]:
    """The outcome, or the present state, is shown with the last event of the repair."""
    reach = "every group" if repair.scope == EVERY_GROUP else repair.scope
    present: dict[str, object] = {"state": repair.state.value, "attempts": repair.attempts, "answer": repair.answer}
    sent = {"rung": repair.rung.value, "target": repair.target}
    is_sent, is_done = repair.sent_at_ms is not None, repair.done_at_ms is not None
    if not repair.is_made_by_dismissal:
        yield _event(
            repair.created_at_ms, "ledger", f"repair opened for {reach}", {} if is_sent or is_done else present
        )
    if repair.sent_at_ms is not None:
        what = f"repair sent by {repair.rung} for {reach}"
        yield _event(repair.sent_at_ms, "ledger", what, sent if is_done else {**sent, **present})
    if repair.done_at_ms is not None:
        what = f"repair for {reach} closed by the dismissal" if repair.is_dismissed else f"repair verified for {reach}"
        yield _event(repair.done_at_ms, "ledger", what, present)


def _action_event(action: OperatorAction) -> LifeEvent:
    """An action by hand. Without an end it is shown as under way or interrupted."""
    intent = action.intent
    result = "under way, or its process died" if action.ended_at_ms is None else action.result
    evidence = {"by": intent.by, "topic": intent.topic, "group": intent.group, "detail": intent.detail or None}
    return _event(action.started_at_ms, "operator", f"{intent.command} by hand: {result}", evidence)


def _history_events(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[LifeEvent]:
    """What rounds did with the key, in the order in which one round does it; the ledger has only its present state.

    A verdict that rounds repeat for the same reason, with nothing else between, is shown once: how often, until when.
    """
    events: list[LifeEvent] = []
    last_verdict: dict[str, int] = {}  # subscription -> index of its last verdict in `events`
    for stream, row in sorted(rows, key=_in_order):
        what_and_evidence = _history_event(stream, row)
        if what_and_evidence is None:
            continue
        event = _event(row["at_ms"], "history", *what_and_evidence)
        if stream != "verdict":
            last_verdict.clear()
        elif (at := last_verdict.get(group := _subscription(row))) is not None and _says_the_same(events[at], event):
            times = {"repeated": 1 + int(str(events[at].evidence.get("repeated", 0))), "until_ms": event.at_ms}
            events[at] = replace(events[at], evidence={**events[at].evidence, **times})
            continue
        else:
            last_verdict[group] = len(events)
        events.append(event)
    return events


def _says_the_same(one: LifeEvent, other: LifeEvent) -> bool:
    return one.what == other.what and all(
        one.evidence.get(name) == other.evidence.get(name) for name in ("state", "reason")
    )


def _in_order(pair: tuple[str, Mapping[str, Any]]) -> tuple[int, int]:
    stream, row = pair
    return row["at_ms"], _HISTORY_ORDER.get(stream, len(_HISTORY_ORDER))


def _subscription(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}/{row.get('consumer_group')}"


_HISTORY_ORDER = {
    stream: n for n, stream in enumerate(("announced", "consumed", "verdict", "repair", "left", "pending"))
}


def _history_event(stream: str, row: Mapping[str, Any]) -> tuple[str, Mapping[str, object]] | None:
    place = {name: row[name] for name in ("shard", "epoch") if name in row}
    group = _subscription(row)
    match stream:
        case "announced":
            return f"announcement taken by round {row['generation']} of {group}", place
        case "consumed":
            return f"consumption taken by round {row['generation']} of {group}", place
        case "left" if row["reason"] == "MATCHED":
            return f"left pending of {group}: its consumption was recorded", place
        case "left":
            return f"left pending of {group}: {row['reason']} as {row['detail']}", place
        case "pending":
            return f"still pending for {group} when pending was written down", {"first_seen_ms": row["first_seen_ms"]}
        case "verdict":
            evidence = json.loads(row["evidence"])
            return f"verdict for {group}: {row['verdict']}", {"state": row["state"], **evidence}
        case "repair":
            reach = "every group" if row["scope"] == EVERY_GROUP else row["scope"]
            what = f"repair by {row['rung']} for {reach}: {row['before']} became {row['after']}"
            return what, {"attempts": row["attempts"], "answer": row["answer"]}
        case _:
            return None


def _outlook(
    inboxes: Mapping[Subscription, Lookup[InboxRow]],
    ledger: LedgerLife,
    row: OutboxRow | None,
    holds: Sequence[HeldTopic],
) -> Iterator[str]:
    candidates = {candidate.subscription: candidate for candidate in ledger.candidates}
    failed = {repair.scope for repair in ledger.repairs if repair.state is RepairState.FAILED}
    for subscription, lookup in inboxes.items():
        candidate = candidates.get(subscription)
        dismissed = "" if candidate is None else _dismissal(candidate)
        if (doubled := double_effect(lookup)) is not None:
            yield f"{subscription}: {doubled}: a person must look"
        elif (other := other_content(lookup, row, topic=subscription.topic)) is not None:
            yield f"{subscription}: COLLISION, a person must look: the effect is of another message, {other}"
        elif (halfway := lookup.incomplete) is not None:
            yield f"{subscription}: {Verdict.INCOMPLETE}, a person must look: {halfway}. {MEANINGS[Verdict.INCOMPLETE]}"
        elif lookup.is_found and candidate and dismissed and _is_second(candidate, lookup):
            yield f"{subscription}: took effect, a person must look whether that was done by hand, too: {dismissed}"
        elif lookup.is_found:
            yield f"{subscription}: done, the message took effect"
        elif candidate is None and row is not None and row.state is OutboxState.ROLLED_BACK:
            yield f"{subscription}: rolled back by its producer: nothing is delivered"
        elif candidate is None:
            yield f"{subscription}: no effect seen and never judged: in flight, filtered, or not announced yet"
        elif dismissed:
            yield f"{subscription}: {dismissed}"
        elif candidate.state is CandidateState.QUARANTINED or failed & {EVERY_GROUP, subscription.group}:
            yield f"{subscription}: {candidate.verdict}, a person must look: {MEANINGS[Verdict(candidate.verdict)]}"
        elif candidate.state is CandidateState.SETTLED:
            yield f"{subscription}: settled as {candidate.verdict}"
        else:
            yield f"{subscription}: {candidate.verdict}, {_next(candidate, holds)}: {MEANINGS[candidate.verdict]}"


def _is_second(candidate: Candidate, inbox: Lookup[InboxRow]) -> bool:
    """An effect of the dismissed key is one too many, as far as the reconciler can tell."""
    return candidate.took_effect_dismissed or bool(late_effects_ms(candidate, inbox))


def _dismissal(candidate: Candidate) -> str:
    """Who has dismissed it, when and why; empty: nobody."""
    by, why = (candidate.evidence.get(name) for name in ("dismissed_by", "dismissed_because"))
    if not (candidate.is_dismissed or candidate.took_effect_dismissed):
        return ""
    if not by:
        return f"{candidate.verdict}, and a person has dismissed it: nothing is sent to this group"
    at_ms, before = (candidate.evidence.get(name) for name in (DISMISSED_AT_MS, TAKEN_BACK))
    at = utc_text(at_ms if type(at_ms) is int else candidate.updated_at_ms)
    is_woken = candidate.took_effect_dismissed
    verdict = before.get("verdict") if is_woken and isinstance(before, Mapping) else candidate.verdict
    return f"dismissed for {candidate.subscription.group} by {by} at {at} as {verdict}: {why}"


def _next(candidate: Candidate, holds: Sequence[HeldTopic]) -> str:
    """What an open key waits for."""
    topic = candidate.subscription.topic
    kinds = sorted(hold.kind.value for hold in holds if hold.topic == topic)
    if candidate.verdict in LOSSES and kinds:
        return f"not repaired while repairs of {topic} are stopped ({', '.join(kinds)}; see `reconciler status`)"
    return "the next rounds go on"


def _event(at_ms: int, witness: str, what: str, evidence: Mapping[str, object]) -> LifeEvent:
    return LifeEvent(at_ms=at_ms, witness=witness, what=what, evidence=evidence)

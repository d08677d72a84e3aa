"""Makes the events of one message from the answers of each witness.

The code is pure, and life_story.py orders the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.stored_facts import beside
from reconciler.contract.tables import EVERY_GROUP
from reconciler.policy.evidence import InboxRow, Lookup, OutboxRow, Recorded, StoredMessage
from reconciler.policy.inquiry.delivery import difference, other_content
from reconciler.policy.ports.ledger import Repair
from reconciler.telling.ports.actions import OperatorAction
from reconciler.telling.ports.reports import LedgerLife

RECORDED = Code("story.recorded")
ANNOUNCED = Code("story.announced")
SETTLED = Code("story.settled")
TOMBSTONE = Code("story.tombstone")
HALF_STORED = Code("story.half-stored")
HALF_PUT_BACK = Code("story.half-put-back", number=Field.NUMBER)
VISIBLE = Code("story.visible")
PARKED = Code("story.parked")
IN_RETRY_TOPIC = Code("story.in-retry-topic")
IN_DEAD_LETTER_TOPIC = Code("story.in-dead-letter-topic")
OF_ANOTHER_MESSAGE = Code("story.of-another-message", event=Field.FACT, why=Field.FACT)
TOOK_EFFECT = Code("story.took-effect", group=Field.NAME)
OTHER_TOOK_EFFECT = Code("story.other-took-effect", group=Field.NAME, why=Field.FACT)
STOOD_FOR = Code("story.stood-for", group=Field.NAME)
FIRST_SEEN = Code("story.first-seen", subscription=Field.NAME, round=Field.NUMBER)
JUDGED = Code("story.judged", subscription=Field.NAME, verdict=Field.NAME)
REPAIR_OPENED = Code("story.repair-opened", reach=Field.FACT)
REPAIR_SENT = Code("story.repair-sent", reach=Field.FACT, rung=Field.NAME)
REPAIR_VERIFIED = Code("story.repair-verified", reach=Field.FACT)
REPAIR_DISMISSED = Code("story.repair-dismissed", reach=Field.FACT)
REPAIR_CHANGED = Code("story.repair-changed", reach=Field.FACT, rung=Field.NAME, before=Field.NAME, after=Field.NAME)
STORY_EVERY_GROUP = Code("story.every-group")
ONE_GROUP = Code("story.one-group", group=Field.NAME)
BY_HAND = Code("story.by-hand", command=Field.NAME, result=Field.TEXT)
BY_HAND_WITHOUT_END = Code("story.by-hand-without-end", command=Field.NAME)
ANNOUNCEMENT_TAKEN = Code("story.announcement-taken", subscription=Field.NAME, round=Field.NUMBER)
CONSUMPTION_TAKEN = Code("story.consumption-taken", subscription=Field.NAME, round=Field.NUMBER)
MATCHED = Code("story.matched", subscription=Field.NAME)
LEFT = Code("story.left", subscription=Field.NAME, reason=Field.NAME, detail=Field.NAME)
STILL_PENDING = Code("story.still-pending", subscription=Field.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEvent:
    """One event in the life of the message."""

    #: Milliseconds UTC by the witness's clock. The clocks of two witnesses may differ by the skew margin.
    at_ms: int
    #: One of: outbox, broker, inbox, ledger, history, operator.
    witness: str
    what: Fact
    #: The numbers and names of the event, JSON-ready.
    evidence: Mapping[str, object]


def outbox_events(rows: Iterable[OutboxRow]) -> Iterator[LifeEvent]:
    """Yields events of the local transaction."""
    for row in rows:
        said = row.message
        about: dict[str, object] = {"topic": said.topic, "producer_group": said.producer_group, "tag": said.tag}
        about["state"] = row.state.value
        if row.commit is None:
            yield _event(said.created_at_ms, "outbox", TOMBSTONE(), about)
            continue
        half = {"broker": row.half_broker, "commit_log_offset": row.half_commit_log_offset}
        about |= {"business_id": row.business_id, "half": half}
        yield _event(said.created_at_ms, "outbox", RECORDED(), about)
        if row.announced_at_ms is not None:
            yield _event(row.announced_at_ms, "outbox", ANNOUNCED(), {})
        if row.settled_at_ms is not None:
            yield _event(row.settled_at_ms, "outbox", SETTLED(), {})


def copy_events(name: str, copies: Iterable[StoredMessage], row: Recorded | None) -> Iterator[LifeEvent]:
    """Yields events of copies on brokers. `name`: a name as in life_story_of().

    If a copy differs from the message of the outbox row, its event says so.
    """
    kind = kind_of_copy(name)
    for copy in copies:
        what = _stored(kind, copy)
        why = difference(copy, row)
        if why is not None:
            what = OF_ANOTHER_MESSAGE(event=what, why=why)
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


def _stored(kind: str, copy: StoredMessage) -> Fact:
    match kind:
        case "half" if copy.check_times:
            return HALF_PUT_BACK(number=copy.check_times)
        case "half":
            return HALF_STORED()
        case "committed":
            return VISIBLE()
        case "parked":
            return PARKED()
        case "retry":
            return IN_RETRY_TOPIC()
        case _:
            return IN_DEAD_LETTER_TOPIC()


def kind_of_copy(name: str) -> str:
    """Returns the last word of a name: half, committed, parked, retry or dead-letter."""
    return name.rpartition(" ")[2]


def inbox_events(inbox: Lookup[InboxRow], row: Recorded | None) -> Iterator[LifeEvent]:
    """Yields events of effects. An effect may be that of another message with the same key."""
    for effect in inbox.records:
        evidence: dict[str, object] = {"group": effect.group, "source": effect.source}
        other = other_content(inbox, row)
        if effect.duplicate_of is not None:
            what = STOOD_FOR(group=effect.group)
            evidence["duplicate_of"] = effect.duplicate_of
        elif other is not None:
            what = OTHER_TOOK_EFFECT(group=effect.group, why=other)
        else:
            what = TOOK_EFFECT(group=effect.group)
        yield _event(effect.applied_at_ms, "inbox", what, evidence)


def ledger_events(ledger: LedgerLife) -> Iterator[LifeEvent]:
    """Yields events of rounds, verdicts and repairs."""
    for stored in ledger.rounds:
        done = stored.done
        yield _event(
            done.at_ms,
            "ledger",
            FIRST_SEEN(subscription=str(done.shard.subscription), round=done.generation),
            {"shard": done.shard.number, "epoch": done.epoch, "void": stored.is_void},
        )
    for candidate in ledger.candidates:
        evidence = dict(candidate.evidence) | {"attempts": candidate.attempts, "state": candidate.state.value}
        if candidate.loss_verdict is not None:
            evidence["loss_verdict"] = candidate.loss_verdict.value
        judged = _judged(str(candidate.subscription), str(candidate.verdict))
        yield _event(candidate.updated_at_ms, "ledger", judged, evidence)
    for repair in ledger.repairs:
        yield from _repair_events(repair)


def _judged(subscription: str, verdict: str) -> Fact:
    return JUDGED(subscription=subscription, verdict=verdict)


def _reach(scope: str) -> Fact:
    return STORY_EVERY_GROUP() if scope == EVERY_GROUP else ONE_GROUP(group=scope)


def _repair_events(repair: Repair) -> Iterator[LifeEvent]:
    """Yields the events of a repair. The last event shows the outcome or the present state."""
    reach = _reach(repair.scope)
    present: dict[str, object] = {"state": repair.state.value, "attempts": repair.attempts, "answer": repair.answer}
    if repair.answer_fact is not None:
        present |= beside("answer", repair.answer or "", repair.answer_fact)
    sent = {"rung": repair.rung.value, "target": repair.target}
    is_sent, is_done = repair.sent_at_ms is not None, repair.done_at_ms is not None
    if not repair.is_made_by_dismissal:
        opened = REPAIR_OPENED(reach=reach)
        yield _event(repair.created_at_ms, "ledger", opened, {} if is_sent or is_done else present)
    if repair.sent_at_ms is not None:
        what = REPAIR_SENT(reach=reach, rung=str(repair.rung))
        yield _event(repair.sent_at_ms, "ledger", what, sent if is_done else {**sent, **present})
    if repair.done_at_ms is not None:
        what = REPAIR_DISMISSED(reach=reach) if repair.is_dismissed else REPAIR_VERIFIED(reach=reach)
        yield _event(repair.done_at_ms, "ledger", what, present)


def action_event(action: OperatorAction) -> LifeEvent:
    """Returns the event of an act by hand. An act without an end is shown as under way or interrupted."""
    intent = action.intent
    what = BY_HAND_WITHOUT_END(command=intent.command)
    if action.ended_at_ms is not None:
        what = BY_HAND(command=intent.command, result=str(action.result))
    evidence = {"by": intent.by, "topic": intent.topic, "group": intent.group, "detail": intent.detail or None}
    return _event(action.started_at_ms, "operator", what, evidence)


def history_events(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[LifeEvent]:
    """Returns the events of the key in rounds, ordered by time, and within a round by its steps.

    Only the history has these events, because the ledger has only the present state. If rounds repeat a verdict for the
    same reason, and no other event comes in between, one event shows the number of repetitions and the last time.
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


def _history_event(stream: str, row: Mapping[str, Any]) -> tuple[Fact, Mapping[str, object]] | None:
    place = {name: row[name] for name in ("shard", "epoch") if name in row}
    group = _subscription(row)
    match stream:
        case "announced":
            return ANNOUNCEMENT_TAKEN(subscription=group, round=row["generation"]), place
        case "consumed":
            return CONSUMPTION_TAKEN(subscription=group, round=row["generation"]), place
        case "left" if row["reason"] == "MATCHED":
            return MATCHED(subscription=group), place
        case "left":
            return LEFT(subscription=group, reason=str(row["reason"]), detail=str(row["detail"])), place
        case "pending":
            return STILL_PENDING(subscription=group), {"first_seen_ms": row["first_seen_ms"]}
        case "verdict":
            evidence = json.loads(row["evidence"])
            return _judged(group, row["verdict"]), {"state": row["state"], **evidence}
        case "repair":
            steps = {name: str(row[name]) for name in ("rung", "before", "after")}
            what = REPAIR_CHANGED(reach=_reach(row["scope"]), **steps)
            return what, {"attempts": row["attempts"], "answer": row["answer"]}
        case _:
            return None


def _event(at_ms: int, witness: str, what: Fact, evidence: Mapping[str, object]) -> LifeEvent:
    return LifeEvent(at_ms=at_ms, witness=witness, what=what, evidence=evidence)

"""`reconciler repair --by hand-over`: a person gives one message to the replay worker of one group, or takes it back.

A person's hand-over uses the same row, claim and inbox as any hand-over. So the message has at most one effect, even if
it is delivered in another way, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from reconciler.contract.facts import Fact
from reconciler.contract.outcomes import (
    BY_VERDICT,
    CANCEL_PLANNED,
    HANDED_CANCELLED,
    HANDED_HELD,
    HANDED_PLANNED,
    HANDED_REFUSED,
    HANDED_WAITS,
    IS_DISMISSED,
    NO_INBOX,
    NO_ROW,
    NOT_CANCELLED,
    REPAIR_UNDER_WAY,
    ROW_ENDED,
    ROW_FAILED,
    ROW_TAKEN,
    WORKER_LAST,
    WORKER_NEVER,
)
from reconciler.contract.row_rules import FINISHED_REPAIRS
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import EVERY_GROUP, HoldKind, RepairState
from reconciler.contract.verdicts import SETTLING, Verdict, what_ends
from reconciler.errors import ChangedMeanwhile
from reconciler.policy.judging.judge import JudgedKey
from reconciler.policy.keys_by_hand import KeysByHand
from reconciler.policy.ports.closing import KeyAsRead
from reconciler.policy.ports.ledger import Repair
from reconciler.settings.schema import RepairSettings
from reconciler.telling.ports.reports import LedgerLife
from reconciler.wiring.connections import Connections

#: Verdicts with which a group has passed the message, or will not get it.
HANDED_OVER = frozenset({Verdict.DELIVERED_NOT_APPLIED, Verdict.DEAD_LETTERED, Verdict.QUARANTINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverResult:
    """The result of one key for one group. A dry run has such results, too."""

    verdict: str
    #: One of: sent, planned, waits, held, refused, cancelled. Empty: no effect is missing.
    outcome: str
    told: Fact


def hand_over(
    connections: Connections, by_hand: KeysByHand, subscription: Subscription, unique_key: str, *, dry_run: bool
) -> HandOverResult:
    """Judges the key, and gives its message to the group's replay worker. A dry run only returns what would happen.

    Raises ChangedMeanwhile if another act or a round has changed the key since this function judged it.
    """
    known = connections.ledger.candidates.of_keys(subscription, [unique_key]).get(unique_key)
    is_dismissed = known is not None and known.is_dismissed
    judged = by_hand.judge_one(subscription, unique_key, dry_run=dry_run or is_dismissed)
    read = _as_read(connections, subscription, unique_key)
    verdict = judged.entry.verdict
    waiting = _waiting(connections, subscription, read)
    if waiting is not None and verdict not in SETTLING:
        return HandOverResult(verdict=str(verdict), outcome="waits", told=waiting)
    why = _why_not(judged, read, subscription)
    if why is not None:
        outcome = "" if verdict in SETTLING else "refused"
        return HandOverResult(verdict=str(verdict), outcome=outcome, told=_refused(why))
    holds = connections.ledger.holds.active(subscription.environment)
    brakes = brakes_of(connections.settings.repairs, subscription.topic, holds)
    if brakes:
        held = HANDED_HELD(topic=subscription.topic, brakes=brakes, unique_key=unique_key)
        return HandOverResult(verdict=str(verdict), outcome="held", told=held)
    found = by_hand.to_hand_over(subscription, unique_key, first_seen_ms=judged.suspect.first_seen_ms)
    if found.message is None:
        return HandOverResult(verdict=str(verdict), outcome="refused", told=_refused(found.why))
    if dry_run:
        planned = HANDED_PLANNED(group=subscription.group, worker=_worker(connections, subscription))
        return HandOverResult(verdict=str(verdict), outcome="planned", told=planned)
    closings, group = connections.ledger.closings, subscription.group
    if not closings.hand_over(read, found.message, group=group, content_digest=found.content_digest):
        raise changed_meanwhile(connections, subscription, unique_key)
    return HandOverResult(verdict=str(verdict), outcome="sent", told=_waits(connections, subscription, unique_key))


def cancel(connections: Connections, subscription: Subscription, unique_key: str, *, dry_run: bool) -> HandOverResult:
    """Takes back a hand-over that waits for a replay worker of the group. Raises ChangedMeanwhile like hand_over()."""
    read = _as_read(connections, subscription, unique_key)
    verdict = next((str(row.verdict) for row in read.candidates if row.subscription == subscription), "")
    why = _why_not_cancelled(connections, read, subscription.group)
    if why is not None:
        return HandOverResult(verdict=verdict, outcome="refused", told=NOT_CANCELLED(why=why))
    if dry_run:
        return HandOverResult(verdict=verdict, outcome="planned", told=CANCEL_PLANNED(group=subscription.group))
    if not connections.ledger.closings.cancel(read, group=subscription.group):
        raise changed_meanwhile(connections, subscription, unique_key)
    return HandOverResult(verdict=verdict, outcome="cancelled", told=HANDED_CANCELLED(group=subscription.group))


def nothing_of_dismissed(unique_key: str) -> Fact:
    """Returns a fact about a key that a person has dismissed, and the way back."""
    return IS_DISMISSED(unique_key=unique_key)


def _refused(why: Fact) -> Fact:
    return HANDED_REFUSED(why=why)


def _why_not(judged: JudgedKey, read: KeyAsRead, subscription: Subscription) -> Fact | None:
    """Returns why the ledger's rows or the verdict forbid a hand-over. None: they allow the hand-over."""
    verdict, unique_key = judged.entry.verdict, read.unique_key
    own = _row(read.repairs, subscription.group)
    if any(row.is_dismissed for row in read.candidates if row.subscription == subscription):
        return nothing_of_dismissed(unique_key)
    under_way = _under_way(read.repairs)
    if under_way is not None:
        return under_way
    if verdict not in HANDED_OVER:
        return BY_VERDICT(verdict=str(verdict), ending=what_ends(verdict, unique_key))
    if not judged.suspect.group.has_inbox:
        return NO_INBOX(group=subscription.group)
    return None if own is None or own.state is not RepairState.DONE else _ended(own)


def _why_not_cancelled(connections: Connections, read: KeyAsRead, group: str) -> Fact | None:
    own = _row(read.repairs, group)
    if own is None:
        return NO_ROW()
    match own.state:
        case RepairState.DONE:
            return _ended(own)
        case RepairState.FAILED:
            return ROW_FAILED(why=own.answer or "")
        case RepairState.OPEN if own.token is None:
            return _under_way(read.repairs)
        case _:
            return _taken(connections, own)


def _under_way(repairs: Sequence[Repair]) -> Fact | None:
    """Returns a fact about a repair for every group that may still bring the effect or hand the message over."""
    row = _row(repairs, EVERY_GROUP)
    if row is None or row.state in FINISHED_REPAIRS:
        return None
    return REPAIR_UNDER_WAY(state=str(row.state), rung=str(row.rung))


def _waiting(connections: Connections, subscription: Subscription, read: KeyAsRead) -> Fact | None:
    """Returns a fact about a hand-over that a replay worker of the group has taken or will take, if there is one."""
    own = _row(read.repairs, subscription.group)
    if own is None or own.state in FINISHED_REPAIRS:
        return None
    if own.state is RepairState.OPEN and own.token is None:
        return _waits(connections, subscription, read.unique_key)
    return _refused(_taken(connections, own))


def _waits(connections: Connections, subscription: Subscription, unique_key: str) -> Fact:
    worker = _worker(connections, subscription)
    return HANDED_WAITS(group=subscription.group, worker=worker, unique_key=unique_key)


def _worker(connections: Connections, subscription: Subscription) -> Fact:
    of = {"topic": subscription.topic, "group": subscription.group}
    at_ms = connections.ledger.closings.last_taken_ms(subscription.environment, **of)
    return WORKER_NEVER() if at_ms is None else WORKER_LAST(at_ms=at_ms)


def _taken(connections: Connections, row: Repair) -> Fact:
    """Returns a fact about a claimed row. A claim without an attempt was made just now."""
    return ROW_TAKEN(at_ms=connections.clock.now_ms() if row.sent_at_ms is None else row.sent_at_ms)


def _ended(row: Repair) -> Fact:
    return ROW_ENDED(at_ms=row.created_at_ms if row.done_at_ms is None else row.done_at_ms)


def brakes_of(repairs: RepairSettings, topic: str, holds: Mapping[str, Collection[HoldKind]]) -> tuple[str, ...]:
    """Returns what stops the repairs of a topic, holds included. Replay workers then take no hand-over of the topic."""
    if repairs.is_enabled_for(topic):
        return tuple(map(str, holds.get(topic, ())))
    return (f"repairs.topics.{topic} = false" if topic in repairs.topics else "repairs.enabled = false",)


def _row(repairs: Sequence[Repair], scope: str) -> Repair | None:
    return next((row for row in repairs if row.scope == scope), None)


def ledger_rows(connections: Connections, unique_key: str) -> LedgerLife:
    """Returns what the ledger has about a key. Raises DatabaseAway."""
    return connections.ledger.reports.life(connections.settings.environment, unique_key)


def _as_read(connections: Connections, subscription: Subscription, unique_key: str) -> KeyAsRead:
    life = ledger_rows(connections, unique_key)
    return KeyAsRead(
        environment=subscription.environment,
        topic=subscription.topic,
        unique_key=unique_key,
        candidates=[row for row in life.candidates if row.subscription.topic == subscription.topic],
        repairs=[row for row in life.repairs if row.topic == subscription.topic],
    )


def changed_meanwhile(connections: Connections, subscription: Subscription, unique_key: str) -> ChangedMeanwhile:
    """Returns the error for a key that has changed since it was read. The error names the present state."""
    found = connections.ledger.candidates.of_keys(subscription, [unique_key]).get(unique_key)
    now = {} if found is None else {"state": str(found.state), "verdict": str(found.verdict)}
    return ChangedMeanwhile(f"{unique_key} for {subscription.group}", now=now)

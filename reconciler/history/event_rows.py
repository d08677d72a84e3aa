"""Makes rows of the history from events of the policy. Pure; `now_ms` is the reconciler's clock at the event."""

from __future__ import annotations

import json
from collections.abc import Sequence

from reconciler.contract.history_row import GATE, LEFT, REPAIR, VERDICT, Leaving
from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.unique_key import member_of
from reconciler.history.batch import PackedKeys, RowBatch, Value
from reconciler.policy.events import Event, KeysLeft, KeysNotTaken, RepairStepped, RoundFinished, VerdictsWritten

_LEAVING = {CandidateState.SETTLED: Leaving.SETTLED, CandidateState.QUARANTINED: Leaving.QUARANTINED}


def rows_of(event: Event, *, now_ms: int) -> Sequence[RowBatch]:
    """Makes the event's rows. Empty: other rows cover the event."""
    match event:
        case RoundFinished():
            return _gate(event)
        case VerdictsWritten():
            return _verdicts(event, now_ms)
        case KeysLeft():
            return _left(event, now_ms)
        case KeysNotTaken():
            return _not_taken(event, now_ms)
        case RepairStepped():
            return _repair(event, now_ms)
        case _:
            return ()


def named(subscription: Subscription) -> dict[str, Value]:
    """Makes the columns with which every stream of a subscription begins."""
    return {"topic": subscription.topic, "consumer_group": subscription.group}


def _gate(event: RoundFinished) -> Sequence[RowBatch]:
    if event.shards_run == 0:  # no shard ran, so no round has a time and nothing changed
        return ()
    shared = named(event.subscription) | {
        "at_ms": event.at_ms,
        "shards_run": event.shards_run,
        "gate": event.gate,
        "watermark_ms": event.watermark_ms,
        "pending": event.pending_after,
        "became_due": event.became_due,
        "verified": event.verified,
        "settled": event.settled,
    }
    return [RowBatch(stream=GATE.name, shared=shared)]


def _verdicts(event: VerdictsWritten, now_ms: int) -> Sequence[RowBatch]:
    of = event.entries
    if not of:
        return ()
    columns: dict[str, Sequence[Value]] = {
        "verdict": [str(v.verdict) for v in of],
        "state": [str(v.state) for v in of],
        "first_seen_ms": [v.first_seen_ms for v in of],
        "evidence": [
            json.dumps(dict(v.evidence), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
            for v in of
        ],
    }
    shared = named(event.shard.subscription) | {"shard": event.shard.number, "at_ms": now_ms}
    keys = PackedKeys.of(member_of(v.unique_key) for v in of)
    return [RowBatch(stream=VERDICT.name, shared=shared, keys=keys, columns=columns)]


def _left(event: KeysLeft, now_ms: int) -> Sequence[RowBatch]:
    if not event.keys:
        return ()
    columns: dict[str, Sequence[Value]] = {
        "reason": [str(_LEAVING.get(key.state, key.state)) for key in event.keys],
        "detail": [str(key.verdict) for key in event.keys],
    }
    shared = named(event.shard.subscription) | {"shard": event.shard.number, "at_ms": now_ms}
    keys = PackedKeys.of(member_of(key.unique_key) for key in event.keys)
    return [RowBatch(stream=LEFT.name, shared=shared, keys=keys, columns=columns)]


def _not_taken(event: KeysNotTaken, now_ms: int) -> Sequence[RowBatch]:
    about: dict[str, Value] = {"shard": event.shard.number, "at_ms": now_ms, "reason": str(Leaving.NOT_TAKEN)}
    shared = named(event.shard.subscription) | about | {"detail": None}
    keys = PackedKeys.of([member_of(key) for key in event.unique_keys])
    return [RowBatch(stream=LEFT.name, shared=shared, keys=keys)]


def _repair(event: RepairStepped, now_ms: int) -> Sequence[RowBatch]:
    shared: dict[str, Value] = {
        "topic": event.topic,
        "scope": event.scope,
        "at_ms": now_ms,
        "rung": str(event.rung),
        "before": str(event.before),
        "after": str(event.after),
        "attempts": event.attempts,
        "answer": event.answer,
    }
    return [RowBatch(stream=REPAIR.name, shared=shared, keys=PackedKeys.of([member_of(event.unique_key)]))]

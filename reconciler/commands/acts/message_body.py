"""The body of one message, which a person opens for a reason. A body is customers' data, so the opening is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.commands.acts.operator_actions import recorded
from reconciler.commands.asking.business_ids import key_shaped
from reconciler.contract.unique_key import UNIQUE_KEY_SHAPE
from reconciler.errors import InvalidValue
from reconciler.policy.evidence import StoredMessage
from reconciler.policy.inquiry.delivery import kept_message
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS, Horizon
from reconciler.wiring.connections import Connections
from reconciler.wiring.evidence import build_witnesses
from reconciler.wiring.rounds import topic_plans

#: The horizon for look-ups of copies. A copy that is found needs no proof that other copies are absent.
_NOTHING_PROVED = Horizon(at_ms={})
#: The places of a body, in the order in which they are searched.
FOUND_IN = ("outbox", "committed copy", "half message", "parked copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBody:
    """A body, and the place where it was found."""

    unique_key: str
    topic: str
    #: One of FOUND_IN.
    found_in: str
    #: Uncompressed.
    body: bytes


def open_body(connections: Connections, unique_key: str, *, reason: str, by: str) -> OpenedBody | None:
    """Returns the body from the outbox, or else from a copy at the brokers. None: no place that answers has the body.

    The opening is recorded as an act before the body is read. Raises InvalidValue for a text that is no unique key, and
    DatabaseAway.
    """
    key = key_shaped(unique_key)
    if key is None:
        raise InvalidValue("unique_key", unique_key[:80], f"a unique key has {UNIQUE_KEY_SHAPE}")
    with recorded(connections, "body", by=by, unique_key=key, detail=reason) as outcome:
        for found_in, message in _copies(connections, key):
            outcome.result = f"opened: {found_in}, {len(message.body)} bytes"
            return OpenedBody(unique_key=key, topic=message.real_topic, found_in=found_in, body=message.body)
        outcome.result = "not found"
    return None


def _copies(connections: Connections, unique_key: str) -> Iterator[tuple[str, StoredMessage]]:
    """Yields copies in the order of FOUND_IN. Brokers are asked for a copy only when the caller needs it."""
    witnesses = build_witnesses(connections)
    for plan in topic_plans(connections.settings):
        outbox = witnesses.outbox.look_up(plan.topic, {unique_key: WHENEVER_COMMITTED_MS})[unique_key]
        row = outbox.records[0] if outbox.is_found else None
        kept = kept_message(row.commit if row is not None else None)
        if kept is not None:
            yield "outbox", kept
        since = row.message.created_at_ms if row is not None else 0
        brokers, topic = witnesses.brokers, plan.topic
        committed = brokers.committed_copies(topic, unique_key, horizon=_NOTHING_PROVED, not_before_ms=since)()
        yield from (("committed copy", message) for message in committed.records)
        halves = brokers.half_copies(topic, unique_key, horizon=_NOTHING_PROVED, not_before_ms=since, outbox=row)()
        yield from (("half message", message) for message in halves.records)
        parked = brokers.parked_copies(topic, unique_key, horizon=_NOTHING_PROVED, not_before_ms=since)()
        yield from (("parked copy", message) for message in parked.records)

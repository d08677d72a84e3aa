"""Pure facts about copies of a message: whose half it is, which is the newest, where a group stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.contract.tables import OutboxState
from reconciler.contract.verdicts import Verdict
from reconciler.evidence import InboxRow, Lookup, OutboxRow, QueuePosition, StoredMessage
from reconciler.plan import TopicPlan

#: Keys of BrokerEvidence.group_copies.
RETRY = "retry"
DEAD_LETTER = "dead-letter"
#: Messages with a delay level, so also every retry, wait in this topic (TopicValidator.RMQ_SYS_SCHEDULE_TOPIC), from
#: 5.0 also in the timer wheel's.
DELAY_TOPICS = frozenset({"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"})

#: Reasons that begin so are told by `status`.
DOUBLE_EFFECT = "several inboxes of the group have this key: a double effect"


def disagreement(message: StoredMessage, *, topic: TopicPlan, row: OutboxRow | None) -> str | None:
    """Why a half or parked copy is not the message that the outbox row speaks of; None if it is."""
    if message.real_topic != topic.topic:
        return f"REAL_TOPIC is {message.real_topic}, expected {topic.topic}"
    if row is None:
        if message.producer_group not in topic.producer_groups:
            return f"PGROUP is {message.producer_group}, which is not configured for {topic.topic}"
        return None
    if message.producer_group != row.producer_group:
        return f"PGROUP is {message.producer_group}, the outbox says {row.producer_group}"
    if row.content_digest is not None and message.content_digest != row.content_digest:
        return "content differs from the outbox row's digest"
    return None


def own_copies(
    copies: Iterable[StoredMessage], *, topic: TopicPlan, row: OutboxRow | None
) -> tuple[StoredMessage, ...]:
    """Copies that are the outbox row's message, oldest first."""
    return tuple(copy for copy in copies if disagreement(copy, topic=topic, row=row) is None)


def newest_per_broker(copies: Iterable[StoredMessage]) -> dict[str, StoredMessage]:
    """The copy with the greatest commit-log offset on each broker: only an END on it stops the check-backs."""
    newest: dict[str, StoredMessage] = {}
    for copy in copies:
        if copy.broker not in newest or copy.commit_log_offset > newest[copy.broker].commit_log_offset:
            newest[copy.broker] = copy
    return dict(sorted(newest.items()))


def has_passed(positions: Sequence[QueuePosition], copy: StoredMessage) -> bool | None:
    """True if the group's offset is behind the copy, False if it has not reached it, None if nobody knows."""
    for position in positions:
        if (position.topic, position.broker, position.queue_id) == (copy.topic, copy.broker, copy.queue_id):
            # No offset stored: nothing consumed yet, as far as the broker knows.
            return position.consumer_offset is not None and position.consumer_offset > copy.queue_offset
    return None


def reach(positions: Sequence[QueuePosition] | None, copies: Sequence[StoredMessage]) -> Verdict | None:
    """LAGGING while a copy is still to come, UNKNOWN if a position is unknown, None if the group is past all."""
    if positions is None:
        return Verdict.UNKNOWN
    passed = [has_passed(positions, copy) for copy in copies]
    if False in passed:
        return Verdict.LAGGING
    return Verdict.UNKNOWN if None in passed else None


def why_unknown(positions: Sequence[QueuePosition] | None, copies: Sequence[StoredMessage]) -> str:
    """Why reach() is UNKNOWN, for people."""
    if positions is None:
        return "the group's offsets are not known: a broker did not answer"
    place = next(copy for copy in copies if has_passed(positions, copy) is None)
    return (
        f"a copy lies in {place.topic} queue {place.queue_id} on {place.broker}, which is not among the route's "
        "readable queues: no consumer gets it there"
    )


def standing(
    positions: Sequence[QueuePosition] | None,
    group_copies: Mapping[str, Lookup[StoredMessage]],
) -> Verdict:
    """Where a group stands that is past every copy and has no inbox row.

    The inbox must have been read after the positions, and the horizon of `group_copies` taken after them: a
    failed message is sent back before its offset is committed, so one of the two would show it.
    """
    dead = group_copies[DEAD_LETTER]
    if dead.is_found:
        return Verdict.DEAD_LETTERED
    retries = group_copies[RETRY]
    if retries.is_found:
        newest = max(retries.records, key=lambda copy: (copy.store_timestamp_ms, copy.commit_log_offset))
        waits = newest.topic in DELAY_TOPICS or not has_passed(positions or (), newest)
        if waits:
            return Verdict.RETRYING
    if dead.is_unknown or retries.is_unknown:
        return Verdict.UNKNOWN
    return Verdict.DELIVERED_NOT_APPLIED


def row_of(outbox: Lookup[OutboxRow] | None) -> OutboxRow | None:
    """The outbox row, if one was found."""
    return outbox.records[0] if outbox is not None and outbox.is_found else None


def contradiction(outbox: Lookup[OutboxRow] | None) -> str | None:
    """Why the committed rows of a key, of several databases, are not one message; None: nothing speaks against it."""
    rows = outbox.records if outbox is not None else ()
    digests = sorted({row.content_digest.hex()[:16] for row in rows if row.is_committed and row.content_digest})
    if len(digests) < 2:
        return None
    return f"outboxes have committed rows of this key with different contents: digests {', '.join(digests)}"


def double_effect(inbox: Lookup[InboxRow]) -> str | None:
    """Why the rows of a key, of several databases, are more than the one effect there may be; None: they are not."""
    if len(inbox.records) < 2:
        return None
    times = " and ".join(str(row.applied_at_ms) for row in inbox.records)
    return f"{DOUBLE_EFFECT}, applied at {times}"


def written_ms(row: OutboxRow | None, *lookups: Lookup[StoredMessage] | None) -> int | None:
    """When the message was written: its outbox row, else its oldest copy; None if nobody knows."""
    if row is not None:
        return row.created_at_ms
    copies = [copy for lookup in lookups if lookup is not None and lookup.is_found for copy in lookup.records]
    return min((copy.born_timestamp_ms for copy in copies), default=None)


def stand_in_row(half: StoredMessage) -> OutboxRow:
    """What is expected of a half in the weaker mode, without an outbox: itself."""
    return OutboxRow(
        unique_key=half.unique_key,
        topic=half.real_topic,
        producer_group=half.producer_group,
        tag=half.tag,
        message_keys=None,
        business_id=None,
        half_broker=half.broker,
        half_commit_log_offset=half.commit_log_offset,
        half_queue_offset=half.queue_offset,
        properties=None,
        body=None,
        content_digest=half.content_digest,
        state=OutboxState.ANNOUNCED,
        created_at_ms=half.born_timestamp_ms,
        announced_at_ms=None,
        settled_at_ms=None,
    )

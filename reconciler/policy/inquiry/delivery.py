"""Pure conclusions about copies of a message: to which message a copy belongs, which copy is the newest, and how far a
group has come.

Any producer can give any unique key to a message. So a copy belongs to the outbox row's message only if it has the
row's content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.contract.facts import Fact
from reconciler.contract.reasons import (
    COPIES_UNKNOWN,
    DIGESTS_DIFFER,
    DOUBLE_EFFECT,
    FOREIGN_GROUP,
    HALF_UNKNOWN,
    OFFSETS_AGAIN,
    OFFSETS_UNKNOWN,
    OTHER_DIGEST,
    OTHER_EFFECT_DIGEST,
    OTHER_GROUP,
    OTHER_REAL_TOPIC,
    OTHER_TAG,
    OTHER_TOPIC,
    OUTBOX_UNKNOWN,
    SUSPECT_ROW,
    TAGS_DIFFER,
    UNREADABLE_QUEUE,
)
from reconciler.contract.tables import FORMER_NAMES_TOPIC
from reconciler.contract.verdicts import VERDICTS_ON_THE_ROW, Verdict
from reconciler.policy.evidence import (
    Commit,
    InboxRow,
    Lookup,
    OutboxRow,
    QueuePosition,
    Recorded,
    StoredMessage,
    TransactionState,
)
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.ledger import Candidate

#: Keys of BrokerEvidence.group_copies.
RETRY = "retry"
DEAD_LETTER = "dead-letter"
#: Topics in which messages with a delay level wait, and so every retry: SCHEDULE_TOPIC_XXXX
#: (TopicValidator.RMQ_SYS_SCHEDULE_TOPIC), and from 5.0 on the timer wheel's topic.
DELAY_TOPICS = frozenset({"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"})

#: A field of the evidence of a dismissed key: when each row that its inbox had by then was written. An effect at
#: another time is reported. Without this field, no effect is reported.
EFFECTS_SEEN_MS = "effects_seen_ms"


def difference(copy: StoredMessage, row: Recorded | None) -> Fact | None:
    """Returns why a copy's content differs from the outbox row. None: the contents are equal, or there is no row to
    compare with.

    For a row without a digest, only the tag is compared.
    """
    if row is None:
        return None
    if copy.tag != (row.tag or None):
        return OTHER_TAG(seen=repr(copy.tag), expected=repr(row.tag))
    if row.content_digest is not None and copy.content_digest != row.content_digest:
        return OTHER_DIGEST(seen=shown(copy.content_digest), expected=shown(row.content_digest))
    return None


def shown(digest: bytes) -> str:
    """Returns the first 16 hexadecimal digits of a digest, for people."""
    return digest.hex()[:16]


def of_row(copies: Lookup[StoredMessage], row: Recorded | None) -> Lookup[StoredMessage]:
    """Returns the answer with only those copies that have the row's content."""
    return copies.only(lambda copy: difference(copy, row) is None)


def other_content(inbox: Lookup[InboxRow] | None, row: Recorded | None, *, topic: str | None = None) -> Fact | None:
    """Returns why an effect belongs to another message than the outbox row's, or to a message of another topic. None:
    nothing shows that.

    Inbox rows of clients that cannot list properties have no digest, so only their topic is compared. An effect query
    finds an effect without a row of an inbox, so nothing is compared.
    """
    if inbox is None or not inbox.records:
        return None
    found, sent_to = inbox.records[0], topic if row is None else row.topic
    if sent_to is not None and found.topic not in (sent_to, FORMER_NAMES_TOPIC):
        return OTHER_TOPIC(seen=found.topic, expected=sent_to)
    if row is None or row.content_digest is None:
        return None
    seen = found.content_digest
    if seen is None or seen == row.content_digest:
        return None
    return OTHER_EFFECT_DIGEST(seen=shown(seen), expected=shown(row.content_digest))


def suspicion(row: Recorded | None, copies: Iterable[StoredMessage]) -> Fact | None:
    """Returns why the outbox row itself is in doubt. None: the row is not in doubt.

    The row is in doubt if all copies have one content that differs from the row's, and the row's own group sent one of
    the copies as a half. Then the copies are probably copies of its message, and its digest was computed in another
    way.
    """
    found = list(copies)
    if row is None or all(copy.producer_group != row.producer_group for copy in found):
        return None
    differences = [difference(copy, row) for copy in found]
    why = differences[-1]
    if why is None or None in differences or len({copy.content_digest for copy in found}) > 1:
        return None
    return SUSPECT_ROW(why=why)


def disagreement(message: StoredMessage, *, topic: TopicPlan, row: Recorded | None) -> Fact | None:
    """Returns why a half or parked copy is not of the outbox row's message. None: it is."""
    if message.real_topic != topic.topic:
        return OTHER_REAL_TOPIC(seen=message.real_topic, expected=topic.topic)
    if row is None:
        if message.producer_group not in topic.evidence.producer_groups:
            return FOREIGN_GROUP(group=message.producer_group, topic=topic.topic)
        return None
    if message.producer_group != row.producer_group:
        return OTHER_GROUP(seen=message.producer_group, expected=row.producer_group)
    return difference(message, row)


def own_halves(halves: Lookup[StoredMessage], *, topic: TopicPlan, row: Recorded | None) -> Lookup[StoredMessage]:
    """Returns the answer with only those halves or parked copies that are of the outbox row's message."""
    return halves.only(lambda half: disagreement(half, topic=topic, row=row) is None)


def copies_unknown(copies: Lookup[StoredMessage]) -> Fact:
    """Returns why committed copies are unknown."""
    return COPIES_UNKNOWN(why=copies.reason)


def half_unknown(halves: Lookup[StoredMessage]) -> Fact:
    """Returns why halves are unknown."""
    return HALF_UNKNOWN(why=halves.reason)


def outbox_unknown(outbox: Lookup[OutboxRow]) -> Fact:
    """Returns why the commit is unknown."""
    return OUTBOX_UNKNOWN(why=outbox.reason)


def newest_per_broker(copies: Iterable[StoredMessage]) -> dict[str, StoredMessage]:
    """Returns the copy with the greatest commit-log offset on each broker. Only an END on that copy stops the
    check-backs."""
    newest: dict[str, StoredMessage] = {}
    for copy in copies:
        if copy.broker not in newest or copy.commit_log_offset > newest[copy.broker].commit_log_offset:
            newest[copy.broker] = copy
    return dict(sorted(newest.items()))


def has_passed(positions: Sequence[QueuePosition], copy: StoredMessage) -> bool | None:
    """Returns True if the group has passed the copy, False if it has not reached the copy, and None if neither is
    known."""
    for position in positions:
        if (position.topic, position.broker, position.queue_id) == (copy.topic, copy.broker, copy.queue_id):
            if copy.queue_offset >= position.doubtful_below and copy.commit_log_offset <= position.doubtful_log_offset:
                return None  # the copy was in a queue that was replaced
            if (
                position.seen is not None
                and copy.queue_offset <= position.seen[0]
                and copy.commit_log_offset > position.seen[1]
            ):
                return None  # another copy had the same offset
            # A missing offset means that the group has consumed nothing, as far as the broker knows.
            if position.consumer_offset is None or position.consumer_offset <= copy.queue_offset:
                return False
            return True if copy.queue_offset >= position.doubtful_below else None
    return None


def reach(positions: Sequence[QueuePosition] | None, copies: Sequence[StoredMessage]) -> Verdict | None:
    """Returns LAGGING if the group has not reached a copy yet, UNKNOWN if a position is unknown, and None if the group
    has passed all copies."""
    if positions is None:
        return Verdict.UNKNOWN
    passed = [has_passed(positions, copy) for copy in copies]
    if False in passed:
        return Verdict.LAGGING
    return Verdict.UNKNOWN if None in passed else None


def why_unknown(positions: Sequence[QueuePosition] | None, copies: Sequence[StoredMessage]) -> Fact:
    """Returns why reach() is UNKNOWN."""
    if positions is None:
        return OFFSETS_UNKNOWN()
    place = next(copy for copy in copies if has_passed(positions, copy) is None)
    seen = {(one.topic, one.broker, one.queue_id) for one in positions}
    code = OFFSETS_AGAIN if (place.topic, place.broker, place.queue_id) in seen else UNREADABLE_QUEUE
    return code(topic=place.topic, queue=place.queue_id, broker=place.broker)


def group_position(
    positions: Sequence[QueuePosition] | None,
    group_copies: Mapping[str, Lookup[StoredMessage]],
) -> Verdict:
    """Returns the verdict on a group that has passed every copy and has no inbox row.

    Read the inbox after the positions, and take the horizon of `group_copies` after them, too. A failed message is sent
    back before its offset is committed, so the inbox or the copies would show it.
    """
    dead = group_copies[DEAD_LETTER]
    if dead.is_found:
        return Verdict.DEAD_LETTERED
    retries = group_copies[RETRY]
    if retries.is_found:
        newest = max(retries.records, key=lambda copy: (copy.store_timestamp_ms, copy.commit_log_offset))
        passed = False if newest.topic in DELAY_TOPICS else has_passed(positions or (), newest)
        if passed is not True:
            return Verdict.RETRYING if passed is False else Verdict.UNKNOWN
    if dead.is_unknown or retries.is_unknown:
        return Verdict.UNKNOWN
    return Verdict.DELIVERED_NOT_APPLIED


def row_of(outbox: Lookup[OutboxRow] | None) -> OutboxRow | None:
    """Returns the outbox row, if a row was found. If several rows are one message, a row with a digest is preferred."""
    rows = outbox.records if outbox is not None and outbox.is_found else ()
    return next((row for row in rows if row.message.content_digest is not None), rows[0] if rows else None)


def message_of(outbox: Lookup[OutboxRow] | None) -> Recorded | None:
    """Returns the message of that row."""
    row = row_of(outbox)
    return None if row is None else row.message


def contradiction(outbox: Lookup[OutboxRow] | None) -> Fact | None:
    """Returns why committed rows of one key in several databases cannot be one message. None: they may be one
    message."""
    rows = [row.commit for row in outbox.records if row.commit is not None] if outbox is not None else []
    digests = sorted({shown(row.content_digest) for row in rows if row.content_digest})
    tags = sorted({repr(row.tag or None) for row in rows})
    if len(digests) > 1:
        return DIGESTS_DIFFER(digests=tuple(digests))
    # In a row without a digest, only the tag can be compared.
    return TAGS_DIFFER(tags=tuple(tags)) if len(tags) > 1 else None


def double_effect(inbox: Lookup[InboxRow]) -> Fact | None:
    """Returns why inbox rows of one key in several databases are more than one effect. None: they are one effect."""
    if len(inbox.records) < 2:
        return None
    return DOUBLE_EFFECT(applied=tuple(row.applied_at_ms for row in inbox.records))


def late_effects_ms(row: Candidate, inbox: Lookup[InboxRow]) -> frozenset[int]:
    """Returns when a dismissed message took effect, completely or in part, without the knowledge of the person who
    dismissed it.

    If the verdict is about the inbox row itself, rows that existed at the dismissal do not count. If those rows are
    unknown, or an earlier release dismissed the key, no row counts.
    """
    if row.verdict not in VERDICTS_ON_THE_ROW:
        return effect_times_ms(inbox)
    seen = row.evidence.get(EFFECTS_SEEN_MS)
    if not isinstance(seen, list):
        return frozenset()
    return effect_times_ms(inbox).difference(at_ms for at_ms in seen if isinstance(at_ms, int))


def effect_times_ms(inbox: Lookup[InboxRow]) -> frozenset[int]:
    """Returns the times of all rows that were found, even beside an incomplete row. If a row is incomplete, the records
    of the whole answer lack these rows."""
    found = (row.applied_at_ms for row in inbox.records)
    return frozenset(found).union(one.applied_at_ms for one in inbox.answers if one.applied_at_ms is not None)


def written_ms(row: Recorded | None, *lookups: Lookup[StoredMessage] | None) -> int | None:
    """Returns when the message was written: the time of its outbox row, or of its oldest copy. None: no row and no copy
    exists."""
    if row is not None:
        return row.created_at_ms
    copies = [copy for lookup in lookups if lookup is not None and lookup.is_found for copy in lookup.records]
    return min((copy.born_timestamp_ms for copy in copies), default=None)


def kept_message(commit: Commit | None) -> StoredMessage | None:
    """Returns the message as its database stored it. None: no body is stored, or its content differs from the stored
    digest.

    No broker stored this message, so the places of a record are empty.
    """
    if commit is None or commit.body is None:
        return None
    properties = dict(commit.properties or {})
    properties.update({name: value for name, value in (("TAGS", commit.tag), ("KEYS", commit.message_keys)) if value})
    message = StoredMessage(
        unique_key=commit.unique_key,
        topic=commit.topic,
        real_topic=commit.topic,
        broker="",
        queue_id=-1,
        queue_offset=-1,
        commit_log_offset=-1,
        born_timestamp_ms=commit.created_at_ms,
        store_timestamp_ms=commit.created_at_ms,
        transaction_state=TransactionState.NONE,
        prepared_transaction_offset=0,
        producer_group=commit.producer_group,
        check_times=None,
        reconsume_times=0,
        properties=properties,
        body=commit.body,
    )
    return message if difference(message, commit) is None else None

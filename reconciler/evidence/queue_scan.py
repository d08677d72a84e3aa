"""Scans a range of one queue. On 3.2.6, only a scan shows whether a prepared message was committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from reconciler.contract.queue_proof import QueueRecord, record_of
from reconciler.errors import BrokerUnavailable, ReconcilerError
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.pulling import PullRequest, PullResult, PullStatus, pull
from reconciler.rocketmq.wire.record import MessageRecord, TransactionType

#: The consumer group of scans. Scans store no offset.
SCAN_GROUP = "RECONCILER_SCAN"
#: A committed copy is younger than its half. This margin allows for wrong clocks, and for the search by time.
_BEFORE_MS = 600_000
#: A scan refuses a range of more records than this.
MAXIMUM_SCANNED = 1_000_000
#: A position counts as unreadable after this number of steps to a moved offset.
_MAXIMUM_STEPS = 8


def copies_of_prepared(
    client: RemotingClient,
    address: str,
    queue: MessageQueue,
    *,
    prepared_offset: int,
    stored_at_ms: int,
) -> list[MessageRecord]:
    """Returns the committed copies of a prepared record in its queue: records whose prepared-transaction offset is the
    prepared record's physical offset.

    Reads from ten minutes before the prepared record's store time to the end that the queue had at the start. Raises
    BrokerUnavailable if the range cannot be read completely, and the errors of pull().
    """
    offsets = Offsets(client)
    end = offsets.maximum(address, queue)
    begin = offsets.at_time(address, queue, stored_at_ms - _BEFORE_MS)
    return [
        record
        for record in scan(client, address, queue, begin_offset=begin, end_offset=end)
        if record.transaction_type is TransactionType.COMMIT and record.prepared_transaction_offset == prepared_offset
    ]


def scan(
    client: RemotingClient, address: str, queue: MessageQueue, *, begin_offset: int, end_offset: int
) -> Iterator[MessageRecord]:
    """Yields the records of the queue from `begin_offset` up to, but without, `end_offset`.

    Raises BrokerUnavailable if the range is too long, or the broker does not allow reading to its end.
    """
    if end_offset - begin_offset > MAXIMUM_SCANNED:
        raise BrokerUnavailable(f"{queue}: {end_offset - begin_offset} records are too many to scan")
    offset = begin_offset
    while offset < end_offset:
        result = pull(client, address, PullRequest(queue=queue, offset=offset, group=SCAN_GROUP))
        if result.status is PullStatus.NO_NEW or result.next_offset <= offset:
            raise BrokerUnavailable(f"{queue}: nothing at offset {offset} although the queue ends at {end_offset}")
        for record in result.records:
            if record.queue_offset < end_offset:
                yield record
        offset = result.next_offset


def first_stored_ms(
    client: RemotingClient, address: str, queue: MessageQueue, *, offset: int, end_offset: int, tag: str = "*"
) -> int | None:
    """Returns the store time of the first record at or after an offset. None if no record lies below `end_offset`.

    `tag`: only records with this tag count. If the first record with the tag is far away, may return the time of an
    earlier record. Raises BrokerUnavailable if no record can be read at the offset, and the errors of pull().
    """
    for step in range(2 * _MAXIMUM_STEPS):
        result = _pull_one(client, address, queue, offset, tag if step < _MAXIMUM_STEPS else "*")
        if result.records:
            return result.records[0].store_timestamp_ms
        if result.next_offset >= end_offset:
            return None
        if result.status is PullStatus.NO_NEW or result.next_offset <= offset:
            break
        offset = result.next_offset
    where = f"{queue.topic} queue {queue.queue_id} on {queue.broker_name}"
    raise BrokerUnavailable(f"no record to read at {where} offset {offset}")


def end_of_queue(client: RemotingClient, address: str, queue: MessageQueue, *, offset: int) -> int:
    """Returns the queue's largest offset, from the answer to a pull. On system topics, the reconciler's roles have no
    right except to pull.

    Raises the errors of pull().
    """
    return _pull_one(client, address, queue, offset).max_offset


def record_at(client: RemotingClient, address: str, queue: MessageQueue, offset: int) -> QueueRecord | None:
    """Returns the identity of the record at the offset. None if the broker does not show the record, for any reason."""
    with suppress(ReconcilerError):
        result = _pull_one(client, address, queue, offset)
        return next((record_of(record) for record in result.records if record.queue_offset == offset), None)
    return None


def _pull_one(client: RemotingClient, address: str, queue: MessageQueue, offset: int, tag: str = "*") -> PullResult:
    request = PullRequest(queue=queue, offset=offset, group=SCAN_GROUP, maximum=1, subscription=tag)
    return pull(client, address, request)

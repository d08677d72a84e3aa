"""PULL_MESSAGE without group membership, and long polling for consumers (PullMessageRequestHeader)."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.answers import number_field, refusal
from reconciler.rocketmq.wire.batch import unwrap
from reconciler.rocketmq.wire.codes import PullFlag, RequestCode, ResponseCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.record import MessageRecord, decode_records

#: Java's pullBatchSize.
DEFAULT_MAXIMUM = 32
#: Seconds that the client waits beyond the broker's holding time, because brokers look at held pulls only every few
#: seconds.
_HOLD_MARGIN_SECONDS = 15.0
_NEED_UNWRAP = int(SystemFlag.NEED_UNWRAP)


class PullStatus(Enum):
    """The meaning of the code in an answer to a pull."""

    FOUND = ResponseCode.SUCCESS
    #: No message at this offset yet.
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    #: The broker read records, but no record matched. The client continues at the next offset at once.
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    #: The offset is outside of the queue. `next_offset` is the corrected offset.
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


_ANSWERED = frozenset(int(status.value) for status in PullStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull from one queue."""

    queue: MessageQueue
    offset: int
    group: str
    maximum: int = DEFAULT_MAXIMUM
    #: A tag expression, such as "*" or "A || B". With None, the broker uses the subscription of the group's heartbeat.
    subscription: str | None = "*"
    #: Version of the subscription in milliseconds. A subscription that comes with every pull has version 0.
    subscription_version: int = 0
    #: Longest time for which the broker may hold the request until a message comes. With 0, the broker answers at once.
    suspend_seconds: float = 0.0

    def as_command(self) -> Command:
        """Returns the request."""
        flags = PullFlag(0)
        if self.suspend_seconds > 0:
            flags |= PullFlag.SUSPEND
        if self.subscription is not None:
            flags |= PullFlag.SUBSCRIPTION
        fields = {
            "consumerGroup": self.group,
            "topic": self.queue.topic,
            "queueId": str(self.queue.queue_id),
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.maximum),
            "sysFlag": str(int(flags)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(round(self.suspend_seconds * 1000)),
            "subscription": self.subscription or "",
            "subVersion": str(self.subscription_version),
            "expressionType": "TAG",
        }
        return Command(code=RequestCode.PULL_MESSAGE, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullResult:
    """The answer to a pull. Brokers filter tags by hash only, so the client must compare the tags again."""

    status: PullStatus
    records: list[MessageRecord]
    #: The offset at which to continue. `next_offset` may be greater than the last record's offset + 1, because records
    #: were filtered out.
    next_offset: int
    min_offset: int
    max_offset: int
    #: The brokerId of the master or slave to ask next. The master has 0.
    suggested_broker_id: int


def pull(client: RemotingClient, address: str, request: PullRequest) -> PullResult:
    """Pulls and waits for the answer. Raises what request() raises, BrokerBusy, BrokerRefused or ProtocolViolation."""
    answer = client.request(address, request.as_command(), timeout_seconds=_timeout(client, request))
    return read_pull_answer(answer, request.queue)


def submit_pull(client: RemotingClient, address: str, request: PullRequest) -> Future[Command]:
    """Sends a pull, and waits neither for the connection nor for the answer. Do not call read_pull_answer on the reader
    thread of the connection."""
    return client.submit_soon(address, request.as_command(), _timeout(client, request))


def read_pull_answer(answer: Command, queue: MessageQueue) -> PullResult:
    """Returns the result in an answer. Raises BrokerBusy, BrokerRefused or ProtocolViolation."""
    if answer.code not in _ANSWERED:
        raise refusal(answer, f"pull of {queue.topic} queue {queue.queue_id} on {queue.broker_name}")
    status = PullStatus(ResponseCode(answer.code))
    return PullResult(
        status=status,
        records=_records(answer.body, queue.broker_name) if status is PullStatus.FOUND else [],
        next_offset=number_field(answer, "nextBeginOffset"),
        min_offset=number_field(answer, "minOffset"),
        max_offset=number_field(answer, "maxOffset"),
        suggested_broker_id=number_field(answer, "suggestWhichBrokerId", 0),
    )


def _records(body: bytes, broker_name: str) -> list[MessageRecord]:
    """Returns every message of an answer. Messages of a topic with `queue.type=BatchCQ` come in batches."""
    records = decode_records(body, broker_name)
    if any(record.system_flag & _NEED_UNWRAP for record in records):
        return [member for record in records for member in unwrap(record)]
    return records


def _timeout(client: RemotingClient, request: PullRequest) -> float:
    if request.suspend_seconds > 0:
        return request.suspend_seconds + _HOLD_MARGIN_SECONDS
    return client.request_timeout_seconds

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
#: Seconds that waiting for an answer may take beyond the broker's holding time (the broker looks every few seconds).
_HOLD_MARGIN_SECONDS = 15.0
_NEED_UNWRAP = int(SystemFlag.NEED_UNWRAP)


class PullStatus(Enum):
    """The meaning of the answer's code."""

    FOUND = ResponseCode.SUCCESS
    #: No message at this offset yet.
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    #: Records were read but none matched: continue at the next offset at once.
    NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
    #: The offset is outside of the queue: `next_offset` has the corrected one.
    OFFSET_MOVED = ResponseCode.PULL_OFFSET_MOVED


_ANSWERED = frozenset(int(status.value) for status in PullStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull from one queue."""

    queue: MessageQueue
    offset: int
    group: str
    maximum: int = DEFAULT_MAXIMUM
    #: "*", "A || B"; None: the broker uses the subscription of the group's heartbeat.
    subscription: str | None = "*"
    #: Version of the subscription, milliseconds; 0 for one that comes with every pull.
    subscription_version: int = 0
    #: How long the broker may hold the request until a message comes; 0: it answers at once.
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
    """Answer to a pull. Brokers filter tags by hash only: compare them again."""

    status: PullStatus
    records: list[MessageRecord]
    #: Where to continue; because of filtered records it is not the last record's offset + 1.
    next_offset: int
    min_offset: int
    max_offset: int
    #: Which member of the broker to ask next; 0 is the master.
    suggested_broker_id: int


def pull(client: RemotingClient, address: str, request: PullRequest) -> PullResult:
    """Pulls and waits. Raises what request() raises, BrokerBusy, BrokerRefused, ProtocolViolation."""
    answer = client.request(address, request.as_command(), timeout_seconds=_timeout(client, request))
    return read_pull_answer(answer, request.queue)


def submit_pull(client: RemotingClient, address: str, request: PullRequest) -> Future[Command]:
    """Sends a pull without waiting for the answer or for connecting; read_pull_answer must read the answer on another
    thread than the reader's."""
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
    """Returns every message of an answer; messages of a topic with `queue.type=BatchCQ` come in batches."""
    records = decode_records(body, broker_name)
    if any(record.system_flag & _NEED_UNWRAP for record in records):
        return [member for record in records for member in unwrap(record)]
    return records


def _timeout(client: RemotingClient, request: PullRequest) -> float:
    if request.suspend_seconds > 0:
        return request.suspend_seconds + _HOLD_MARGIN_SECONDS
    return client.request_timeout_seconds

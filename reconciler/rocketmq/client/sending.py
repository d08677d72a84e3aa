"""Sends messages with SEND_MESSAGE and SEND_MESSAGE_V2 (SendMessageRequestHeader, SendMessageRequestHeaderV2)."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from reconciler.errors import (
    BrokerBusy,
    BrokerRefused,
    BrokerUnavailable,
    RequestTimeout,
    UsageError,
)
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.client.families import Families
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.wire.answers import number_field, refusal
from reconciler.rocketmq.wire.broker_facts import BrokerFacts
from reconciler.rocketmq.wire.codes import (
    AUTO_CREATE_TOPIC,
    RequestCode,
    ResponseCode,
    SystemFlag,
)
from reconciler.rocketmq.wire.compression import compress_zlib
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.message_id import decode_offset_message_id
from reconciler.rocketmq.wire.properties import encode_properties
from reconciler.rocketmq.wire.unique_keys import UniqueKeyGenerator

#: A longer body is compressed (compressMsgBodyOverHowmuch in Java).
COMPRESS_OVER_BYTES = 4_096
#: Attempts to send an ordinary message. Java's retryTimesWhenSendFailed is 2, which makes three attempts.
DEFAULT_ATTEMPTS = 3

#: Field names of SEND_MESSAGE -> the letters that SEND_MESSAGE_V2 uses.
_LETTERS = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "batch": "m",
}  # fmt: skip

#: Codes after which Java tries another broker (DefaultMQProducerImpl.sendDefaultImpl). With these codes, the message
#: was not stored.
_TRY_ANOTHER = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)


class SendStatus(Enum):
    """The safety of the stored message (MQClientAPIImpl.processSendResponse)."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE


_STORED = frozenset(int(status.value) for status in SendStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """A stored message."""

    status: SendStatus
    unique_key: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_id: int
    #: Position in the queue. For a half, END_TRANSACTION needs this number (0 up to 4.2).
    queue_offset: int
    #: Transaction id of the broker, equal to the unique key. Brokers before 5.0 send none.
    transaction_id: str | None
    commit_log_offset: int
    #: Version of the broker, as its ordinal in MQVersion.
    broker_version: int


class Sender:
    """Sends messages for one producer group. Thread-safe: the only state is a counter."""

    def __init__(
        self,
        client: RemotingClient,
        routes: Routes,
        families: Families,
        *,
        group: str,
        unique_keys: UniqueKeyGenerator,
        compress_over_bytes: int = COMPRESS_OVER_BYTES,
        uses_v1: bool = False,
    ) -> None:
        self.group = group
        self._client = client
        self._routes = routes
        self._families = families
        self._unique_keys = unique_keys
        self._compress_over_bytes = compress_over_bytes
        self._uses_v1 = uses_v1
        self._turn = itertools.count(random.randrange(1_000))
        self._turn_lock = threading.Lock()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        is_half: bool = False,
        attempts: int | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Sends the message and waits until it is stored. After a failure, tries another broker unless `queue` is
        given.

        An ordinary message is also sent again if nobody knows whether it was stored, so it may arrive twice. A half is
        not sent again then, because a copy on another broker would be a second transaction. Raises BrokerBusy,
        BrokerRefused, BrokerUnavailable, RequestTimeout, TopicNotFound, ProtocolViolation.
        """
        if is_half and message.delay_level is not None:
            raise UsageError("a transactional message cannot be delayed: older brokers would ask for it without end")
        key = message.unique_key or self._unique_keys.next_key()
        tries = (DEFAULT_ATTEMPTS if queue is None else 1) if attempts is None else attempts
        failed: set[str] = set()
        failure: Exception | None = None
        for _ in range(max(1, tries)):
            target = queue or self._choose(message.topic, failed, is_again=failure is not None)
            try:
                address = self._address(target)
                return self.send_to(
                    address, target, message, unique_key=key, is_half=is_half, timeout_seconds=timeout_seconds
                )
            except (BrokerBusy, BrokerUnavailable, RequestTimeout, BrokerRefused) as error:
                if not _may_try_again(error, is_half=is_half):
                    raise
                failure = error
                failed.add(target.broker_name)
        assert failure is not None  # noqa: S101  # the loop ran at least once and did not return
        raise failure

    def send_soon(self, message: Message) -> Callable[[], SendResult]:
        """Sends an ordinary message without a second try. Returns a function that waits until the message is stored.
        This call and the returned function raise what send() raises."""
        key = message.unique_key or self._unique_keys.next_key()
        target = self._choose(message.topic, set(), is_again=False)
        address = self._address(target)
        command = self._command(target, message, key, self._families.facts(address), is_half=False)
        future = self._client.pipeline(address, command)

        def hear() -> SendResult:
            what = f"message to {target.topic} on {target.broker_name}"
            answer = self._client.wait(future, self._client.request_timeout_seconds, what)
            return _stored(answer, target, key)

        return hear

    # ----------------------------------------------------------------- one request

    def send_to(
        self,
        address: str,
        target: MessageQueue,
        message: Message,
        *,
        unique_key: str | None = None,
        is_half: bool = False,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Sends one request to the master at the address. The route need not name this master. Raises what send()
        raises."""
        key = unique_key or message.unique_key or self._unique_keys.next_key()
        command = self._command(target, message, key, self._families.facts(address), is_half=is_half)
        answer = self._client.request(address, command, timeout_seconds=timeout_seconds)
        return _stored(answer, target, key)

    def _command(
        self, target: MessageQueue, message: Message, key: str, facts: BrokerFacts, *, is_half: bool
    ) -> Command:
        properties = message.wire_properties(key)
        if not facts.indexes_unique_key and key not in message.keys:
            properties["KEYS"] = " ".join((key, *message.keys))
        system_flag = 0
        if is_half:
            properties |= {"TRAN_MSG": "true", "PGROUP": self.group}
            system_flag |= SystemFlag.PREPARED
        body = message.body
        if len(body) > self._compress_over_bytes:
            compressed = compress_zlib(body)
            if len(compressed) < len(body):
                body, system_flag = compressed, system_flag | SystemFlag.COMPRESSED
        text = encode_properties(properties)
        fields = self._fields(target, text, flag=message.flag, system_flag=system_flag)
        if self._uses_v1:
            return Command(code=RequestCode.SEND_MESSAGE, fields=fields, body=body)
        short = {_LETTERS[name]: value for name, value in fields.items()}
        return Command(code=RequestCode.SEND_MESSAGE_V2, fields=short, body=body)

    def _fields(self, target: MessageQueue, properties: str, *, flag: int, system_flag: int) -> dict[str, str]:
        return {
            "producerGroup": self.group,
            "topic": target.topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "defaultTopicQueueNums": "4",
            "queueId": str(target.queue_id),
            "sysFlag": str(int(system_flag)),
            "bornTimestamp": str(self._client.clock.now_ms()),
            "flag": str(flag),
            "properties": properties,
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }

    # ----------------------------------------------------------------- choosing a queue

    def _choose(self, topic: str, failed: set[str], *, is_again: bool) -> MessageQueue:
        route = self._routes.refresh(topic) if is_again else self._routes.route(topic)
        queues = route.writable_queues
        others = [queue for queue in queues if queue.broker_name not in failed] or queues
        if not others:
            raise BrokerUnavailable(f"no broker with a master has a queue of {topic} that may be written")
        with self._turn_lock:
            turn = next(self._turn)
        return others[turn % len(others)]

    def _address(self, target: MessageQueue) -> str:
        address = self._routes.master_of(target.topic, target.broker_name)
        if address is None:
            address = self._routes.refresh(target.topic).masters.get(target.broker_name)
        if address is None:
            raise BrokerUnavailable(f"{target.broker_name} has no master in the route of {target.topic}")
        return address


def _may_try_again(error: Exception, *, is_half: bool) -> bool:
    if isinstance(error, RequestTimeout | ConnectionLost):
        return not is_half
    if isinstance(error, BrokerRefused):
        return error.code in _TRY_ANOTHER
    return True


def _stored(answer: Command, target: MessageQueue, key: str) -> SendResult:
    _require_stored(answer, f"message to {target.topic} on {target.broker_name}")
    return _result(answer, target, key, answer.fields.get("msgId", ""))


def _require_stored(answer: Command, what: str) -> None:
    if answer.code not in _STORED:
        raise refusal(answer, what)


def _result(answer: Command, target: MessageQueue, key: str, offset_message_id: str) -> SendResult:
    return SendResult(
        status=SendStatus(ResponseCode(answer.code)),
        unique_key=key,
        offset_message_id=offset_message_id,
        topic=target.topic,
        broker_name=target.broker_name,
        queue_id=number_field(answer, "queueId"),
        queue_offset=number_field(answer, "queueOffset"),
        transaction_id=answer.fields.get("transactionId"),
        commit_log_offset=decode_offset_message_id(offset_message_id).commit_log_offset,
        broker_version=answer.version,
    )

"""Sends unconsumed messages back to the broker, which delivers them later.

The broker puts a copy into %RETRY%<group>, and each further copy comes after a longer delay. After too many deliveries,
the copy goes into %DLQ%<group>.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.client.routes import MessageQueue, Routes
from reconciler.rocketmq.client.sending import COMPRESS_OVER_BYTES, SendStatus
from reconciler.rocketmq.wire.answers import refusal, require_success
from reconciler.rocketmq.wire.codes import AUTO_CREATE_TOPIC, RequestCode, SystemFlag, retry_topic
from reconciler.rocketmq.wire.compression import compress_zlib
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.properties import encode_properties
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.rocketmq.wire.record import MessageRecord

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
#: The broker chooses the delay: level 3 (10 s) after the first failure, then one level more each time.
_DELAY_BY_BROKER = 0
_DELAY_DEAD_LETTER = -1
_FIRST_DELAY_LEVEL = 3
_LAST_DELAY_LEVEL = 18
#: Maximum number of brokers to which this client tries to send a retry copy.
_COPY_ATTEMPTS = 3

_STORED = frozenset(int(status.value) for status in SendStatus)
#: Properties that a copy must not have. A copy must be an ordinary message, and with TRAN_MSG a broker would make it a
#: half (apache/rocketmq#1648).
_NOT_COPIED = frozenset(
    {
        "TRAN_MSG", "PGROUP", "REAL_TOPIC", "REAL_QID", "DELAY", "TRANSACTION_CHECK_TIMES", "WAIT",
        "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS", "MIN_OFFSET", "MAX_OFFSET",
        "CONSUME_START_TIME", "RECONSUME_TIME", "MAX_RECONSUME_TIMES",
    }
)  # fmt: skip


class _Place(NamedTuple):
    """The place of a record that is sent back."""

    topic: str
    broker_name: str
    commit_log_offset: int


class RetryRoute:
    """Sends messages of one group back. Thread-safe, without state. A call blocks for a few requests."""

    def __init__(self, client: RemotingClient, routes: Routes, *, group: str, max_reconsume_times: int) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._max_reconsume_times = max_reconsume_times

    def later(self, message: ReceivedMessage) -> bool:
        """Sends CONSUMER_SEND_MSG_BACK. If that fails, sends a copy to the retry topic. Returns False if brokers
        accepted neither.

        A request without an answer may have been executed. If two copies exist for this reason, consumers dedupe. After
        the last delivery, the request asks for the dead letters, because 3.2.6 knows only the limit in the group's
        configuration.
        """
        is_last = message.reconsume_times >= self._max_reconsume_times
        place = _Place(message.stored_topic, message.broker_name, message.commit_log_offset)
        name = message.unique_key or message.offset_message_id
        delay = _DELAY_DEAD_LETTER if is_last else _DELAY_BY_BROKER
        return self._hand_back(place, name, message.topic, delay) or self._send_copy(message)

    def dead_letter(self, message: ReceivedMessage) -> bool:
        """Sends the message straight to the group's dead letters. Returns False if the broker did not accept the
        message."""
        place = _Place(message.stored_topic, message.broker_name, message.commit_log_offset)
        name = message.unique_key or message.offset_message_id
        return self._hand_back(place, name, message.topic, _DELAY_DEAD_LETTER)

    def unread(self, record: MessageRecord) -> bool:
        """Sends back a record whose body cannot be read. Returns False if the broker did not accept the record."""
        place = _Place(record.topic, record.broker_name, record.physical_offset)
        name = record.unique_key or record.offset_message_id
        return self._hand_back(place, name, record.properties.get("RETRY_TOPIC", record.topic), _DELAY_BY_BROKER)

    def _hand_back(self, place: _Place, name: str, topic: str, delay_level: int) -> bool:
        fields = {
            "offset": str(place.commit_log_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": name,
            "originTopic": topic,
            "unitMode": "false",
            # This field is always sent. Without it, a broker of 4.4.0 fails with a null pointer.
            "maxReconsumeTimes": str(self._max_reconsume_times),
        }
        try:
            address = self._routes.master_of(place.topic, place.broker_name)
            if address is None:
                logger.warning("message_not_taken_back: %s cannot go back: %s has no master", name, place.broker_name)
                return False
            command = Command(code=RequestCode.CONSUMER_SEND_MSG_BACK, fields=fields)
            answer = self._client.request(address, command, timeout_seconds=TIMEOUT_SECONDS)
            require_success(answer, f"send-back of {name}")
        except ReconcilerError as error:
            logger.warning("message_not_taken_back: %s was not taken back by %s: %s", name, place.broker_name, error)
            return False
        return True

    def _send_copy(self, message: ReceivedMessage) -> bool:
        """Sends a copy, as the fallback of DefaultMQPushConsumerImpl.sendMessageBack does."""
        topic = retry_topic(self._group)
        try:
            route = self._routes.route(topic)
            by_broker = {queue.broker_name: queue for queue in route.writable_queues}
            # The broker that just failed comes last.
            queues = sorted(by_broker.values(), key=lambda queue: queue.broker_name == message.broker_name)
        except ReconcilerError as error:
            logger.warning("retry_copy_missing: no copy of %s in %s: %s", message.unique_key, topic, error)
            return False
        for queue in queues[:_COPY_ATTEMPTS]:
            try:
                command = self._copy_of(message, queue)
                answer = self._client.request(
                    route.masters[queue.broker_name], command, timeout_seconds=TIMEOUT_SECONDS
                )
                if answer.code in _STORED:
                    return True
                raise refusal(answer, f"copy of {message.unique_key}")
            except ReconcilerError as error:
                logger.warning(
                    "retry_copy_missing: no copy of %s in %s on %s: %s",
                    message.unique_key,
                    topic,
                    queue.broker_name,
                    error,
                )
        return False

    def _copy_of(self, message: ReceivedMessage, queue: MessageQueue) -> Command:
        level = min(_FIRST_DELAY_LEVEL + message.reconsume_times, _LAST_DELAY_LEVEL)
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
        properties |= {"RETRY_TOPIC": message.topic, "DELAY": str(level), "WAIT": "true"}
        properties.setdefault("ORIGIN_MESSAGE_ID", message.offset_message_id)
        body, system_flag = message.body, 0
        if len(body) > COMPRESS_OVER_BYTES:
            body, system_flag = compress_zlib(body), int(SystemFlag.COMPRESSED)
        fields = {
            "a": self._group, "b": queue.topic, "c": AUTO_CREATE_TOPIC, "d": "4", "e": str(queue.queue_id),
            "f": str(system_flag), "g": str(message.born_timestamp_ms), "h": str(message.flag),
            "i": encode_properties(properties), "j": str(message.reconsume_times + 1), "k": "false",
            "l": str(self._max_reconsume_times), "m": "false",
        }  # fmt: skip
        return Command(code=RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)

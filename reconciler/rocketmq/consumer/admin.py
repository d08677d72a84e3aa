"""Requests of brokers to a consumer on behalf of an administrator (ClientRemotingProcessor)."""

from __future__ import annotations

import json
from collections.abc import Callable

from reconciler.clock import Clock
from reconciler.errors import ReconcilerError
from reconciler.rocketmq.client.heartbeat import ConsumerMembership
from reconciler.rocketmq.consumer.admin_bodies import object_with_tables, parse_reset_offsets, table_by_queue
from reconciler.rocketmq.consumer.assignment import Assignment
from reconciler.rocketmq.consumer.listener import MessageListener, call_listener
from reconciler.rocketmq.consumer.process_queue import ProcessQueue
from reconciler.rocketmq.wire.codes import CLIENT_VERSION, ResponseCode
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.rocketmq.wire.received_message import received
from reconciler.rocketmq.wire.record import decode_records


class AdminAnswers:
    """Answers administrators' requests for one consumer. Handler threads of the client call this object, which has no
    state."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        membership: Callable[[], ConsumerMembership],
        listener: MessageListener,
        is_orderly: bool,
        started_at_ms: int,
        name_servers: str,
        clock: Clock,
        pull_soon: Callable[[ProcessQueue], None],
    ) -> None:
        self._assignment = assignment
        self._membership = membership
        self._listener = listener
        self._is_orderly = is_orderly
        self._started_at_ms = started_at_ms
        self._name_servers = name_servers
        self._clock = clock
        self._pull_soon = pull_soon

    def reset_offsets(self, _address: str, request: Command) -> None:
        """Handles RESET_CONSUMER_CLIENT_OFFSET. The consumer goes on from the given offsets, and cached messages are
        dropped."""
        for queue, offset in parse_reset_offsets(request.body).items():
            held = self._assignment.find(queue)
            if held is not None:
                held.seek(max(0, offset))
                self._assignment.commit_one(held)
                self._pull_soon(held)

    def status(self, _address: str, request: Command) -> Command:
        """Handles GET_CONSUMER_STATUS_FROM_CLIENT. Returns the offset of each held queue of the topic
        (GetConsumerStatusBody)."""
        topic = request.fields.get("topic")
        rows = [(held.queue, held.committable()) for held in self._assignment.queues() if held.queue.topic == topic]
        tables = {"messageQueueTable": table_by_queue(rows), "consumerTable": "{}"}
        return reply_to(request, ResponseCode.SUCCESS, body=object_with_tables({}, tables))

    def running_info(self, _address: str, request: Command) -> Command:
        """Handles GET_CONSUMER_RUNNING_INFO (ConsumerRunningInfo). The answer has no stack trace."""
        membership = self._membership()
        members: dict[str, object] = {
            "properties": {
                "PROP_CLIENT_VERSION": f"V{CLIENT_VERSION}",
                "PROP_CONSUMEORDERLY": "true" if self._is_orderly else "false",
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_at_ms),
                "PROP_NAMESERVER_ADDR": self._name_servers,
                "consumeFromWhere": str(membership.consume_from),
                "consumerGroup": membership.group,
                "messageModel": "CLUSTERING",
            },
            "statusTable": {},
            "subscriptionSet": [subscription.to_heartbeat() for subscription in membership.subscriptions],
        }
        rows = [(held.queue, self._queue_info(held)) for held in self._assignment.queues()]
        return reply_to(
            request, ResponseCode.SUCCESS, body=object_with_tables(members, {"mqTable": table_by_queue(rows)})
        )

    def consume_directly(self, _address: str, request: Command) -> Command:
        """Handles CONSUME_MESSAGE_DIRECTLY. Runs the listener on one message and returns the listener's result."""
        began = self._clock.monotonic_seconds()
        try:
            messages = [
                received(record) for record in decode_records(request.body, request.fields.get("brokerName", ""))
            ]
        except ReconcilerError as error:
            return reply_to(request, ResponseCode.SYSTEM_ERROR, remark=f"the message cannot be read: {error}")
        if len(messages) != 1:
            return reply_to(request, ResponseCode.SYSTEM_ERROR, remark=f"{len(messages)} messages in the request")
        answer = call_listener(self._listener, messages)
        result = {
            "autoCommit": True,
            "consumeResult": answer.direct_result,
            "order": self._is_orderly,
            "remark": answer.remark,
            "spentTimeMills": round((self._clock.monotonic_seconds() - began) * 1000),
        }
        return reply_to(request, ResponseCode.SUCCESS, body=json.dumps(result).encode())

    def _queue_info(self, held: ProcessQueue) -> dict[str, object]:
        """Returns the fields of ProcessQueueInfo that this consumer can fill."""
        state = held.state()
        return {
            "cachedMsgCount": state.messages,
            "cachedMsgMaxOffset": max(state.next_offset - 1, 0),
            "cachedMsgMinOffset": state.committable,
            "cachedMsgSizeInMiB": state.bytes // (1024 * 1024),
            "commitOffset": state.committable,
            "droped": state.is_revoked,  # sic
            "locked": self._is_orderly,
        }

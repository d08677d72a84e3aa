"""Handlers for administrators' requests that a consumer answers (GET_CONSUMER_RUNNING_INFO 307,
CONSUME_MESSAGE_DIRECTLY 309)."""

from __future__ import annotations

from reconciler.embedded.channel import Channel
from reconciler.embedded.reply import Reply, text
from reconciler.embedded.services import BrokerServices
from reconciler.rocketmq.wire.codes import RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command


def forward(broker: BrokerServices, channel: Channel, request: Command) -> Reply | None:
    """Asks the client and passes the client's answer on (AdminBrokerProcessor.callConsumer). Without an answer of the
    client, the broker does not answer."""
    group_name, client_id = text(request, "consumerGroup"), text(request, "clientId")
    group = broker.clients.consumers.get(group_name)
    members = group.members if group is not None else {}
    target = next((member for member, client in members.items() if client.client_id == client_id), None)
    if target is None or not target.is_open:
        remark = f"The Consumer <{group_name}> <{client_id}> not online"
        return Reply(ResponseCode.SYSTEM_ERROR, remark)
    body = b""
    if request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        message_id = request.fields.get("msgId", "")
        offset = int(message_id[-16:], 16) if len(message_id) == 32 and message_id.isalnum() else -1
        body = broker.store.record_at(offset) or b""
    target.request(
        request.code,
        request.fields,
        body,
        on_answer=lambda answer: channel.reply(request, Reply(answer.code, answer.remark, answer.fields, answer.body)),
    )
    return None

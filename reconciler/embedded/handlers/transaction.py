"""Handlers for END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323), and check-backs (39) to producers."""

from __future__ import annotations

from reconciler.embedded.channel import Channel
from reconciler.embedded.faults import EndFate
from reconciler.embedded.layout import BrokerMessage, encode
from reconciler.embedded.reply import BadField, Reply, boolean, integer, text, unsupported
from reconciler.embedded.services import BrokerServices
from reconciler.embedded.transactions import EndHeader
from reconciler.rocketmq.wire.codes import HALF_TOPIC, RequestCode, ResponseCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.properties import INT_MAX, whole_number


def end_transaction(broker: BrokerServices, channel: Channel, request: Command) -> Reply | None:
    """Executes END_TRANSACTION (EndTransactionProcessor), unless a fault knob decides another fate."""
    end = EndHeader(
        producer_group=text(request, "producerGroup"),
        state_table_offset=integer(request, "tranStateTableOffset"),
        log_offset=integer(request, "commitLogOffset"),
        decision=integer(request, "commitOrRollback"),
        from_check=boolean(request, "fromTransactionCheck"),
    )
    broker.faults.counts["check_answered"] += end.from_check
    fate, seconds = broker.faults.fate_of_end(lambda: _keys(broker, request, end.log_offset))
    if fate is EndFate.DROP:
        return None
    if fate is EndFate.KILL:
        broker.faults.bury(end.producer_group)
    if fate in (EndFate.CLOSE, EndFate.KILL):
        channel.close()
        return None
    if fate is EndFate.DELAY:
        broker.later(seconds, lambda: channel.reply(request, broker.transactions.end(end)))
        return None
    return broker.transactions.end(end)


def _keys(broker: BrokerServices, request: Command, log_offset: int) -> set[str]:
    keys = {request.fields.get("msgId", ""), request.fields.get("transactionId", "")}
    half = broker.store.message_at(log_offset)
    if half is not None:
        keys |= {half.properties.get("UNIQ_KEY", ""), *half.properties.get("KEYS", "").split(" ")}
    return keys - {""}


def resume_check(broker: BrokerServices, _channel: Channel, request: Command) -> Reply | None:
    """Answers RESUME_CHECK_HALF_MESSAGE (4.5.2+). Appends a new half whose count of checks is 0. Does not check the
    topic of the record."""
    if not broker.family.keeps_discarded:
        return unsupported(request, broker.family)
    message_id = text(request, "msgId")
    try:
        offset = int(message_id[-16:], 16)
    except ValueError as error:
        raise BadField(f"msgId {message_id!r} is no offset message id") from error
    message = broker.store.message_at(offset)
    if message is None:
        return Reply(ResponseCode.SYSTEM_ERROR, f"Not found message by the offset, {offset}")
    half = message.copied()
    half.topic, half.queue_id = HALF_TOPIC, 0
    half.put_properties(trimmed=broker.family.trims_properties, TRANSACTION_CHECK_TIMES="0")
    broker.store.append(half)
    return Reply()


def ask_producer(broker: BrokerServices, half: BrokerMessage) -> None:
    """Sends a one-way check-back to one channel of the producer group
    (AbstractTransactionalMessageCheckListener.sendCheckMessage)."""
    properties = half.properties
    channel = broker.clients.available_channel(properties.get("PGROUP", ""))
    if channel is None or broker.faults.drops_check():
        return
    unique_key = properties.get("UNIQ_KEY", "")
    fields = {
        "commitLogOffset": str(half.physical_offset),
        "msgId": unique_key,
        "offsetMsgId": broker.store.message_id(half),
        "transactionId": unique_key,
        "tranStateTableOffset": str(half.queue_offset),
    }
    if broker.family.batches_finished:
        fields |= {"bname": broker.settings.broker_name, "topic": HALF_TOPIC}
    question = half.copied()
    question.topic = properties.get("REAL_TOPIC", half.topic)
    question.queue_id = whole_number(properties.get("REAL_QID", "0"), maximum=INT_MAX) or 0
    question.queue_offset, question.physical_offset = half.queue_offset, half.physical_offset
    question.put_properties(trimmed=broker.family.trims_properties, WAIT="false")
    broker.faults.counts["check_sent"] += 1
    channel.request(RequestCode.CHECK_TRANSACTION_STATE, fields, encode(question))

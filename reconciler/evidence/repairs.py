"""The acts of repair on real brokers (reconciler/policy/ports: BrokerRepairs): another END_TRANSACTION, and
republishing.

Each act sends at most one request with an effect. A broker's failure raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from reconciler.contract.content_digest import content_keys
from reconciler.contract.facts import Fact
from reconciler.contract.properties import user_properties
from reconciler.errors import (
    BrokerRefused,
    BrokerUnavailable,
    InvalidValue,
    MalformedInput,
    RequestTimeout,
    TransientError,
)
from reconciler.evidence.lookup import Lookups
from reconciler.policy.evidence import EndOutcome, Recorded, SendAnswer, StoredMessage, TransactionState
from reconciler.policy.ports.asked import Asked, known
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.producer.ending import EndAnswer, EndDecision, EndRequest, end_soon
from reconciler.rocketmq.wire.codes import HALF_TOPICS, ResponseCode
from reconciler.rocketmq.wire.message import Message

#: Producer group under which messages are republished.
REPUBLISH_GROUP = "RECONCILER_REPUBLISH"


class RemotingBrokerRepairs:
    """Repairs through brokers. Thread-safe, without state."""

    def __init__(
        self, instance: ClientInstance, *, english: Callable[[Fact], str], client: RemotingClient | None = None
    ) -> None:
        """`english` writes the text of a broker's answer that shows no half. `client` sends over connections of its
        own, so that no other answer can end a connection with an END on it. None: the instance's client."""
        self._instance = instance
        self._client = client or instance.client
        self._english = english
        self._lookups = Lookups(instance.client, instance.routes, instance.families)
        self._sender = instance.sender(REPUBLISH_GROUP, client=self._client)

    def end_transaction(self, half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        """Reads the half copy again at its offset, and returns a function. A call of this function checks that the
        record is the expected half, and sends the END.

        Without the check, a broker would accept an END on a record that is no half, and deliver again, or close another
        message's half. The END has the record's own group and offsets.
        """
        try:
            address = self._address(half)
            has_half_topic = self._instance.families.facts(address).has_half_topic
        except (TransientError, BrokerRefused) as error:
            refused = SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, detail=str(error))
            return lambda: known(refused)
        again = self._lookups.at_offset(half.real_topic, half.broker, half.commit_log_offset, half.unique_key)

        def send() -> Asked[SendAnswer]:
            now = again()
            if now.is_unknown:
                detail = self._english(now.reason)
                return known(SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, detail=detail))
            if now.is_absent:
                detail = f"read again: {self._english(now.reason)}"
                return known(SendAnswer(outcome=EndOutcome.MISMATCH, detail=detail))
            record = now.records[0]
            guard = _objection(record, half, expected, has_half_topic=has_half_topic)
            if guard is not None:
                return known(SendAnswer(outcome=EndOutcome.NOT_SENT, detail=guard))
            # Up to 4.2, a prepared record has no place in its queue, and the broker compares the offset with 0.
            table_offset = record.queue_offset if has_half_topic else 0
            ended = end_soon(self._client, _end_of(record, address, table_offset=table_offset, commit=commit))
            return lambda: _answer_of(ended())

        return send

    def republish(self, message: StoredMessage) -> Asked[SendAnswer]:
        """Sends an ordinary message with the half's topic, body, TAGS, KEYS, UNIQ_KEY, flag and user properties.

        Sends no other property of the half: TRAN_MSG alone would make the message a half again. Tries only once.
        """
        try:
            again = Message(
                topic=message.real_topic,
                body=message.body,
                tags=message.tag,
                keys=tuple(content_keys(message.properties.get("KEYS"), message.unique_key).split()),
                properties=user_properties(message.properties),
                flag=message.flag,
                unique_key=message.unique_key,
            )
        except InvalidValue as error:
            return known(SendAnswer(outcome=EndOutcome.NOT_SENT, detail=str(error)))
        try:
            stored = self._sender.send_soon(again)
        except (BrokerRefused, TransientError, MalformedInput) as error:
            return known(_refusal(error))

        def hear() -> SendAnswer:
            try:
                result = stored()
            except (BrokerRefused, TransientError, MalformedInput) as error:
                return _refusal(error)
            detail = f"{result.broker_name}/{result.queue_id}@{result.queue_offset}: {result.status.name}"
            return SendAnswer(outcome=EndOutcome.DONE, code=int(result.status.value), detail=detail)

        return hear

    def _address(self, half: StoredMessage) -> str:
        for place in self._instance.routes.whereabouts(half.real_topic):
            if place.broker_name == half.broker and place.master is not None:
                return place.master
        raise BrokerUnavailable(f"{half.broker} has no master that could be asked")


def _end_of(record: StoredMessage, address: str, *, table_offset: int, commit: bool) -> EndRequest:
    return EndRequest(
        address=address,
        producer_group=record.producer_group,
        tran_state_table_offset=table_offset,
        commit_log_offset=record.commit_log_offset,
        decision=EndDecision.COMMIT if commit else EndDecision.ROLLBACK,
        message_id=record.unique_key,
        transaction_id=record.properties.get("__transactionId__"),
        from_transaction_check=True,
    )


def _answer_of(answer: EndAnswer) -> SendAnswer:
    return SendAnswer(outcome=EndOutcome[answer.status.name], code=answer.code, detail=answer.remark or "")


def _refusal(error: BrokerRefused | TransientError | MalformedInput) -> SendAnswer:
    """Returns the outcome of a send that raised an error. NO_ANSWER: the broker may have stored the message."""
    if isinstance(error, RequestTimeout | ConnectionLost | MalformedInput):
        return SendAnswer(outcome=EndOutcome.NO_ANSWER, detail=str(error))
    if isinstance(error, BrokerRefused):
        is_hopeless = error.code == ResponseCode.MESSAGE_ILLEGAL
        outcome = EndOutcome.NOT_SENT if is_hopeless else EndOutcome.REFUSED_FOR_NOW
        return SendAnswer(outcome=outcome, code=error.code, detail=str(error))
    return SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, detail=str(error))


def _objection(now: StoredMessage, half: StoredMessage, expected: Recorded, *, has_half_topic: bool) -> str | None:
    """Returns why the record is not the half to end. None if the record is this half."""
    is_prepared = now.transaction_state is TransactionState.PREPARED
    if not (now.topic in HALF_TOPICS if has_half_topic else is_prepared):
        return f"the record at {half.commit_log_offset} is no half: topic {now.topic}, {now.transaction_state}"
    if now.real_topic != expected.topic:
        return f"REAL_TOPIC is {now.real_topic}, expected {expected.topic}"
    if now.unique_key != expected.unique_key:
        return f"UNIQ_KEY is {now.unique_key}, expected {expected.unique_key}"
    if now.producer_group != expected.producer_group:
        return f"PGROUP is {now.producer_group}, expected {expected.producer_group}"
    if now.queue_offset != half.queue_offset:
        return f"queue offset is {now.queue_offset}, expected {half.queue_offset}"
    if expected.content_digest is not None and now.content_digest != expected.content_digest:
        return "the content is not what the outbox row says"
    return None

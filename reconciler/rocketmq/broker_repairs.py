"""The acts of a repair at brokers (ports.BrokerRepairs): END_TRANSACTION with its guards, and republishing.

Brokers compare group and offsets and nothing else: an END that is aimed at a committed copy delivers once more, and
from 4.3 on may close somebody else's half. So the record is read again right before, and must be the expected half.
"""

from __future__ import annotations

from reconciler.contract.content_digest import content_keys
from reconciler.contract.properties import KEYS, TAGS, user_properties
from reconciler.errors import (
    BrokerBusy,
    BrokerRefused,
    BrokerUnavailable,
    ConfigurationError,
    ProtocolViolation,
    ReconcilerError,
    RequestTimeout,
)
from reconciler.evidence import EndOutcome, OutboxRow, SendAnswer, StoredMessage, TransactionState
from reconciler.rocketmq.client import RemotingClient
from reconciler.rocketmq.codes import HALF_TOPIC, ResponseCode
from reconciler.rocketmq.connection import ConnectionLost
from reconciler.rocketmq.ending import EndDecision, EndRequest, end_transaction
from reconciler.rocketmq.families import Families
from reconciler.rocketmq.lookup import Lookups
from reconciler.rocketmq.message import Message
from reconciler.rocketmq.routes import Routes
from reconciler.rocketmq.sending import Sender

#: Producer group under which messages are republished.
REPUBLISH_GROUP = "RECONCILER_REPUBLISH"


class RemotingBrokerRepairs:
    """ports.BrokerRepairs over the remoting client. Thread-safe, holds no state.

    `sender` sends for REPUBLISH_GROUP.
    """

    def __init__(
        self, client: RemotingClient, *, routes: Routes, families: Families, lookups: Lookups, sender: Sender
    ) -> None:
        self._client = client
        self._routes = routes
        self._families = families
        self._lookups = lookups
        self._sender = sender

    def end_transaction(self, half: StoredMessage, *, expected: OutboxRow, commit: bool) -> SendAnswer:
        """END on the half copy at its own broker's master, after it was read again and found to be the expected one."""
        try:
            address = self._routes.master_of(expected.topic, half.broker)
            if address is None:
                return _not_now(f"{half.broker} has no master in the route of {expected.topic}")
            facts = self._families.facts(address)
        except ReconcilerError as error:
            return _not_now(str(error))
        again = self._lookups.at_offset(expected.topic, half.broker, half.commit_log_offset, half.unique_key)
        if again.is_unknown:
            return _not_now(again.reason)
        if again.is_absent:
            return SendAnswer(outcome=EndOutcome.MISMATCH, detail=f"read again: {again.reason}")
        record = again.records[0]
        refusal = guard(record, expected=expected, has_half_topic=facts.has_half_topic)
        if refusal is not None:
            return SendAnswer(outcome=EndOutcome.NOT_SENT, detail=refusal)
        answer = end_transaction(
            self._client,
            EndRequest(
                address=address,
                producer_group=record.producer_group,
                # Up to 4.2 the prepared record has no place in its queue: 0 is what the broker compares.
                tran_state_table_offset=record.queue_offset if facts.has_half_topic else 0,
                commit_log_offset=record.commit_log_offset,
                decision=EndDecision.COMMIT if commit else EndDecision.ROLLBACK,
                message_id=record.unique_key,
                from_transaction_check=True,
            ),
        )
        return SendAnswer(outcome=answer.outcome, code=answer.code, detail=answer.remark or "")

    def republish(self, message: StoredMessage) -> SendAnswer:
        """One request to one broker: the content and UNIQ_KEY, and no property of RocketMQ's own."""
        try:
            again = Message(
                topic=message.real_topic,
                body=message.body,
                tags=message.properties.get(TAGS) or None,
                keys=tuple(content_keys(message.properties.get(KEYS), message.unique_key).split()),
                properties=user_properties(message.properties),
                flag=message.flag,
                unique_key=message.unique_key,
            )
        except ConfigurationError as error:
            return SendAnswer(outcome=EndOutcome.NOT_SENT, detail=str(error))
        try:
            sent = self._sender.send(again, attempts=1)
        except (RequestTimeout, ConnectionLost, ProtocolViolation) as error:
            return SendAnswer(outcome=EndOutcome.NO_ANSWER, detail=str(error))
        except (BrokerBusy, BrokerUnavailable) as error:
            return _not_now(str(error))
        except BrokerRefused as error:
            is_hopeless = error.code == ResponseCode.MESSAGE_ILLEGAL
            outcome = EndOutcome.NOT_SENT if is_hopeless else EndOutcome.REFUSED_FOR_NOW
            return SendAnswer(outcome=outcome, code=error.code, detail=str(error))
        return SendAnswer(
            outcome=EndOutcome.DONE, code=sent.status.value, detail=f"{sent.broker_name}@{sent.commit_log_offset}"
        )


def guard(record: StoredMessage, *, expected: OutboxRow, has_half_topic: bool) -> str | None:
    """Why an END must not be aimed at the record; None if it is the expected half."""
    if has_half_topic and record.topic != HALF_TOPIC:
        return f"the record lies in {record.topic}, not in {HALF_TOPIC}"
    if not has_half_topic and record.transaction_state is not TransactionState.PREPARED:
        return f"the record is {record.transaction_state}, not prepared"
    if record.unique_key != expected.unique_key:
        return f"UNIQ_KEY is {record.unique_key}, expected {expected.unique_key}"
    if record.real_topic != expected.topic:
        return f"REAL_TOPIC is {record.real_topic}, expected {expected.topic}"
    if record.producer_group != expected.producer_group:
        return f"PGROUP is {record.producer_group}, expected {expected.producer_group}"
    if expected.content_digest is not None and record.content_digest != expected.content_digest:
        return "content differs from the outbox row's digest"
    return None


def _not_now(detail: str) -> SendAnswer:
    return SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, detail=detail)

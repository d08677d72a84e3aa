from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from reconciler.errors import (
    BrokerBusy,
    BrokerRefused,
    BrokerUnavailable,
    ProtocolViolation,
    RequestTimeout,
    UsageError,
)
from reconciler.policy.evidence import EndOutcome
from reconciler.rocketmq.client.connection import ConnectionLost
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.client.sending import SendStatus
from reconciler.rocketmq.producer.ending import (
    EndDecision,
    EndRequest,
    EndStatus,
    end_transaction,
)
from reconciler.rocketmq.wire.codes import RequestCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from tests.unit.rocketmq.scripted import Handler, ScriptedBroker, ScriptedCluster

ORDER = Message(topic="Orders", body=b"body", keys=("k",))


def _stores(broker: ScriptedBroker, *, code: int = 0, ids: str | None = None) -> None:
    fields = {
        "msgId": ids or encode_offset_message_id("127.0.0.1", 10_911, 4_711),
        "queueId": "0",
        "queueOffset": "9",
        "transactionId": "T",
    }

    def handler(request: Command) -> Command:
        return replace(broker.success(request, fields), code=code)

    for request_code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        broker.on(request_code, handler)


def _sent(broker: ScriptedBroker) -> list[Command]:
    codes = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
    return [request for request in broker.asked if request.code in codes]


@pytest.mark.parametrize("status", list(SendStatus))
def test_four_codes_mean_stored(status: SendStatus) -> None:
    with ScriptedCluster() as cluster:
        _stores(cluster.broker, code=int(status.value))
        result = cluster.sender().send(ORDER)
        assert result.status is status
        assert (result.commit_log_offset, result.queue_offset, result.transaction_id) == (4_711, 9, "T")
        assert (result.broker_name, result.queue_id) == ("broker-a", 0)


@pytest.mark.parametrize(
    ("code", "error"), [(2, BrokerBusy), (215, BrokerBusy), (13, BrokerRefused), (16, BrokerRefused)]
)
def test_every_other_code_is_an_error(code: int, error: type[Exception]) -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, lambda request: cluster.broker.refuse(request, code, "why"))
        with pytest.raises(error, match="why"):
            cluster.sender().send(ORDER)


def test_an_answer_without_the_offset_is_no_success() -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, cluster.broker.success)
        with pytest.raises((ProtocolViolation, ValueError)):
            cluster.sender().send(ORDER, attempts=1)


@pytest.mark.parametrize(
    "fails",
    [
        pytest.param(lambda broker: lambda request: broker.refuse(request, 2, "busy"), id="busy"),
        pytest.param(lambda broker: lambda request: broker.refuse(request, 14, "slave"), id="not available"),
        pytest.param(lambda _: lambda _request: b"\xff\xff\xff\xff", id="garbage"),
        pytest.param(lambda _: lambda _request: None, id="no answer"),
    ],
)
def test_an_ordinary_message_goes_to_another_broker_after_a_failure_under_the_same_key(fails: object) -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.be_impatient()
        bad, good = cluster.brokers
        script: Handler = fails(bad)  # type: ignore[operator]  # a lambda among the parameters
        bad.on(RequestCode.SEND_MESSAGE_V2, script)
        _stores(good)
        sender = cluster.sender()
        results = [sender.send(ORDER) for _ in range(4)]
        assert {result.broker_name for result in results} == {"broker-b"}
        keys = {
            broker: [decode_properties(one.fields["i"])["UNIQ_KEY"] for one in _sent(broker)] for broker in (bad, good)
        }
        assert keys[good] == [result.unique_key for result in results]
        assert set() < set(keys[bad]) <= set(keys[good]), "the first try may have been stored"


def _closes(_request: Command) -> NoReturn:
    raise ConnectionResetError("the broker closes the connection behind the request")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(lambda _: None, RequestTimeout, id="no answer"),
        pytest.param(_closes, ConnectionLost, id="closed"),
        pytest.param(lambda _: b"\xff\xff\xff\xff", ConnectionLost, id="garbage"),
        pytest.param(lambda request: reply_to(request, 0), ProtocolViolation, id="no offset"),
    ],
)
def test_a_half_is_never_sent_again_when_nobody_knows_whether_it_was_stored(
    reply: Handler, error: type[Exception]
) -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.be_impatient()
        for broker in cluster.brokers:
            broker.on(RequestCode.SEND_MESSAGE_V2, reply)
        with pytest.raises(error):
            cluster.sender().send(ORDER, is_half=True)
        assert sum(len(_sent(broker)) for broker in cluster.brokers) == 1


def test_a_half_goes_to_another_broker_after_a_refusal() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        bad, good = cluster.brokers
        bad.on(RequestCode.SEND_MESSAGE_V2, lambda request: bad.refuse(request, 2, "busy"))
        _stores(good)
        sender = cluster.sender()
        assert {sender.send(ORDER, is_half=True).broker_name for _ in range(4)} == {"broker-b"}


def test_a_chosen_queue_is_the_only_one_tried() -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        bad, good = cluster.brokers
        bad.on(RequestCode.SEND_MESSAGE_V2, lambda request: bad.refuse(request, 2, "busy"))
        _stores(good)
        queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)
        with pytest.raises(BrokerBusy):
            cluster.sender().send(ORDER, queue=queue)
        assert not _sent(good)


def test_a_topic_that_may_not_be_written_anywhere_is_an_error() -> None:
    with ScriptedCluster() as cluster:
        cluster.name_server.place("Orders", cluster.broker, permission=4)
        with pytest.raises(BrokerUnavailable):
            cluster.sender().send(ORDER)


def test_what_a_half_carries() -> None:
    with ScriptedCluster() as cluster:
        _stores(cluster.broker)
        result = cluster.sender("PG").send(ORDER, is_half=True)
        fields = _sent(cluster.broker)[0].fields
        properties = decode_properties(fields["i"])
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "PG")
        assert (properties["UNIQ_KEY"], properties["KEYS"]) == (result.unique_key, "k")
        assert int(fields["f"]) & SystemFlag.PREPARED
        with pytest.raises(UsageError):
            cluster.sender().send(Message(topic="Orders", body=b"x", delay_level=3), is_half=True)


def test_the_unique_key_comes_first_in_keys_where_it_is_not_indexed_otherwise() -> None:
    with ScriptedCluster(versions=(78,)) as cluster:
        _stores(cluster.broker)
        result = cluster.sender().send(ORDER)
        assert decode_properties(_sent(cluster.broker)[0].fields["i"])["KEYS"] == f"{result.unique_key} k"


def test_large_bodies_are_compressed_and_marked() -> None:
    with ScriptedCluster() as cluster:
        _stores(cluster.broker)
        cluster.sender().send(Message(topic="Orders", body=b"a" * 5_000))
        cluster.sender().send(Message(topic="Orders", body=b"a" * 4_096))
        large, small = _sent(cluster.broker)
        assert int(large.fields["f"]) & SystemFlag.COMPRESSED
        assert len(large.body) < 100
        assert not int(small.fields["f"]) & SystemFlag.COMPRESSED
        assert len(small.body) == 4_096


# --------------------------------------------------------------------------- END


def _end(cluster: ScriptedCluster, decision: EndDecision = EndDecision.COMMIT) -> EndRequest:
    return EndRequest(
        address=cluster.broker.address,
        producer_group="PG",
        tran_state_table_offset=3,
        commit_log_offset=4_711,
        decision=decision,
        message_id="K",
    )


@pytest.mark.parametrize(
    ("code", "remark", "outcome"),
    [
        (0, "not set any response code", EndStatus.DONE),
        (1, "find prepared transaction message failed", EndStatus.HALF_GONE),
        (1, "Find prepared transaction message failed", EndStatus.HALF_GONE),
        (1, "the producer group wrong", EndStatus.MISMATCH),
        (1, "The transaction state table offset wrong", EndStatus.MISMATCH),
        (1, "java.lang.IllegalArgumentException: newLimit < 0", EndStatus.MISMATCH),
        (2, "busy", EndStatus.REFUSED_FOR_NOW),
        (11, "slave", EndStatus.REFUSED_FOR_NOW),
        (14, "", EndStatus.REFUSED_FOR_NOW),
        (215, "", EndStatus.REFUSED_FOR_NOW),
        (604, "immunity", EndStatus.REFUSED_FOR_NOW),
    ],
)
def test_answers_to_end_are_sorted_by_what_follows(code: int, remark: str, outcome: EndStatus) -> None:
    with ScriptedCluster() as cluster:
        cluster.broker.on(RequestCode.END_TRANSACTION, lambda request: cluster.broker.refuse(request, code, remark))
        answer = end_transaction(cluster.client, _end(cluster))
        assert (answer.status, answer.code, answer.remark) == (outcome, code, remark)


@pytest.mark.parametrize("reply", [None, b"\xff\xff\xff\xff"])
def test_an_end_without_an_answer_may_have_been_executed(reply: bytes | None) -> None:
    with ScriptedCluster() as cluster:
        cluster.be_impatient()
        cluster.broker.on(RequestCode.END_TRANSACTION, lambda _: reply)
        answer = end_transaction(cluster.client, _end(cluster))
        assert (answer.status, answer.code) == (EndStatus.NO_ANSWER, None)


def test_an_end_that_nobody_listens_to_was_certainly_not_executed() -> None:
    with ScriptedCluster() as cluster:
        request = _end(cluster)
        cluster.broker.close()
        assert end_transaction(cluster.client, request).status is EndStatus.REFUSED_FOR_NOW


def test_unknown_goes_one_way_because_no_broker_answers_it() -> None:
    with ScriptedCluster() as cluster:
        answer = end_transaction(cluster.client, _end(cluster, EndDecision.UNKNOWN))
        assert (answer.status, answer.code) == (EndStatus.NO_ANSWER, None)
        cluster.client.request(cluster.broker.address, Command(code=34))
        sent = next(request for request in cluster.broker.asked if request.code == RequestCode.END_TRANSACTION)
        assert sent.is_oneway
        assert sent.fields["commitOrRollback"] == "0"


def test_every_status_of_an_end_has_an_outcome_that_policy_knows() -> None:
    of_brokers = [outcome.name for outcome in EndOutcome if outcome is not EndOutcome.HELD_BACK]  # none was asked
    assert [status.name for status in EndStatus] == of_brokers

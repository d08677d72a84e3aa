"""END is aimed at the expected half and at nothing else; a republish carries the content and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest

from reconciler.clock import ManualClock
from reconciler.errors import BrokerUnavailable
from reconciler.evidence.absent_producers import AbsentProducers
from reconciler.evidence.brokers import RemotingBrokerEvidence
from reconciler.evidence.repairs import RemotingBrokerRepairs
from reconciler.evidence.stored_message import stored_message
from reconciler.policy.evidence import EndOutcome, HalfQuestions, Recorded, StoredMessage
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient
from reconciler.rocketmq.wire.codes import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    RequestCode,
    ResponseCode,
    SystemFlag,
)
from reconciler.rocketmq.wire.frame import Command, reply_to
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from reconciler.rocketmq.wire.record import MessageRecord
from reconciler.words import said
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import Handler, ScriptedBroker, ScriptedCluster

KEY = "7F0000010000000000000000000000AA"
PROPERTIES = {
    "REAL_TOPIC": "Orders",
    "REAL_QID": "0",
    "PGROUP": "PG",
    "TRAN_MSG": "true",
    "TAGS": "paid",
    "KEYS": f"{KEY} order-1",
    "BUSINESS_ID": "b-1",
    "colour": "red",
}
HALF = record(topic=HALF_TOPIC, key=KEY, properties=PROPERTIES, queue_offset=3, physical_offset=4_711)


def _row(half: StoredMessage) -> Recorded:
    return Recorded(
        unique_key=KEY,
        topic="Orders",
        producer_group="PG",
        tag="paid",
        content_digest=half.content_digest,
        created_at_ms=1,
    )


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        made.broker.on(RequestCode.END_TRANSACTION, made.broker.success)
        yield made


@pytest.fixture
def instance(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.name_server.address, client=cluster.client) as made:
        yield made


def _at_offset(broker: ScriptedBroker, one: MessageRecord) -> None:
    broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request: broker.success(request, body=encode_record(one)))


def _ends(broker: ScriptedBroker) -> list[Command]:
    return [request for request in broker.asked if request.code == RequestCode.END_TRANSACTION]


def _half(one: MessageRecord = HALF) -> StoredMessage:
    return stored_message(replace(one, broker_name="broker-a"))


@pytest.mark.parametrize(("commit", "decision"), [(True, "8"), (False, "12")])
def test_the_expected_half_is_ended_with_its_own_offsets(
    cluster: ScriptedCluster, instance: ClientInstance, *, commit: bool, decision: str
) -> None:
    _at_offset(cluster.broker, HALF)
    answer = RemotingBrokerRepairs(instance, english=said).end_transaction(
        _half(), expected=_row(_half()), commit=commit
    )()()
    assert answer.outcome is EndOutcome.DONE
    (end,) = _ends(cluster.broker)
    assert end.fields == {
        "producerGroup": "PG",
        "tranStateTableOffset": "3",
        "commitLogOffset": "4711",
        "commitOrRollback": decision,
        "fromTransactionCheck": "true",
        "msgId": KEY,
    }
    assert not end.is_oneway


def test_an_end_under_way_is_not_in_doubt_because_look_ups_lost_their_connection(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    has_come, is_lost = threading.Event(), threading.Event()

    def end(request: Command) -> Command:
        has_come.set()
        assert is_lost.wait(20)
        return cluster.broker.success(request)

    _at_offset(cluster.broker, HALF)
    cluster.broker.on(RequestCode.END_TRANSACTION, end)
    with RemotingClient() as client:
        repairs = RemotingBrokerRepairs(instance, english=said, client=client)
        sent = repairs.end_transaction(_half(), expected=_row(_half()), commit=True)()
        assert has_come.wait(20)
        instance.client.disconnect(cluster.broker.address)
        is_lost.set()
        assert sent().outcome is EndOutcome.DONE


def test_a_half_in_rocksdb_is_not_refused_as_no_half(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    half = replace(HALF, topic=ROCKSDB_HALF_TOPIC)
    _at_offset(cluster.broker, half)
    answer = RemotingBrokerRepairs(instance, english=said).end_transaction(
        _half(half), expected=_row(_half(half)), commit=True
    )()()
    assert answer.outcome is EndOutcome.DONE


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(replace(HALF, topic="Orders", system_flag=int(SystemFlag.COMMIT)), id="a committed copy"),
        pytest.param(replace(HALF, topic=DISCARD_TOPIC), id="a parked copy"),
        pytest.param(replace(HALF, properties={**HALF.properties, "REAL_TOPIC": "Other"}), id="another topic's"),
        pytest.param(replace(HALF, properties={**HALF.properties, "PGROUP": "Other"}), id="another group's"),
        pytest.param(replace(HALF, properties={**HALF.properties, "UNIQ_KEY": KEY[:-2] + "FF"}), id="another message"),
        pytest.param(replace(HALF, properties={**HALF.properties, "colour": "blue"}), id="another content"),
        pytest.param(replace(HALF, queue_offset=4), id="another place in the queue"),
    ],
)
def test_an_end_is_aimed_at_nothing_else(
    cluster: ScriptedCluster, instance: ClientInstance, found: MessageRecord
) -> None:
    _at_offset(cluster.broker, found)
    answer = RemotingBrokerRepairs(instance, english=said).end_transaction(
        _half(), expected=_row(_half()), commit=True
    )()()
    assert answer.outcome in (EndOutcome.NOT_SENT, EndOutcome.MISMATCH)
    assert answer.detail
    assert not _ends(cluster.broker)


def test_up_to_4_2_the_half_is_the_prepared_record_and_its_number_is_zero(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    cluster.broker.version = 253
    prepared = replace(HALF, topic="Orders", system_flag=int(SystemFlag.PREPARED), queue_offset=0)
    _at_offset(cluster.broker, prepared)
    repairs = RemotingBrokerRepairs(instance, english=said)
    half = _half(prepared)
    assert repairs.end_transaction(half, expected=_row(half), commit=True)()().outcome is EndOutcome.DONE
    assert _ends(cluster.broker)[0].fields["tranStateTableOffset"] == "0"
    _at_offset(cluster.broker, replace(prepared, system_flag=int(SystemFlag.COMMIT)))
    assert repairs.end_transaction(half, expected=_row(half), commit=True)()().outcome is EndOutcome.NOT_SENT


def test_what_is_not_there_or_cannot_be_read_is_not_ended(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    repairs = RemotingBrokerRepairs(instance, english=said)
    broker = cluster.broker
    for remark, outcome in (
        ("can not find message by the offset, 4711", EndOutcome.MISMATCH),
        ("java.lang.IllegalArgumentException", EndOutcome.REFUSED_FOR_NOW),
    ):
        broker.on(RequestCode.VIEW_MESSAGE_BY_ID, lambda request, remark=remark: broker.refuse(request, 1, remark))  # type: ignore[misc]  # the default binds the loop's value
        assert repairs.end_transaction(_half(), expected=_row(_half()), commit=True)()().outcome is outcome
    elsewhere = replace(_half(), broker="broker-z")
    assert (
        repairs.end_transaction(elsewhere, expected=_row(_half()), commit=True)()().outcome
        is EndOutcome.REFUSED_FOR_NOW
    )
    assert not _ends(broker)


def _takes_sends(broker: ScriptedBroker) -> None:
    fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, 5_000), "queueId": "0", "queueOffset": "1"}
    broker.on(RequestCode.SEND_MESSAGE_V2, lambda request: broker.success(request, fields))


@pytest.mark.promise("G3")
def test_a_republish_carries_the_content_and_nothing_of_the_transaction(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    _takes_sends(cluster.broker)
    answer = RemotingBrokerRepairs(instance, english=said).republish(_half())()
    assert (answer.outcome, answer.code) == (EndOutcome.DONE, 0)
    sent = next(request for request in cluster.broker.asked if request.code == RequestCode.SEND_MESSAGE_V2)
    assert decode_properties(sent.fields["i"]) == {
        "UNIQ_KEY": KEY,
        "KEYS": "order-1",
        "TAGS": "paid",
        "WAIT": "true",
        "BUSINESS_ID": "b-1",
        "colour": "red",
    }
    assert (sent.fields["b"], sent.fields["f"], sent.fields["h"], sent.body) == ("Orders", "0", "7", b"body")
    copy = replace(_half(), properties=decode_properties(sent.fields["i"]))
    assert copy.content_digest == _half().content_digest


@pytest.mark.parametrize(
    ("code", "outcome", "detail"),
    [
        (2, EndOutcome.REFUSED_FOR_NOW, "code 2"),  # a busy broker: BrokerBusy has no code of its own
        (13, EndOutcome.NOT_SENT, "broker-a refused with code 13"),
        (16, EndOutcome.REFUSED_FOR_NOW, "broker-a refused with code 16"),
        (17, EndOutcome.REFUSED_FOR_NOW, "broker-a refused with code 17"),
        (None, EndOutcome.NO_ANSWER, "no answer"),
        (10, EndOutcome.DONE, "broker-a/0@1: FLUSH_DISK_TIMEOUT"),
    ],
)
def test_answers_to_a_republish(
    cluster: ScriptedCluster, instance: ClientInstance, code: int | None, outcome: EndOutcome, detail: str
) -> None:
    if code is None:
        cluster.be_impatient()
    broker = cluster.broker
    fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, 5_000), "queueId": "0", "queueOffset": "1"}
    broker.on(
        RequestCode.SEND_MESSAGE_V2,
        lambda request: None if code is None else replace(broker.success(request, fields), code=code),
    )
    answer = RemotingBrokerRepairs(instance, english=said).republish(_half())()
    assert (answer.outcome, answer.code) == (outcome, None if code == ResponseCode.SYSTEM_BUSY else code)
    assert detail in answer.detail
    assert sum(request.code == RequestCode.SEND_MESSAGE_V2 for request in broker.asked) == 1


def _closes(_request: Command) -> NoReturn:
    raise ConnectionResetError("the broker closes the connection behind the request")


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        (_closes, "may have been executed"),
        (lambda request: reply_to(request, 0), "answer without field queueId"),
        (
            lambda request: reply_to(request, 0, fields={"msgId": "7F", "queueId": "0", "queueOffset": "1"}),
            "'7F' is no offset message id",
        ),
    ],
    ids=["closed", "no offset", "no id"],
)
def test_a_republish_whose_answer_says_nothing_may_have_been_stored_and_is_not_repeated(
    cluster: ScriptedCluster, instance: ClientInstance, reply: Handler, detail: str
) -> None:
    cluster.broker.on(RequestCode.SEND_MESSAGE_V2, reply)
    answer = RemotingBrokerRepairs(instance, english=said).republish(_half())()
    assert (answer.outcome, detail in answer.detail) == (EndOutcome.NO_ANSWER, True), answer.detail
    assert sum(request.code == RequestCode.SEND_MESSAGE_V2 for request in cluster.broker.asked) == 1


@pytest.mark.parametrize("key", ["AC11000217B27F4E31B1f90aba968abd", "order_42-3f90aba9"])
def test_a_republish_keeps_a_key_that_is_no_upper_case_digits(
    cluster: ScriptedCluster, instance: ClientInstance, key: str
) -> None:
    _takes_sends(cluster.broker)
    half = _half()
    of_another_client = replace(half, unique_key=key, properties={**half.properties, "UNIQ_KEY": key})
    assert RemotingBrokerRepairs(instance, english=said).republish(of_another_client)().outcome is EndOutcome.DONE
    sent = next(request for request in cluster.broker.asked if request.code == RequestCode.SEND_MESSAGE_V2)
    assert decode_properties(sent.fields["i"])["UNIQ_KEY"] == key


def test_a_message_that_no_broker_would_take_is_not_sent(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    answer = RemotingBrokerRepairs(instance, english=said).republish(replace(_half(), body=b"x" * (5 * 1024 * 1024)))()
    assert answer.outcome is EndOutcome.NOT_SENT
    assert "body" in answer.detail
    assert all(request.code != RequestCode.SEND_MESSAGE_V2 for request in cluster.broker.asked)


# --------------------------------------------------------------------------- the broker's own check-back


def _configures(broker: ScriptedBroker, *, has_producer: bool = True) -> None:
    text = b"# comment\ntransactionTimeOut=1000\ntransactionCheckInterval=2000\n"
    broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: broker.success(request, body=text))
    connections = b'{"connectionSet":[{"clientId":"c","clientAddr":"a","language":"JAVA","version":1}]}'

    def producers(request: Command) -> Command:
        if not has_producer:
            return broker.refuse(request, 1, "the producer group[PG] not exist")
        return broker.success(request, body=connections)

    broker.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, producers)


def test_how_long_a_half_is_left_to_the_brokers_own_check(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    def wait(half: StoredMessage) -> float:
        return RemotingBrokerEvidence(instance, skew_margin_seconds=1).check_back_wait_seconds(half)

    _configures(cluster.broker)
    assert wait(_half()) == 3.0
    _configures(cluster.broker, has_producer=False)
    assert wait(_half()) == 0.0
    cluster.be_impatient()
    cluster.broker.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, lambda _: None)
    assert wait(_half()) == 3.0
    cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.refuse(request, 16, "no"))
    assert wait(_half()) == 36.0
    assert wait(replace(_half(), broker="broker-z")) == 66.0
    cluster.broker.version = 253
    instance.families.forget(cluster.broker.address)
    assert wait(_half()) == 0.0


def test_whether_a_producer_could_answer_is_asked_of_each_broker_and_of_each_group() -> None:
    with ScriptedCluster(versions=(479, 479)) as two:
        for broker in two.brokers:
            _configures(broker)
        answers = two.brokers[0].handlers[RequestCode.GET_PRODUCER_CONNECTION_LIST]
        two.brokers[0].on(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            lambda request: (
                two.brokers[0].refuse(request, 1, "not exist")
                if request.fields["producerGroup"] == "PG"
                else answers(request)
            ),
        )
        with ClientInstance(two.name_server.address, client=two.client) as instance:
            evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
            halves = [_half(), replace(_half(), broker="broker-b"), replace(_half(), producer_group="PH")]
            assert [evidence.check_back_wait_seconds(half) for half in halves] == [0.0, 3.0, 3.0]


def test_the_ends_of_the_two_half_queues_of_a_broker_are_told_apart(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    """5.4 may keep halves in RocksDB: its short queue says nothing of when a half was put back into the long one."""
    ends = {HALF_TOPIC: 1_000, ROCKSDB_HALF_TOPIC: 5}
    cluster.broker.on(
        RequestCode.GET_MAX_OFFSET,
        lambda request: cluster.broker.success(request, {"offset": str(ends[request.fields["topic"]])}),
    )
    _configures(cluster.broker, has_producer=False)
    evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
    seen = [evidence.producers_of(replace(_half(), topic=topic)) for topic in (ROCKSDB_HALF_TOPIC, HALF_TOPIC)]
    assert [[end for _, end in look.half_queue_ends] for look in seen] == [[5], [1_000]]


def test_an_end_of_a_half_queue_that_is_less_than_what_is_known_of_it_proves_nothing(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    """A broker that has failed over builds its queues, and a queue that is read may lag: each half would count as put
    back after the look."""
    ends = iter((40, 0, 39, 41, 50))
    cluster.broker.on(
        RequestCode.GET_MAX_OFFSET, lambda request: cluster.broker.success(request, {"offset": str(next(ends))})
    )
    _configures(cluster.broker, has_producer=False)
    evidence, clock = RemotingBrokerEvidence(instance, skew_margin_seconds=1), ManualClock()
    evidence._absent_producers = AbsentProducers(clock)
    seen: list[list[int]] = []
    for offset, group in ((7, "PG"), (7, "PH"), (49, "PG"), (7, "PH"), (7, "PH")):
        clock.advance(6)
        look = evidence.producers_of(replace(_half(), queue_offset=offset, producer_group=group))
        seen.append([end for _, end in look.half_queue_ends])
    assert seen == [[40], [], [40], [], [50]]


def test_a_producer_may_have_come_and_left_where_nobody_has_looked_for_long(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    """What was put back meanwhile it may have been asked about."""
    cluster.broker.on(RequestCode.GET_MAX_OFFSET, lambda request: cluster.broker.success(request, {"offset": "9"}))
    _configures(cluster.broker, has_producer=False)
    evidence, clock = RemotingBrokerEvidence(instance, skew_margin_seconds=1), ManualClock()
    evidence._absent_producers = AbsentProducers(clock)
    away: list[tuple[float, int]] = []
    for pause_seconds in (0, 600, 601):
        clock.advance(pause_seconds)
        look = evidence.producers_of(_half())
        away.append((look.away_seconds, len(look.half_queue_ends)))
    assert away == [(0.0, 1), (600.0, 2), (0.0, 1)]


def test_a_broker_that_does_not_say_that_no_producer_is_there_may_have_one(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    """And since when none was is asked anew each time: nothing is remembered of one that was."""
    evidence, clock = RemotingBrokerEvidence(instance, skew_margin_seconds=1), ManualClock()
    evidence._absent_producers = AbsentProducers(clock)

    ends = iter(range(100, 200))
    cluster.broker.on(
        RequestCode.GET_MAX_OFFSET, lambda request: cluster.broker.success(request, {"offset": str(next(ends))})
    )

    def look(half: StoredMessage) -> tuple[bool | None, float, float]:
        clock.advance(7)
        seen = evidence.producers_of(half)
        looks.append(seen.half_queue_ends)
        return seen.is_connected, seen.away_seconds, seen.interval_seconds

    looks: list[tuple[tuple[float, int], ...]] = []

    _configures(cluster.broker)
    assert look(_half()) == (True, 0.0, 0.0)
    _configures(cluster.broker, has_producer=False)
    assert [look(_half()) for _ in range(3)] == [(False, 0.0, 2.0), (False, 7.0, 2.0), (False, 14.0, 2.0)]
    assert look(replace(_half(), producer_group="PH")) == (False, 0.0, 2.0)
    three = ((14.0, 100), (7.0, 101), (0.0, 102))
    assert looks == [(), ((0.0, 100),), ((7.0, 100), (0.0, 101)), three, ((0.0, 103),)]
    _configures(cluster.broker)
    assert look(_half())[0] is True
    _configures(cluster.broker, has_producer=False)
    assert look(_half()) == (False, 0.0, 2.0)
    assert looks[-1] == ((0.0, 104),), "where the half queue ended, at looks since the producer was there"
    for code, remark in ((1, "java.lang.NullPointerException"), (1, None), (16, "no permission")):
        cluster.broker.on(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            partial(lambda code, remark, request: cluster.broker.refuse(request, code, remark), code, remark),
        )
        assert look(_half())[0] is None, remark
    assert look(replace(_half(), broker="broker-z"))[0] is None
    cluster.broker.version = 253  # up to 4.2 nobody is asked
    instance.families.forget(cluster.broker.address)
    assert look(_half()) == (False, 0.0, 0.0)


def test_until_when_a_broker_asks_about_a_half(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    def check_back(half: StoredMessage) -> HalfQuestions | None:
        return RemotingBrokerEvidence(instance, skew_margin_seconds=1).check_back_of(half)

    text = b"transactionTimeOut=1000\ntransactionCheckInterval=2000\ntransactionCheckMax=15\nfileReservedTime=72\n"
    cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.success(request, body=text))
    half = replace(_half(), born_timestamp_ms=10_000_000, store_timestamp_ms=20_000_000)
    limit_ms = 10_000_000 + 72 * 3_600_000 + 2_000
    first = HalfQuestions(is_asked=True, until_ms=20_000_000 + 1_000 + 17 * 2_000, never_after_ms=limit_ms)
    assert check_back(half) == first
    assert check_back(replace(half, check_times=14)) == replace(first, until_ms=20_000_000 + 1_000 + 3 * 2_000)
    assert check_back(replace(half, check_times=99)) == replace(first, until_ms=20_000_000 + 1_000 + 2 * 2_000)
    immune = replace(half, properties={**PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    assert check_back(immune) == replace(first, until_ms=20_000_000 + 60_000 + 17 * 2_000)
    late = replace(half, store_timestamp_ms=limit_ms + 5_000)
    assert check_back(late) == replace(first, until_ms=limit_ms), "its age ends it before its questions do"
    _configures(cluster.broker)  # it tells nothing of questions and ages
    assert check_back(half) is None
    cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.refuse(request, 16, "no"))
    assert check_back(half) is None
    assert check_back(replace(half, broker="broker-z")) is None
    cluster.broker.version = 253
    instance.families.forget(cluster.broker.address)
    assert check_back(half) == HalfQuestions(is_asked=False, until_ms=0, never_after_ms=0)


def test_what_a_broker_said_about_itself_is_asked_for_every_half_or_never_again(cluster: ScriptedCluster) -> None:
    clock = ManualClock()
    _configures(cluster.broker)
    with ClientInstance(cluster.name_server.address, client=cluster.client, clock=clock) as instance:
        evidence = RemotingBrokerEvidence(instance, skew_margin_seconds=1)
        asked = []
        for seconds in (0.0, 4.999, 0.001):
            clock.advance(seconds)
            assert evidence.check_back_wait_seconds(_half()) == 3.0
            codes = [request.code for request in cluster.broker.asked]
            asked.append(
                [
                    codes.count(code)
                    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_PRODUCER_CONNECTION_LIST)
                ]
            )
    assert asked == [[1, 1], [1, 1], [2, 2]]


def raise_(error: Exception) -> NoReturn:
    raise error


def test_when_a_lack_of_put_back_copies_means_a_rollback(
    cluster: ScriptedCluster, instance: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after(half: StoredMessage) -> float | None:
        return RemotingBrokerEvidence(instance, skew_margin_seconds=1).rollback_evident_after_seconds(half)

    _configures(cluster.broker)
    assert after(_half()) == 5.0
    immune = replace(_half(), properties={**PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    assert after(immune) == 64.0
    with monkeypatch.context() as patch:  # it answered about its configuration, and not about its release
        patch.setattr(instance.families, "facts", lambda _address: raise_(BrokerUnavailable("refused")))
        assert after(_half()) is None
    cluster.broker.on(RequestCode.GET_BROKER_CONFIG, lambda request: cluster.broker.refuse(request, 16, "no"))
    assert after(_half()) is None
    cluster.broker.version = 253
    instance.families.forget(cluster.broker.address)
    _configures(cluster.broker)
    assert after(_half()) is None

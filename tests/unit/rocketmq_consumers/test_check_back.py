"""What the broker asks back is answered from a database: nothing in the message itself may stand in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest
import zstandard

from reconciler.errors import UsageError
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.remoting_client import RemotingClient, RequestHandler
from reconciler.rocketmq.producer import transaction_producer
from reconciler.rocketmq.producer.check_back import CheckBack, CheckCounts, CheckRequest
from reconciler.rocketmq.producer.ending import EndStatus
from reconciler.rocketmq.producer.transaction_listener import LocalTransactionState, TransactionListener
from reconciler.rocketmq.producer.transaction_producer import HalfReceipt, TransactionMQProducer
from reconciler.rocketmq.wire.codes import HALF_TOPIC, RequestCode, SystemFlag
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.polling import eventually
from tests.stored_bytes import encode_record
from tests.unit.rocketmq.missing_packages import without_package
from tests.unit.rocketmq.records import record
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

KEY = "7F0000010000000000000000000000AA"
PACKED = zstandard.compress(b"order" * 1_000)


class Client(RemotingClient):
    """Lets a test ask what a broker would."""

    def on_request(self, code: int, handler: RequestHandler) -> None:
        self.ask = handler


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    made.on(RequestCode.END_TRANSACTION, made.success)
    yield made
    made.close()


@pytest.mark.parametrize("body", [PACKED, PACKED[:-8]], ids=["no package for it", "damaged"])
def test_a_half_whose_body_cannot_be_read_here_is_answered(
    body: bytes, client: Client, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if body is PACKED:
        without_package(monkeypatch, "zstandard")
    asked: list[CheckRequest] = []

    def answer(request: CheckRequest) -> LocalTransactionState:
        asked.append(request)
        return LocalTransactionState.COMMIT

    check_back = ClientInstance("127.0.0.1:9", client=client, clock=client.clock).shared(CheckBack)
    check_back.register("PG", answer)
    half = record(
        topic=HALF_TOPIC,
        body=body,
        properties={"PGROUP": "PG", "REAL_TOPIC": "Orders"},
        system_flag=int(SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZSTD),
    )
    fields = {"tranStateTableOffset": "5", "commitLogOffset": "1000"}
    question = Command(code=RequestCode.CHECK_TRANSACTION_STATE, fields=fields, body=encode_record(half))
    client.ask(broker.address, question)
    eventually(lambda: check_back.counts.accepted == 1, within_seconds=60)
    check_back.close()
    assert [end.fields["commitOrRollback"] for end in broker.asked] == ["8"]
    assert [(request.message.unique_key, request.message.body) for request in asked] == [(KEY, body)]
    assert asked[0].body_error
    assert check_back.counts == CheckCounts(
        received=1, accepted=1, not_accepted=0, unknown=0, dropped=0, unmatched=0, unreadable_bodies=1
    )


def test_a_broker_that_joins_the_cluster_later_learns_of_the_group_as_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else nobody is ever asked about the halves that it has."""
    monkeypatch.setattr(transaction_producer, "_CLUSTER_SECONDS", 0.0)
    with ScriptedCluster(versions=(479, 479)) as cluster:
        first, later = cluster.brokers
        del cluster.name_server.cluster[later.name]
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            producer = TransactionMQProducer("PG", None, instance=instance).start()
            assert producer.register_everywhere() == {first.address: None}
            cluster.name_server.cluster[later.name] = {0: later.address}
            assert producer.register_everywhere() == {first.address: None, later.address: None}
            producer.shutdown()


def question(group: str, key: str = KEY) -> Command:
    half = record(topic=HALF_TOPIC, key=key, properties={"PGROUP": group, "REAL_TOPIC": "Orders"})
    fields = {"tranStateTableOffset": "5", "commitLogOffset": "1000"}
    return Command(code=RequestCode.CHECK_TRANSACTION_STATE, fields=fields, body=encode_record(half))


class Checker(TransactionListener):
    """Answers COMMIT, and notes what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
        raise AssertionError("nothing is sent here")

    def check_local_transaction(self, message: ReceivedMessage) -> LocalTransactionState:
        self.asked.append(message.unique_key or "")
        return LocalTransactionState.COMMIT


def test_each_group_of_an_instance_is_asked_its_own_by_the_broker_that_asks(client: Client) -> None:
    brokers = [ScriptedBroker("broker-a"), ScriptedBroker("broker-b")]
    instance = ClientInstance("127.0.0.1:9", client=client, clock=client.clock)
    checkers = {group: Checker() for group in ("PG", "PH")}
    producers = [TransactionMQProducer(group, one, instance=instance).start() for group, one in checkers.items()]
    counts = instance.shared(CheckBack)
    for broker, group in zip(brokers, ("PH", "PG"), strict=True):
        broker.on(RequestCode.END_TRANSACTION, broker.success)
        client.ask(broker.address, question(group, key=KEY[:-1] + group[-1]))
    eventually(lambda: counts.counts.accepted == 2, within_seconds=60)
    assert {group: [key[-1] for key in one.asked] for group, one in checkers.items()} == {"PG": ["G"], "PH": ["H"]}
    assert [[end.fields["producerGroup"] for end in broker.asked] for broker in brokers] == [["PH"], ["PG"]]
    producers[0].shutdown()
    client.ask(brokers[0].address, question("PG"))
    assert (counts.counts.received, counts.counts.unmatched) == (3, 1)
    client.ask(brokers[0].address, question("PH"))
    eventually(lambda: counts.counts.accepted == 3, within_seconds=60)
    instance.close()
    for broker in brokers:
        broker.close()


def test_a_second_producer_of_a_group_that_may_not_start_takes_nothing_from_the_first(
    client: Client, broker: ScriptedBroker
) -> None:
    instance = ClientInstance("127.0.0.1:9", client=client, clock=client.clock)
    first = Checker()
    TransactionMQProducer("PG", first, instance=instance).start()
    for listener in (Checker(), None):
        second = TransactionMQProducer("PG", listener, instance=instance)
        with pytest.raises(UsageError):
            second.start()
        second.shutdown()
    with pytest.raises(UsageError):
        instance.heartbeats.join_producer("PG", list)
    client.ask(broker.address, question("PG"))
    eventually(lambda: instance.shared(CheckBack).counts.accepted == 1, within_seconds=60)
    assert first.asked == [KEY]
    instance.close()


@pytest.mark.parametrize(
    ("state", "code", "counted"),
    [
        (LocalTransactionState.COMMIT, 0, "accepted"),
        (LocalTransactionState.ROLLBACK, 2, "not_accepted"),
        (LocalTransactionState.UNKNOWN, 0, "unknown"),
        (None, 0, "unknown"),
    ],
)
def test_an_answer_is_counted_as_what_became_of_it(
    state: LocalTransactionState | None, code: int, counted: str, client: Client, broker: ScriptedBroker
) -> None:
    broker.on(RequestCode.END_TRANSACTION, partial(broker.refuse, code=code))
    check_back = ClientInstance("127.0.0.1:9", client=client, clock=client.clock).shared(CheckBack)
    check_back.register("PG", lambda _: state)
    client.ask(broker.address, question("PG"))
    kinds = ("accepted", "not_accepted", "unknown", "dropped", "unmatched", "unreadable_bodies")
    eventually(lambda: [kind for kind in kinds if getattr(check_back.counts, kind)] == [counted], within_seconds=60)
    check_back.close()


@pytest.mark.parametrize("body", [b"", b"\x00" * 40, encode_record(record()) * 2], ids=["none", "damaged", "two"])
def test_a_question_that_is_none_is_counted_and_costs_nothing(body: bytes, client: Client) -> None:
    with ClientInstance("127.0.0.1:9", client=client, clock=client.clock) as instance:
        check_back = instance.shared(CheckBack)
        check_back.register("PG", lambda _: LocalTransactionState.COMMIT)
        client.ask("127.0.0.1:9", replace(question("PG"), body=body))
        assert (check_back.counts.received, check_back.counts.unmatched) == (1, 1)


def test_a_second_checker_of_a_group_is_refused_and_the_first_one_is_asked(
    client: Client, broker: ScriptedBroker
) -> None:
    check_back = ClientInstance("127.0.0.1:9", client=client, clock=client.clock).shared(CheckBack)
    check_back.register("PG", lambda _: LocalTransactionState.ROLLBACK)
    with pytest.raises(UsageError):
        check_back.register("PG", lambda _: LocalTransactionState.COMMIT)
    client.ask(broker.address, question("PG"))
    eventually(lambda: check_back.counts.accepted, within_seconds=60)
    check_back.close()
    assert [end.fields["commitOrRollback"] for end in broker.asked] == ["12"]


def test_questions_that_were_dropped_stay_counted_when_their_groups_have_left(client: Client) -> None:
    instance = ClientInstance("127.0.0.1:9", client=client, clock=client.clock)
    check_back = instance.shared(CheckBack)
    for group in ("PG", "PH"):
        check_back.register(group, lambda _: None, queue_capacity=0)
        client.ask("127.0.0.1:9", question(group))
    for group in ("PG", "PH"):
        check_back.unregister(group)
    assert (check_back.counts.received, check_back.counts.dropped) == (2, 2)


def test_name_servers_that_are_away_make_no_broker_forget_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets a group that its heartbeats leave out for two minutes, and then asks nobody about its halves."""
    monkeypatch.setattr(transaction_producer, "_CLUSTER_SECONDS", 0.0)
    with ScriptedCluster() as cluster:
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            producer = TransactionMQProducer("PG", None, instance=instance).start()
            assert producer.register_everywhere() == {cluster.broker.address: None}
            cluster.name_server.close()
            assert instance.heartbeats.beat() == {cluster.broker.address: None}
            producer.shutdown()
        assert [one.code for one in cluster.broker.asked].count(RequestCode.UNREGISTER_CLIENT) == 1


def test_topics_and_the_whole_cluster_are_registered_beside_each_other() -> None:
    with ScriptedCluster(versions=(479, 479, 479)) as cluster:
        a, b, c = (broker.address for broker in cluster.brokers)
        cluster.name_server.routes = {}
        for topic, broker in zip(("Orders", "Returns"), cluster.brokers, strict=False):
            cluster.name_server.place(topic, broker)
        cluster.name_server.cluster = {"broker-c": {0: c}}
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            producer = TransactionMQProducer("PG", None, instance=instance).start("Orders")
            assert producer.register_topics("Returns") == {a: None, b: None}
            assert producer.register_everywhere() == {a: None, b: None, c: None}
            producer.shutdown()


@pytest.mark.parametrize("is_known", [True, False])
def test_each_broker_hears_of_the_group_before_its_first_half_and_takes_halves_without(*, is_known: bool) -> None:
    with ScriptedCluster(versions=(479, 479)) as cluster:
        cluster.name_server.routes = {}
        for topic, broker in zip(("Orders", "Returns"), cluster.brokers, strict=True):
            cluster.name_server.place(topic, broker)
            broker.on(RequestCode.SEND_MESSAGE_V2, partial(stored, broker))
            if not is_known:
                broker.on(RequestCode.HEART_BEAT, partial(broker.refuse, code=2, remark="busy"))
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            producer = TransactionMQProducer("PG", None, instance=instance).start()
            for topic, broker in zip(("Orders", "Returns"), cluster.brokers, strict=True):
                half = producer.send_half(Message(topic=topic, body=b"paid"))
                assert half.broker_address == broker.address
                heard = [b'"PG"' in one.body for one in broker.asked]
                sent = [one.code == RequestCode.SEND_MESSAGE_V2 for one in broker.asked]
                assert heard.index(True) < sent.index(True)
            producer.shutdown()


def stored(broker: ScriptedBroker, request: Command) -> Command:
    fields = {
        "msgId": encode_offset_message_id("127.0.0.1", 10_911, 4_711), "queueId": "0", "queueOffset": "9",
        "transactionId": "T",
    }  # fmt: skip
    return broker.success(request, fields)


def closes(_request: Command) -> NoReturn:
    raise ConnectionResetError("the broker closes the connection behind the request")


@pytest.mark.parametrize(
    ("outcome", "is_answered", "doubts"),
    [
        (LocalTransactionState.COMMIT, True, 0),
        (LocalTransactionState.COMMIT, False, 1),
        (LocalTransactionState.ROLLBACK, False, 1),
        (LocalTransactionState.UNKNOWN, True, 0),
    ],
)
def test_a_half_that_lost_its_master_for_a_moment_is_ended_and_a_broker_that_does_not_answer_is_told_the_group_again(
    outcome: LocalTransactionState, doubts: int, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    with ScriptedCluster() as cluster:
        broker = cluster.broker
        broker.on(RequestCode.SEND_MESSAGE_V2, partial(stored, broker))
        broker.on(RequestCode.END_TRANSACTION, closes)
        if is_answered:
            broker.on(RequestCode.END_TRANSACTION, broker.success)
        with ClientInstance(cluster.name_server.address, client=cluster.client) as instance:
            doubted: list[str] = []
            monkeypatch.setattr(instance.heartbeats, "doubt", doubted.append)
            producer = TransactionMQProducer("PG", None, instance=instance).start()
            monkeypatch.setattr(instance.routes, "master_of", lambda *_: None)
            half = producer.send_half(Message(topic="Orders", body=b"paid"))
            assert half.broker_address == broker.address
            producer.end(half, outcome, from_check=outcome is LocalTransactionState.ROLLBACK)
            assert doubted == [broker.address] * doubts
            producer.shutdown()
        (end,) = (
            eventually(
                lambda: [one for one in broker.asked if one.code == RequestCode.END_TRANSACTION], within_seconds=60
            )
            or []
        )
        expected = "true" if outcome is LocalTransactionState.ROLLBACK else "false"
        assert end.fields["fromTransactionCheck"] == expected, "else 5.1.1 refuses it after the immunity window"


def test_a_half_whose_broker_has_no_master_is_not_ended_and_that_is_no_error() -> None:
    with ClientInstance("127.0.0.1:9") as instance:
        half = HalfReceipt(
            unique_key=KEY, topic="Orders", producer_group="PG", broker_name="broker-a", broker_address="", queue_id=0,
            queue_offset=5, commit_log_offset=1_000, transaction_id=None, offset_message_id="", broker_version=479,
        )  # fmt: skip
        ended = TransactionMQProducer("PG", None, instance=instance).end(half, LocalTransactionState.COMMIT)
        assert ended.status is EndStatus.NOT_SENT


def test_an_instance_that_is_closed_answers_no_question_any_more(client: Client) -> None:
    instance = ClientInstance("127.0.0.1:9", client=client, clock=client.clock)
    check_back = instance.shared(CheckBack)
    check_back.register("PG", lambda _: LocalTransactionState.COMMIT)
    instance.close()
    client.ask("127.0.0.1:9", question("PG"))
    assert check_back.counts.unmatched == 1

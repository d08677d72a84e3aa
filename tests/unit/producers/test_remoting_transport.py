"""What the remoting client does for a producer, against brokers whose every answer is scripted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from checkback_producers.ports import AnnouncementMessage, Outcome, SentHalf
from checkback_producers.remoting import RemotingAnnouncements, RemotingHalves
from reconciler.errors import BrokerUnavailable, ConfigurationError, ReconcilerError, TopicNotFound, UsageError
from reconciler.policy.evidence import EndOutcome
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.wire.codes import RequestCode
from reconciler.rocketmq.wire.frame import Command
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.message_id import encode_offset_message_id
from reconciler.rocketmq.wire.properties import decode_properties
from tests.unit.producers.world import GROUP, message
from tests.unit.rocketmq.scripted import ScriptedBroker, ScriptedCluster

UNIQUE_KEYS = "RECONCILER_UNIQUE_KEY"
ANNOUNCEMENT = AnnouncementMessage(
    unique_key_topic=UNIQUE_KEYS, queue_id=3, tag="ORDERS", body=b"keys", properties={"RECONCILER_SIGNATURE": "s"}
)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster(versions=(479, 479)) as made:
        for broker in made.brokers:
            made.name_server.place(UNIQUE_KEYS, broker, queues=4)
            takes(broker)
        yield made


@pytest.fixture
def instance(cluster: ScriptedCluster) -> Iterator[ClientInstance]:
    with ClientInstance(cluster.name_server.address, client=cluster.client) as made:
        yield made


def takes(broker: ScriptedBroker) -> None:
    fields = {"msgId": encode_offset_message_id("127.0.0.1", 1, 5_000), "queueId": "3", "queueOffset": "1"}
    broker.on(RequestCode.SEND_MESSAGE_V2, lambda request: broker.success(request, fields))


def test_an_end_names_the_half_by_all_that_its_broker_said(cluster: ScriptedCluster, instance: ClientInstance) -> None:
    """A proxy finds the half's broker by its transaction id alone, a broker by the offsets."""
    stored = {"msgId": encode_offset_message_id("127.0.0.1", 1, 5_000), "queueId": "3", "queueOffset": "7"}
    for broker in cluster.brokers:
        cluster.name_server.place("ORDERS", broker)
        broker.on(RequestCode.SEND_MESSAGE_V2, partial(broker.success, fields=stored | {"transactionId": "T-7"}))
        broker.on(RequestCode.END_TRANSACTION, broker.success)
    halves = RemotingHalves(GROUP, instance)
    halves.start(lambda _: Outcome.UNKNOWN)
    half = halves.send_half(message())
    assert halves.end(half, Outcome.COMMIT).outcome is EndOutcome.DONE
    halves.shutdown()
    (end,) = (one for broker in cluster.brokers for one in broker.asked if one.code == RequestCode.END_TRANSACTION)
    assert end.fields == {
        "producerGroup": GROUP,
        "tranStateTableOffset": "7",
        "commitLogOffset": "5000",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": half.unique_key,
        "transactionId": "T-7",
    }


def refuses(broker: ScriptedBroker) -> None:
    broker.on(RequestCode.SEND_MESSAGE_V2, lambda request: broker.refuse(request, 14, f"{broker.name} is full"))


def sends(cluster: ScriptedCluster) -> list[tuple[str, Command]]:
    return [
        (broker.name, request)
        for broker in cluster.brokers
        for request in broker.asked
        if request.code == RequestCode.SEND_MESSAGE_V2
    ]


def test_an_announcement_goes_to_another_shard_or_without_its_tag(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    sender = RemotingAnnouncements(GROUP, instance)
    for _ in range(20):
        sender.send_announcement(ANNOUNCEMENT)
    sent = sends(cluster)
    assert Counter(name for name, _ in sent).keys() == {"broker-a", "broker-b"}, "of brokers by turns"
    for _, request in sent:
        # SendMessageRequestHeaderV2: a producer group, b topic, e queue id, i properties.
        assert [request.fields[name] for name in "abe"] == [GROUP, UNIQUE_KEYS, "3"]
        properties = decode_properties(request.fields["i"])
        assert (properties["TAGS"], properties["RECONCILER_SIGNATURE"], request.body) == ("ORDERS", "s", b"keys")


def test_a_broker_that_is_full_takes_every_second_announcement_away(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    sender = RemotingAnnouncements(GROUP, instance)
    refuses(cluster.broker)
    for _ in range(10):
        sender.send_announcement(ANNOUNCEMENT)
    refuses(cluster.brokers[1])
    before = len(sends(cluster))
    with pytest.raises(ReconcilerError, match=r"broker-[ab] is full"):
        sender.send_announcement(ANNOUNCEMENT)
    asked = [name for name, _ in sends(cluster)]
    assert asked.count("broker-b") == 11, "each broker once"
    assert len(asked) == before + 2


@pytest.mark.parametrize(
    ("queues", "permission", "error", "part"),
    [
        (3, 6, ConfigurationError, "has no queue 3: it must have as many queues"),
        (4, 4, BrokerUnavailable, "no broker takes messages for queue 3"),
    ],
)
def test_a_queue_that_is_nowhere_is_taken_for_a_broker_that_is_away(
    cluster: ScriptedCluster,
    instance: ClientInstance,
    queues: int,
    permission: int,
    error: type[ReconcilerError],
    part: str,
) -> None:
    for broker in cluster.brokers:
        cluster.name_server.place(UNIQUE_KEYS, broker, queues=queues, permission=permission)
    sender = RemotingAnnouncements(GROUP, instance)
    with pytest.raises(error, match=part):
        sender.send_announcement(ANNOUNCEMENT)
    assert sends(cluster) == []


@pytest.mark.parametrize(
    ("versions", "is_away", "asks_back"),
    [((479, 479), False, True), ((479, 253), False, False), ((479, 479), True, None), ((479, 253), True, False)],
)
def test_a_cluster_that_never_asks_back_is_taken_for_one_that_does(
    versions: tuple[int, int], is_away: bool, asks_back: bool | None
) -> None:
    with (
        ScriptedCluster(versions=versions) as cluster,
        ClientInstance(cluster.name_server.address, client=cluster.client) as instance,
    ):
        if is_away:
            cluster.be_impatient()
            cluster.broker.close()
        assert RemotingHalves(GROUP, instance).has_check_back() is asks_back


def test_no_name_server_answers_and_the_cluster_is_believed_to_ask_back() -> None:
    with ScriptedCluster() as cluster, ClientInstance("127.0.0.1:1", client=cluster.client) as instance:
        cluster.be_impatient()
        assert RemotingHalves(GROUP, instance).has_check_back() is None


def test_a_half_of_another_producer_is_ended_or_one_is_sent_before_the_group_is_joined(
    cluster: ScriptedCluster, instance: ClientInstance
) -> None:
    halves = RemotingHalves(GROUP, instance)
    with pytest.raises(UsageError, match="not started"):
        halves.send_half(message())
    strange = SentHalf(unique_key="A" * 32, broker="broker-a", commit_log_offset=1, queue_offset=1)
    assert halves.end(strange, Outcome.COMMIT).outcome is EndOutcome.NOT_SENT
    assert sends(cluster) == []
    assert all(request.code != RequestCode.END_TRANSACTION for request in cluster.broker.asked)


def test_a_topic_that_nobody_has_made_says_how_to_make_it(instance: ClientInstance) -> None:
    halves = RemotingHalves("orders-service", instance)
    halves.start(lambda _half: Outcome.UNKNOWN)
    with pytest.raises(TopicNotFound, match=r"make the topic NoSuch \(mqadmin updateTopic, or .*--business\)") as found:
        halves.send_half(Message(topic="NoSuch", body=b"x"))
    halves.shutdown()
    assert len(str(found.value).splitlines()) == 1

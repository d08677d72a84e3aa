"""The whole producer over TCP: remoting client, embedded broker of every family, SQLite outbox."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from checkback_producers import AnnouncementRoute, Outcome, TransactionalProducer, open_producer
from checkback_producers.errors import HalfNotSafe, NotCommitted
from reconciler.contract.announcement import decode_announcement, is_signed
from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.unique_key import shard_of
from reconciler.embedded.server import EmbeddedBroker
from reconciler.embedded.settings import BrokerSettings
from reconciler.errors import BrokerRefused, ConfigurationError, ReconcilerError
from reconciler.policy.evidence import EndOutcome
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.name_servers import NameServers
from reconciler.rocketmq.producer.transaction_producer import END_TIMEOUT_SECONDS
from tests.embedded_cluster import EmbeddedCluster
from tests.polling import eventually
from tests.services.patient_instance import TIMEOUT_SECONDS, patient_client, patient_instance
from tests.services.ports import free_port
from tests.unit.producers.world import GROUP, TOPIC, World, message

UNIQUE_KEY_TOPIC = "RECONCILER_UNIQUE_KEY"
QUEUES = 4
WITH_CHECK_BACK = ["4.4", "4.9", "5.x"]
FAMILIES = ["3.2.6", "4.2", *WITH_CHECK_BACK]

Start = Callable[..., TransactionalProducer]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The service's database."""
    made = World(f"sqlite:///{tmp_path}/orders.db")
    yield made
    made.close()


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Starts producers over the remoting client. Those that test no time-out are patient."""
    with ExitStack() as stack:

        def started(name_servers: str, **changes: object) -> TransactionalProducer:
            values: dict[str, object] = {
                "group": GROUP,
                "environment": "test",
                "instance": stack.enter_context(patient_instance(name_servers)),
                "outbox_url": world.url,
                "announcements": AnnouncementRoute(environment="test", queues=QUEUES),
                "send_timeout_seconds": TIMEOUT_SECONDS,
                "end_timeout_seconds": TIMEOUT_SECONDS,
                "announce_every_seconds": None,  # what is looked at right after a block has to be there
            }
            producer = open_producer(**{**values, **changes})  # type: ignore[arg-type]  # names are the parameters'
            return stack.enter_context(producer)

        yield started


def make_topics(*addresses: str) -> None:
    client = patient_client()
    try:
        for address in addresses:
            Admin(client).create_topic(address, TOPIC, queues=2)
            Admin(client).create_topic(address, UNIQUE_KEY_TOPIC, queues=QUEUES)
    finally:
        client.close()


@pytest.fixture(params=FAMILIES)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """An embedded broker of each family."""
    with EmbeddedBroker(family=request.param) as running:
        make_topics(running.address)
        yield running


@pytest.fixture(params=WITH_CHECK_BACK)
def asking_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker that asks back at once when told to check."""
    settings = BrokerSettings(transaction_timeout_seconds=0.0, check_interval_seconds=3600.0)
    with EmbeddedBroker(family=request.param, settings=settings) as running:
        make_topics(running.address)
        yield running


def announced_keys(*brokers: EmbeddedBroker) -> list[str]:
    return [
        key.unique_key
        for broker in brokers
        for stored in broker.stored(UNIQUE_KEY_TOPIC)
        for key in decode_announcement(stored.body).keys
    ]


def committed_keys(broker: EmbeddedBroker) -> list[str]:
    return [stored.properties["UNIQ_KEY"] for stored in broker.stored(TOPIC)]


def test_a_commit_is_delivered_and_announced_on_every_family(
    broker: EmbeddedBroker, world: World, start: Start
) -> None:
    producer = start(broker.name_servers)
    sent = message(properties={"currency": "€"}, body=b"x" * 10_000)
    with producer.transaction(sent) as tx, world.engine.begin() as connection:
        tx.record(connection)
    assert tx.end_answer is not None
    assert (tx.outcome, tx.end_answer.outcome) == (Outcome.COMMIT, EndOutcome.DONE)
    assert announced_keys(broker) == [tx.unique_key]
    (announcement,) = broker.stored(UNIQUE_KEY_TOPIC)
    assert announcement.queue_id == shard_of(tx.unique_key, QUEUES)
    assert announcement.properties["TAGS"] == TOPIC
    visible = [stored for stored in broker.stored(TOPIC) if stored.sys_flag & 0xC != 0x4]
    (copy,) = visible
    row = world.row(tx.unique_key)
    assert copy.properties["UNIQ_KEY"] == tx.unique_key
    assert copy.properties["KEYS"].endswith("o-1 c-7")
    assert row.half_commit_log_offset == copy.prepared_offset
    assert row.half_broker == broker.settings.broker_name
    assert world.state(tx.unique_key) == "ANNOUNCED"


def test_the_digest_is_what_a_reader_of_the_topic_computes(broker: EmbeddedBroker, world: World, start: Start) -> None:
    with start(broker.name_servers).transaction(message(properties={"a": "1"})) as tx, world.engine.begin() as c:
        tx.record(c)
    copy = next(stored for stored in broker.stored(TOPIC) if stored.sys_flag & 0xC != 0x4)
    digest = digest_of_message(topic=TOPIC, unique_key=tx.unique_key, properties=copy.properties, body=copy.body)
    assert world.row(tx.unique_key).content_digest == digest


def test_a_rollback_is_delivered_to_nobody(broker: EmbeddedBroker, world: World, start: Start) -> None:
    producer = start(broker.name_servers)
    with (
        pytest.raises(NotCommitted),
        producer.transaction(message()) as tx,
        world.engine.connect() as connection,
    ):
        tx.record(connection)
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.DONE
    assert [stored for stored in broker.stored(TOPIC) if stored.sys_flag & 0xC not in (0x4, 0xC)] == []
    assert announced_keys(broker) == []


def test_an_end_that_is_lost_is_finished_by_check_back(
    asking_broker: EmbeddedBroker, world: World, start: Start
) -> None:
    producer = start(asking_broker.name_servers, end_timeout_seconds=0.5)
    asking_broker.faults.drop_ends(1)
    with producer.transaction(message()) as tx, world.engine.begin() as connection:
        tx.record(connection)
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.NO_ANSWER
    assert announced_keys(asking_broker) == [tx.unique_key], "the announcement depends on the row alone"
    assert committed_keys(asking_broker) == []
    assert _asked_until_committed(asking_broker) == [tx.unique_key]


def test_a_lost_end_does_not_hold_a_block_for_longer_than_it_was_told(broker: EmbeddedBroker, start: Start) -> None:
    producer = start(broker.name_servers, end_timeout_seconds=0.1, without_outbox=True, outbox_url=None)
    outcomes: list[EndOutcome | None] = []

    def block_is_short() -> bool:
        broker.faults.drop_ends(1)
        began = time.monotonic()
        with producer.transaction(message()) as tx:
            pass
        lasted_seconds = time.monotonic() - began
        outcomes.append(None if tx.end_answer is None else tx.end_answer.outcome)
        return lasted_seconds < END_TIMEOUT_SECONDS

    # The shortest of several on a busy machine: each block without the setting waits for that long.
    eventually(block_is_short, within_seconds=30)
    assert set(outcomes) == {EndOutcome.NO_ANSWER}


def test_an_outer_transaction_is_finished_by_check_back(
    asking_broker: EmbeddedBroker, world: World, start: Start
) -> None:
    producer = start(asking_broker.name_servers)
    with world.engine.begin() as connection, producer.transaction(message()) as tx:
        tx.record(connection)
    assert tx.outcome is Outcome.UNKNOWN
    assert committed_keys(asking_broker) == []
    assert _asked_until_committed(asking_broker) == [tx.unique_key]


def test_completion_by_check_back_commits_through_the_broker(
    asking_broker: EmbeddedBroker, world: World, start: Start
) -> None:
    producer = start(asking_broker.name_servers, completion="check")
    with producer.transaction(message()) as tx, world.engine.begin() as connection:
        tx.record(connection)
    assert committed_keys(asking_broker) == []
    assert _asked_until_committed(asking_broker) == [tx.unique_key]


def test_a_restarted_producer_answers_for_halves_of_the_dead_one(
    asking_broker: EmbeddedBroker, world: World, start: Start
) -> None:
    """The new process has sent nothing yet: it must have joined the group at start."""
    first = open_producer(
        group=GROUP, environment="test", name_servers=asking_broker.name_servers, outbox_url=world.url
    ).start()
    tx = first.transaction(message()).__enter__()
    with world.engine.begin() as connection:
        tx.record(connection)
    first.shutdown()
    start(asking_broker.name_servers)
    assert _asked_until_committed(asking_broker) == [tx.unique_key]


def test_the_last_round_of_check_back_makes_a_tombstone(world: World, start: Start) -> None:
    settings = BrokerSettings(transaction_timeout_seconds=0.0, check_interval_seconds=3600.0, check_max=15)
    with EmbeddedBroker(settings=settings) as broker:
        make_topics(broker.address)
        producer = start(broker.name_servers, check_maximum=2)
        tx = producer.transaction(message()).__enter__()  # the process hangs before its local transaction

        def rolled_back() -> bool:
            broker.check_now()
            return world.state(tx.unique_key) == "ROLLED_BACK"

        eventually(rolled_back, within_seconds=60)


@pytest.mark.parametrize("family", ["3.2.6", "4.2"])
def test_completion_by_check_back_is_refused_where_brokers_never_ask(family: str, start: Start) -> None:
    with EmbeddedBroker(family=family) as broker:
        make_topics(broker.address)
        with pytest.raises(ConfigurationError, match=r"older than 4\.3"):
            start(broker.name_servers, completion="check")


def test_a_half_that_is_not_safe_is_rolled_back(asking_broker: EmbeddedBroker, world: World, start: Start) -> None:
    producer = start(asking_broker.name_servers)
    asking_broker.faults.answer_flush("FLUSH_DISK_TIMEOUT", 1)
    tx = producer.transaction(message())
    with pytest.raises(HalfNotSafe, match="FLUSH_DISK_TIMEOUT"), tx:
        pytest.fail("the block was entered")
    assert tx.end_answer is not None
    assert tx.end_answer.outcome is EndOutcome.DONE
    assert committed_keys(asking_broker) == []


def test_a_broker_that_rejects_transactions_is_named(start: Start) -> None:
    with EmbeddedBroker(settings=BrokerSettings(reject_transaction_message=True)) as broker:
        make_topics(broker.address)
        with (
            pytest.raises(BrokerRefused, match="rejectTransactionMessage"),
            start(broker.name_servers).transaction(message()),
        ):
            pytest.fail("the block was entered")


def test_announcements_go_to_the_same_queue_of_another_broker(world: World, start: Start) -> None:
    with EmbeddedCluster(("broker-a", "broker-b")) as cluster:
        make_topics(cluster["broker-a"].address, cluster["broker-b"].address)
        _until_both_are_routed(cluster)
        producer = start(cluster.name_servers)
        keys = []
        for number in range(8):
            with producer.transaction(message()) as tx:
                with world.engine.begin() as connection:
                    tx.record(connection)
                if number == 0:
                    cluster["broker-b"].stop()
            keys.append(tx.unique_key)
        assert {world.state(key) for key in keys} == {"ANNOUNCED"}
        stored = {
            (stored.queue_id, key.unique_key)
            for stored in cluster["broker-a"].stored(UNIQUE_KEY_TOPIC)
            for key in decode_announcement(stored.body).keys
        }
        assert stored == {(shard_of(key, QUEUES), key) for key in keys}


def _until_both_are_routed(cluster: EmbeddedCluster) -> None:
    client = patient_client()
    try:
        servers = NameServers(cluster.name_servers, client)

        def both() -> bool:
            try:
                return all(len(servers.topic_route(topic).masters) == 2 for topic in (TOPIC, UNIQUE_KEY_TOPIC))
            except BrokerRefused:
                return False

        eventually(both, within_seconds=60)
    finally:
        client.close()


def test_too_few_queues_are_named_and_the_row_stays_new(
    world: World, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker() as broker:
        make_topics(broker.address)
        producer = start(broker.name_servers, announcements=AnnouncementRoute(environment="test", queues=1_024))
        key = next(key for key in (f"{number:032X}" for number in range(100)) if shard_of(key, 1_024) >= QUEUES)
        with producer.transaction(message(unique_key=key)) as tx, world.engine.begin() as connection:
            tx.record(connection)
        assert (tx.outcome, world.state(key)) == (Outcome.COMMIT, "NEW")
        assert "run reconciler topics create" in caplog.text
        assert broker.stored(UNIQUE_KEY_TOPIC) == []


def test_a_signed_announcement_arrives_with_its_signature(world: World, start: Start) -> None:
    with EmbeddedBroker() as broker:
        make_topics(broker.address)
        route = AnnouncementRoute(environment="test", queues=QUEUES, signature_secret=b"secret")
        with start(broker.name_servers, announcements=route).transaction(message()) as tx, world.engine.begin() as c:
            tx.record(c)
        (stored,) = broker.stored(UNIQUE_KEY_TOPIC)
        assert is_signed(stored.body, stored.properties["RECONCILER_SIGNATURE"], b"secret")


def test_brokers_that_are_away_at_start_are_found_later(world: World, start: Start) -> None:
    broker = EmbeddedBroker(listen=f"127.0.0.1:{free_port(neighbours=(-2,))}")
    broker.start()
    name_servers = broker.name_servers
    broker.stop()
    producer = start(name_servers, send_timeout_seconds=1.0)
    with pytest.raises(ReconcilerError), producer.transaction(message()):
        pytest.fail("the block was entered")
    broker.start()
    try:
        make_topics(broker.address)

        def sends() -> bool:
            try:
                with producer.transaction(message()) as tx, world.engine.begin() as connection:
                    tx.record(connection)
            except ReconcilerError:
                return False
            return tx.outcome is Outcome.COMMIT

        eventually(sends, within_seconds=60)
    finally:
        broker.stop()


def _asked_until_committed(broker: EmbeddedBroker) -> list[str]:
    """One round: every further one would put back another copy, and each accepted END delivers once more."""
    broker.check_now()
    return eventually(lambda: committed_keys(broker), within_seconds=60)

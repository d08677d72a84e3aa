"""Members of a group share the queues, and what one leaves behind the others finish."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from reconciler.embedded.server import EmbeddedBroker
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, ReceivedMessage
from tests.embedded_cluster import EmbeddedCluster
from tests.integration.rocketmq.conftest import (
    Collector,
    Consumers,
    has_queues,
    held_queues,
    quick_settings,
    send,
    sent,
    stored_offsets,
    unique_name,
)
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.processes import Child

ROOT = Path(__file__).resolve().parents[3]


def numbered(count: int, *, start: int = 0) -> list[str]:
    return [f"m{number:04}" for number in range(start, start + count)]


def test_a_member_that_is_killed_is_replaced_without_loss(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers, tmp_path: Path
) -> None:
    got = Collector()
    survivor = consumers.start("G", topic, got)
    eventually(lambda: held_queues(survivor, topic) == [0, 1, 2, 3], within_seconds=60)
    log = tmp_path / "member.log"
    module = "tests.integration.rocketmq.group_member"
    child = Child(
        [sys.executable, "-m", module, broker.name_servers, "G", topic],
        log=log,
        cwd=ROOT,
        environment={"PYTHONPATH": str(ROOT)},
    )
    try:
        eventually(lambda: len(held_queues(survivor, topic)) == 2, within_seconds=60)
        send(instance, topic, numbered(40))
        eventually(lambda: len(log.read_text().split()) == 20, within_seconds=60)
        child.kill()
        eventually(lambda: held_queues(survivor, topic) == [0, 1, 2, 3], within_seconds=60)
        send(instance, topic, numbered(40, start=40))
        eventually(lambda: set(got.bodies) | set(log.read_text().split()) == set(numbered(80)), within_seconds=60)
    finally:
        child.kill()


def test_results_of_a_lost_queue_are_not_committed(instance: ClientInstance, topic: str, consumers: Consumers) -> None:
    """The new owner consumes it again; a late commit of the old one must not hide that it has not yet."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(_messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
        begun.set()
        go_on.wait(300)
        return ConsumeStatus.CONSUME_SUCCESS

    send(instance, topic, numbered(4))
    first = consumers.start("G", topic, slow, threads=4)
    assert begun.wait(60)
    never = threading.Event()
    second_got = Collector(lambda _m: ConsumeStatus.CONSUME_SUCCESS if never.wait(300) else None)
    second = consumers.start("G", topic, second_got, threads=4, shutdown_seconds=0.1)
    eventually(lambda: len(held_queues(second, topic)) == 2, within_seconds=60)
    mine = held_queues(second, topic)
    eventually(lambda: len(second_got.messages) == 2, within_seconds=60)
    kept = eventually(lambda: [q for q in [held_queues(first, topic)] if len(q) == 2], within_seconds=60)[0]
    go_on.set()
    eventually(lambda: [stored_offsets(instance, "G", topic)[queue] for queue in kept] == [1, 1], within_seconds=60)
    assert [stored_offsets(instance, "G", topic)[queue] for queue in mine] == [0, 0]
    never.set()
    eventually(lambda: stored_offsets(instance, "G", topic) == [1] * 4, within_seconds=60)


def test_a_member_keeps_its_queues_while_name_servers_and_brokers_do_not_answer(
    broker: EmbeddedBroker, instance: ClientInstance, topic: str, consumers: Consumers
) -> None:
    got = Collector()
    consumer = consumers.start("G", topic, got)
    eventually(lambda: len(held_queues(consumer, topic)) == 4, within_seconds=60)
    broker.faults.stop_answering()
    broker.drop_connections()
    eventually(lambda: broker.faults.counts["silent"] > 3, within_seconds=60)
    assert len(held_queues(consumer, topic)) == 4
    broker.faults.clear()
    broker.drop_connections()  # else the swallowed pulls would have to time out first
    eventually(lambda: sent(instance, topic, "after"), within_seconds=60)
    eventually(lambda: "after" in got.bodies, within_seconds=60)


def test_queues_of_two_brokers_are_consumed_and_one_dead_broker_does_not_stop_the_other() -> None:
    with (
        EmbeddedCluster(("a", "b"), settings=quick_settings) as cluster,
        patient_instance(cluster.name_servers) as instance,
    ):
        topic = unique_name("Topic")
        for name in ("a", "b"):
            Admin(instance.client).create_topic(cluster[name].address, topic, queues=2)
        eventually(lambda: has_queues(instance, topic, 4), within_seconds=60)
        consumers = Consumers(cluster.name_servers)
        with consumers.stack:
            got = Collector()
            consumers.start("G", topic, got)
            send(instance, topic, numbered(20))
            eventually(lambda: sorted(got.bodies) == numbered(20), within_seconds=60)
            assert {message.broker_name for message in got.messages} == {"a", "b"}
            cluster["a"].stop()
            for body in numbered(4, start=20):
                eventually(partial(sent, instance, topic, body), within_seconds=60)
            eventually(lambda: set(got.bodies) == set(numbered(24)), within_seconds=60)

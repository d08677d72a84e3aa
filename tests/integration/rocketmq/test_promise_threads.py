"""Threads do not grow with queues, pulls or look-ups: one reader a connection, requests share it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from reconciler.embedded.server import EmbeddedBroker
from reconciler.evidence.lookup import Lookups
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from tests.integration.rocketmq.conftest import new_topic, unique_name
from tests.polling import eventually
from tests.services.patient_instance import patient_instance


def threads_of_a_consumer(broker: EmbeddedBroker, instance: ClientInstance, queues: int) -> int:
    """Threads that a consumer of so many queues has started, once it waits for messages in each of them."""
    topic = new_topic(instance, broker.address, queues=queues)
    before = set(threading.enumerate())
    with patient_instance(broker.name_servers) as own:
        consumer = PushConsumer(unique_name("CG"), instance=own).subscribe(topic)
        with consumer.register_listener(lambda _messages: ConsumeStatus.CONSUME_SUCCESS):
            eventually(
                lambda: sum(queue.queue.topic == topic for queue in consumer.assigned()) == queues,
                within_seconds=60,
            )
            return len(set(threading.enumerate()) - before)


def test_a_consumer_of_64_queues_has_as_many_threads_as_one_of_two(
    broker: EmbeddedBroker, instance: ClientInstance
) -> None:
    few, many = (threads_of_a_consumer(broker, instance, queues) for queues in (2, 64))
    assert many <= few + 1


def test_a_hundred_look_ups_at_once_share_one_connection(broker: EmbeddedBroker, instance: ClientInstance) -> None:
    topic = new_topic(instance, broker.address)
    lookups = Lookups(instance.client, instance.routes, instance.families)
    lookups.find(topic, "0" * 32)()
    before = {thread for thread in threading.enumerate() if thread.name.startswith("rocketmq")}
    with ThreadPoolExecutor(20, thread_name_prefix="asking") as pool:
        answers = list(pool.map(lambda number: lookups.find(topic, f"{number:032X}")(), range(100)))
    after = {thread for thread in threading.enumerate() if thread.name.startswith("rocketmq")}
    assert all(answer.is_absent for answer in answers)
    assert after <= before

"""What a commit query proves lost is sent, once: of producers that are gone at once, of those that are there by the
broker's own question alone. Nothing before a person stands by the query."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.rocketmq.producer.transaction_producer import (
    LocalTransactionState,
    TransactionListener,
    TransactionMQProducer,
)
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from tests.acceptance.command import reconciler
from tests.acceptance.deployment import Service
from tests.brokers.addresses import Address
from tests.brokers.query_shop import Shop, make_orders, settings, with_effect_query
from tests.polling import eventually
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

State = LocalTransactionState


class Answers(TransactionListener):
    """Does not know at once, and says COMMIT when it is asked."""

    def execute_local_transaction(self, message: Message, arg: object) -> State:
        del message, arg
        return State.UNKNOWN

    def check_local_transaction(self, message: ReceivedMessage) -> State:
        del message
        return State.COMMIT


@pytest.mark.parametrize("over", ["DELIVERED", "CONSUMED"], ids=["by the offset", "by an effect query"])
@pytest.mark.set_up("commit queries in place of an outbox, and half messages as announcements")
def test_what_is_lost_is_billed_once_and_a_producer_that_answers_is_left_to_its_broker(
    place: Address, redis_server: RedisServer, tmp_path: Path, services: list[Service], over: str
) -> None:
    """`over`: the verdict on what was billed."""
    topic = place.new_topic("sends")
    by_query = with_effect_query(tmp_path, topic) if over == "CONSUMED" else ""
    orders = [(one, "PAID") for one in ("dead-0", "dead-1", "twice", "alive-0", "alive-1")]
    make_orders(tmp_path, [*orders, ("cancelled", "CANCELLED")])
    config = settings(
        tmp_path,
        name_servers=place.name_servers,
        topic=topic,
        redis_url=redis_server.url,
        repairs=f'repairs.topics."{topic}" = true',
        of_subscription=f"consumers_are_idempotent = true\n{by_query}",
    )
    with patient_instance(place.name_servers) as instance:
        shop = Shop(instance, topic, tmp_path)
        with shop.consumer.register_listener(shop.bill):
            for order in ("dead-0", "dead-1", "twice", "twice", "cancelled", "abandoned"):
                shop.half(order)
            services.append(Service(tmp_path / "run.log", ["run", "--config", str(config)]))
            lost = {"dead-0", "dead-1"}
            eventually(lambda: lost <= shop.repairs().keys(), within_seconds=120)
            assert not shop.billed, "nobody stands by the query yet"
            accepted = reconciler("query", "accept", topic, "--config", str(config), "--reason", "few halves yet")
            assert accepted.exit_code == 0, accepted.stdout
            eventually(lambda: shop.billed.keys() == lost, within_seconds=120)
            with TransactionMQProducer(shop.group, Answers(), instance=instance).start(topic) as producer:
                for order in ("alive-0", "alive-1"):
                    sent = producer.send_message_in_transaction(Message(topic=topic, body=b"order", keys=(order,)))
                    shop.keys[sent.unique_key] = order
                alive = {"alive-0", "alive-1"}
                eventually(lambda: shop.billed.keys() == lost | alive, within_seconds=120)

            def is_settled() -> bool:
                assert services[0].process.poll() is None, services[0].output[-3000:]
                states, verdicts = shop.repairs(), shop.verdicts()
                return all(states[one][0] == "DONE" and verdicts[one] == over for one in lost) and all(
                    verdicts.get(one) == over for one in alive
                )

            eventually(is_settled, within_seconds=120)
        assert shop.billed.keys() == lost | alive, "nothing else"
        # A broker that asks again while an answer is under way obeys both.
        assert {one: shop.billed[one] for one in lost} == dict.fromkeys(lost, 1)
        assert {one: attempts for one, (_, attempts) in shop.repairs().items() if attempts} == dict.fromkeys(lost, 1)
        assert {shop.verdicts()[one] for one in ("cancelled", "abandoned")} == {"REJECTED"}
        assert shop.verdicts()["twice"] == "UNKNOWN"

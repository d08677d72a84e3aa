"""A shop that holds none of our code takes inbox and outbox on while it works, and goes back: each message has one
effect throughout, and nothing is sent that was not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from checkback_producers.producer import TransactionalProducer
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.sql.engines import open_engine
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import EFFECTS, ORDERS, Deployment, Service, disposed
from tests.polling import eventually
from tests.services.patient_instance import end_half, patient_instance

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

#: One of so many ENDs is lost.
LOSE_EVERY = 10
SECONDS = 120


class Shop:
    """Commits orders in a thread of its own, without the plug-in or with it, and loses ENDs."""

    def __init__(self, deployed: Deployment, instance: ClientInstance, producer: TransactionalProducer) -> None:
        self.committed: list[str] = []
        self.lost: set[str] = set()
        self.has_plugin = False
        self._deployed, self._instance, self._producer = deployed, instance, producer
        (self._address,) = instance.cluster_addresses()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop")

    def _run(self) -> None:
        with disposed(open_engine(self._deployed.outbox_url, lock_timeout_seconds=30)) as engine:
            number = 0
            while not self._stop.wait(0.1):
                number += 1
                lose = number % LOSE_EVERY == 0
                if self.has_plugin:
                    (key,) = self._deployed.commit(1, lose=lose, producer=self._producer)
                else:
                    key = self._sell(engine, lose=lose)
                self.committed.append(key)
                if lose:
                    self.lost.add(key)

    def _sell(self, engine: sa.Engine, *, lose: bool) -> str:
        """As a service does that holds none of our code; a lost END's process is gone."""
        group = self._deployed.producer_group
        half = self._instance.sender(group).send(Message(topic=self._deployed.topic, body=b"order"), is_half=True)
        with engine.begin() as connection:
            connection.execute(sa.insert(ORDERS).values(unique_key=half.unique_key))
        if not lose:
            answer = end_half(self._instance.client, half, EndDecision.COMMIT, address=self._address, group=group)
            assert answer.code == 0, answer
        return half.unique_key

    def sell_until_repaired(self) -> None:
        """Until one that is lost from now on, and all before it, have their effects."""
        done = len(self.lost)
        eventually(lambda: len(self.lost) > done + 1, within_seconds=SECONDS)
        wanted = set(self.committed)
        eventually(lambda: wanted <= set(self._deployed.effects()), within_seconds=SECONDS, message="effects")

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def biller_without_inbox(deployed: Deployment, instance: ClientInstance) -> Iterator[None]:
    """A member of the group that holds none of our code."""
    with disposed(open_engine(deployed.inbox_url, lock_timeout_seconds=30)) as engine:

        def bill(messages: Sequence[ReceivedMessage]) -> ConsumeStatus:
            with engine.begin() as connection:
                rows = [{"unique_key": one.unique_key, "applied_at_ms": 0} for one in messages]
                connection.execute(sa.insert(EFFECTS), rows)
            return ConsumeStatus.CONSUME_SUCCESS

        settings = PushSettings(offset_commit_interval_seconds=0.5)
        consumer = PushConsumer(deployed.group, instance=instance, settings=settings).subscribe(deployed.topic, "*")
        with consumer.register_listener(bill):
            yield


def with_query(deployed: Deployment, recorded: str) -> str:
    """The settings with a query of the shop's own table in place of outbox and inbox."""
    queries = deployed.folder / "queries.toml"
    queries.write_text(f"""
[[commit_queries]]
topic = "{deployed.topic}"
database_url = "{deployed.outbox_url}"
sql = "SELECT unique_key, 'PAID' FROM orders WHERE unique_key IN (:keys)"
key = "UNIQ_KEY"
committed = ["PAID"]
longest_transaction_seconds = 1
""")
    announced_by = 'announcements = "half_topic"\nconsumers_are_idempotent = true'
    assert "[repairs]\n" in recorded
    return (
        recorded.replace(f'outbox_url = "{deployed.outbox_url}"', f'commit_queries = "{queries}"')
        .replace(f'inbox_url = "{deployed.inbox_url}"', announced_by)
        .replace("[repairs]\n", f"[repairs]\ntopics = {{ {deployed.topic} = true }}\n")
    )


def test_a_shop_takes_inbox_and_outbox_on_while_it_works_and_goes_back(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    recorded = deployed.config.read_text()
    by_query = with_query(deployed, recorded)

    def run(settings: str, *roles: str) -> list[Service]:
        deployed.config.write_text(settings)
        return [deployed.run(role) for role in roles]

    def end(services: list[Service]) -> None:
        assert [one.end() for one in services] == [0] * len(services)

    with patient_instance(deployed.name_servers) as instance:
        producer = deployed.producer()
        with Shop(deployed, instance, producer) as shop:
            with biller_without_inbox(deployed, instance):
                services = run(by_query, "run")
                eventually(lambda: len(shop.committed) > 20, within_seconds=SECONDS)
                accepted = deployed.command("query", "accept", deployed.topic, "--reason", "none is rolled back here")
                assert accepted.exit_code == 0, accepted.stdout
                shop.sell_until_repaired()
            member = deployed.consume()  # receivers first
            shop.sell_until_repaired()
            shop.has_plugin = True  # then senders
            shop.sell_until_repaired()
            end(services)
            services = run(recorded, "run", "sweep")
            shop.sell_until_repaired()
            end(services)
            services = run(by_query, "run")
            shop.sell_until_repaired()
            shop.has_plugin = False
            shop.sell_until_repaired()
            member.shutdown()
            with biller_without_inbox(deployed, instance):
                shop.sell_until_repaired()
                # The last ones are repaired, too.
                shop.__exit__()
                eventually(lambda: set(shop.committed) <= set(deployed.effects()), within_seconds=SECONDS)
    assert deployed.effects() == sorted(shop.committed)
    rows = "SELECT unique_key FROM reconciler_repair WHERE attempts > 0"
    assert set(deployed.rows(deployed.ledger, rows)) <= shop.lost, "nothing was sent that was not lost"
    # A living producer's END and its answer to a question may both deliver; of a lost one neither arrives.
    copies = deployed.copies()
    assert {key: copies[key] for key in shop.lost if copies[key] != 1} == {}, "and that once"

"""A shop that holds none of our code takes inbox and outbox on while it works, and goes back: each message has one
effect throughout, an order that was never committed has none, and nothing is sent that was not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.producer import TransactionalProducer
from reconciler.rocketmq.client.client_instance import ClientInstance
from reconciler.rocketmq.client.sending import SendResult
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from reconciler.rocketmq.consumer.settings import PushSettings
from reconciler.rocketmq.producer.ending import EndDecision
from reconciler.rocketmq.wire.message import Message
from reconciler.rocketmq.wire.received_message import ReceivedMessage
from reconciler.sql.engines import open_engine
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import EFFECTS, ORDERS, Deployment, Service
from tests.engines import disposed
from tests.polling import eventually
from tests.services.patient_instance import end_half, patient_instance

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

#: Of so many orders one END is lost; of as many, one half has a producer that dies before its commit.
LOSE_EVERY = ABANDON_EVERY = 10
SECONDS = 120


class Shop:
    """Commits orders in a thread of its own, with a producer of the plug-in or without, and loses ENDs."""

    def __init__(self, deployed: Deployment, instance: ClientInstance) -> None:
        self.committed: list[str] = []
        self.lost: set[str] = set()
        #: None: as a service that holds none of our code.
        self.producer: TransactionalProducer | None = None
        self._deployed, self._instance = deployed, instance
        (self._address,) = instance.cluster_addresses()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop")

    def _run(self) -> None:
        with disposed(open_engine(self._deployed.outbox_url, lock_timeout_seconds=30)) as engine:
            number = 0
            while not self._stop.wait(0.1):
                number += 1
                lose = number % LOSE_EVERY == 0
                if number % ABANDON_EVERY == 5:
                    self._half()
                if (producer := self.producer) is not None:
                    (key,) = self._deployed.commit(1, lose=lose, producer=producer)
                else:
                    key = self._sell(engine, lose=lose)
                self.committed.append(key)
                if lose:
                    self.lost.add(key)

    def _sell(self, engine: sa.Engine, *, lose: bool) -> str:
        """As a service does that holds none of our code; a lost END's process is gone."""
        half, group = self._half(), self._deployed.producer_group
        with engine.begin() as connection:
            connection.execute(sa.insert(ORDERS).values(unique_key=half.unique_key))
        if not lose:
            answer = end_half(self._instance.client, half, EndDecision.COMMIT, address=self._address, group=group)
            assert answer.code == 0, answer
        return half.unique_key

    def _half(self) -> SendResult:
        message = Message(topic=self._deployed.topic, body=b"order")
        return self._instance.sender(self._deployed.producer_group).send(message, is_half=True)

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


def with_query(deployed: Deployment, recorded: str, *, asks_effects: bool) -> str:
    """The settings with a query of the shop's own table in place of the outbox. In place of the inbox they have a query
    of the biller's table, or nothing."""
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
    if asks_effects:
        announced_by += f'\neffect_query = "{effect_queries(deployed)}"'
    assert "[repairs]\n" in recorded
    return (
        recorded.replace(f'outbox_url = "{deployed.outbox_url}"', f'commit_queries = "{queries}"')
        .replace(f'inbox_url = "{deployed.inbox_url}"', announced_by)
        .replace("[repairs]\n", f"[repairs]\ntopics = {{ {deployed.topic} = true }}\n")
    )


def effect_queries(deployed: Deployment) -> Path:
    """The file of the query that finds the biller's effects, with and without an inbox beside them."""
    file = deployed.folder / "effects.toml"
    file.write_text(f"""
[[effect_queries]]
topic = "{deployed.topic}"
group = "{deployed.group}"
database_url = "{deployed.inbox_url}"
sql = "SELECT unique_key, 'BILLED' FROM {EFFECTS.name} WHERE unique_key IN (:keys)"
key = "UNIQ_KEY"
applied = ["BILLED"]
""")
    return file


def without_inbox(deployed: Deployment, recorded: str) -> str:
    """The settings where services announce, and members of the group hold none of our code."""
    return recorded.replace(inbox_line(deployed), "")


def inbox_line(deployed: Deployment) -> str:
    return f'inbox_url = "{deployed.inbox_url}"\n'


def with_inbox_since_now(deployed: Deployment, recorded: str) -> str:
    """What the group was given before now may have taken effect without a row."""
    line = inbox_line(deployed)
    return recorded.replace(line, f'{line}since = "{datetime.now(UTC).isoformat()}"\n')


@pytest.mark.parametrize(
    ("announces_first", "asks_effects"),
    [
        pytest.param(False, False, id="receivers first"),
        pytest.param(True, False, id="announcements first"),
        pytest.param(False, True, id="effects by a query"),
    ],
)
def test_a_shop_takes_inbox_and_outbox_on_while_it_works_and_goes_back(
    new_deployment: DeploymentFactory, announces_first: bool, asks_effects: bool
) -> None:
    """Receivers first and senders then; or services announce for a while, before members have an inbox."""
    deployed = new_deployment()
    recorded = deployed.config.read_text()
    by_query = with_query(deployed, recorded, asks_effects=asks_effects)
    announced = without_inbox(deployed, recorded)
    services: list[Service] = []

    def run(settings: str, *roles: str) -> None:
        assert [one.end() for one in services] == [0] * len(services)
        deployed.config.write_text(settings)
        services[:] = [deployed.run(role) for role in roles]
        shop.sell_until_repaired()

    def sell(producer: TransactionalProducer | None) -> None:
        shop.producer = producer
        shop.sell_until_repaired()

    with patient_instance(deployed.name_servers) as instance:
        plugin = deployed.producer()
        with Shop(deployed, instance) as shop:
            with biller_without_inbox(deployed, instance):
                deployed.config.write_text(by_query)
                services.append(deployed.run("run"))
                eventually(lambda: len(shop.committed) > 20, within_seconds=SECONDS)
                accepted = deployed.command("query", "accept", deployed.topic, "--reason", "none is rolled back here")
                assert accepted.exit_code == 0, accepted.stdout
                shop.sell_until_repaired()
                if announces_first:
                    sell(plugin)
                    run(announced, "run", "sweep")
            member = deployed.consume()
            shop.sell_until_repaired()
            with_inbox = with_inbox_since_now(deployed, recorded)
            if not announces_first:
                sell(plugin)
            run(with_inbox, "run", "sweep")
            if announces_first:
                run(announced, "run", "sweep")
            else:
                run(by_query, "run")
                sell(None)
            member.shutdown()
            with biller_without_inbox(deployed, instance):
                shop.sell_until_repaired()
                if announces_first:
                    run(by_query, "run")
                    sell(None)
                # The last ones are repaired, too.
                shop.__exit__()
                eventually(lambda: set(shop.committed) <= set(deployed.effects()), within_seconds=SECONDS)
    assert deployed.effects() == sorted(shop.committed)
    rows = "SELECT unique_key FROM reconciler_repair WHERE attempts > 0"
    assert set(deployed.rows(deployed.ledger, rows)) <= shop.lost, "nothing was sent that was not lost"
    # A living producer's END and its answer to a question may both deliver; of a lost one neither arrives.
    copies = deployed.copies()
    assert {key: copies[key] for key in shop.lost if copies[key] != 1} == {}, "and that once"

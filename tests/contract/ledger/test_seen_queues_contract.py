"""ports.SeenQueues on every database."""

from __future__ import annotations

import pytest

from reconciler.contract.queue_proof import QueueRecord
from reconciler.contract.tables import EVERY_GROUP
from reconciler.policy.ports.announcing import AnnouncementQueue, ProvedFrom, SeenQueue
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import shard

TOPIC = "ORDERS"


def seen(end: int, *, doubtful_below: int = 0, key: str = "K", proved: dict[str, int] | None = None) -> SeenQueue:
    record = QueueRecord(
        queue_offset=end - 1, stored_at_ms=1_700_000_000_000, commit_log_offset=end * 9, unique_key=key
    )
    proved_from = {
        group: ProvedFrom(queue_offset=offset, behind_log_offset=offset * 9) for group, offset in (proved or {}).items()
    }
    return SeenQueue(end=end, record=record, doubtful_below=doubtful_below, proved_from=proved_from)


def test_queues_topics_and_environments_do_not_mix(database_world: DatabaseWorld) -> None:
    queues, environment = database_world.ledger.seen_queues, database_world.environment
    both = {("broker-a", 0): seen(9), ("broker-b", 1): seen(2**40, doubtful_below=7)}
    queues.keep(environment, TOPIC, both)
    queues.keep(environment, "%RETRY%billing", {("broker-a", 0): SeenQueue(end=0, doubtful_below=3)})
    assert queues.of_topic(environment, TOPIC) == both
    assert queues.of_topic(environment, "%RETRY%billing") == {("broker-a", 0): SeenQueue(end=0, doubtful_below=3)}
    assert queues.of_topic("another", TOPIC) == queues.of_topic(environment, "OTHER") == {}


def test_what_was_seen_last_counts_and_a_doubt_only_rises(database_world: DatabaseWorld) -> None:
    queues, environment = database_world.ledger.seen_queues, database_world.environment
    for one in (seen(9), seen(12, doubtful_below=9), seen(11, key="other")):
        queues.keep(environment, TOPIC, {("broker-a", 0): one})
    assert queues.of_topic(environment, TOPIC) == {("broker-a", 0): seen(11, doubtful_below=9, key="other")}


def test_what_is_proved_again_belongs_to_its_doubt(database_world: DatabaseWorld) -> None:
    queues, environment = database_world.ledger.seen_queues, database_world.environment
    proved = seen(12, doubtful_below=9, proved={EVERY_GROUP: 10, "billing": 3, "%a|b-c_1": 2**40})
    queues.keep(environment, TOPIC, {("broker-a", 0): proved})
    assert queues.of_topic(environment, TOPIC) == {("broker-a", 0): proved}
    queues.keep(environment, TOPIC, {("broker-a", 0): seen(13, doubtful_below=14)})
    queues.keep(environment, TOPIC, {("broker-a", 0): seen(12, doubtful_below=9, proved={"billing": 3})})
    assert queues.of_topic(environment, TOPIC) == {("broker-a", 0): seen(12, doubtful_below=14)}


@pytest.mark.parametrize("name", ["b" * 161, "\x00"])
def test_a_broker_that_no_database_can_name_is_left_out(database_world: DatabaseWorld, name: str) -> None:
    queues, environment = database_world.ledger.seen_queues, database_world.environment
    queues.keep(environment, TOPIC, {(name, 0): seen(5), ("broker-a", 0): seen(6)})
    queues.keep(environment, name, {("broker-a", 0): seen(6)})
    assert queues.of_topic(environment, TOPIC) == {("broker-a", 0): seen(6)}


def test_seen_queues_are_no_floors(database_world: DatabaseWorld) -> None:
    ledger, subscription = database_world.ledger, shard(database_world.environment).subscription
    ledger.seen_queues.keep(database_world.environment, subscription.topic, {("broker-a", 0): seen(5)})
    queue = AnnouncementQueue(unique_key_topic="UK", broker="broker-a", queue_id=0)
    assert ledger.announcements.floor(subscription, queue) is None
    assert ledger.reports.floors(subscription) == []

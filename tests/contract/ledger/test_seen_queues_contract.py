"""ports.SeenQueues on every database."""

from __future__ import annotations

import pytest

from reconciler.contract.queue_proof import QueueRecord
from reconciler.policy.ports import AnnouncementQueue, SeenQueue
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import shard

TOPIC = "ORDERS"


def seen(end: int, *, doubtful_below: int = 0, key: str = "K") -> SeenQueue:
    record = QueueRecord(
        queue_offset=end - 1, stored_at_ms=1_700_000_000_000, commit_log_offset=end * 9, unique_key=key
    )
    return SeenQueue(end=end, record=record, doubtful_below=doubtful_below)


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

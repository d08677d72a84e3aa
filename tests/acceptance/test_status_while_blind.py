"""`status` is not calm while commits pass by unseen, and is calm where they only wait."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from reconciler.clock import SystemClock
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.wire.message import Message
from reconciler.sql import schema
from reconciler.sql.database_time import NOW_MS_SQL
from tests.acceptance.command import reconciler
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import SHARDS, Deployment
from tests.ended import Ended
from tests.polling import eventually
from tests.services.embedded_broker import EmbeddedBroker
from tests.services.patient_instance import patient_instance
from tests.services.redis_server import RedisServer

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

#: As a monitor asks; rounds, sweeps and clocks of a deployment of the tests need less than three seconds.
WITHIN = ("--rounds-within", "5")


def status(deployed: Deployment, *arguments: str) -> Ended:
    return deployed.command("status", *arguments, *WITHIN, "-o", "json")


def calm(deployed: Deployment) -> dict[str, Any]:
    """The report, once every commit is accounted for."""

    def report() -> dict[str, Any] | None:
        ended = status(deployed)
        return ended.document if ended.exit_code == 0 else None

    found = eventually(report, within_seconds=60)
    assert found["summary"].startswith("All is well: every commit until ")
    return found


def blind(deployed: Deployment, *, because: str) -> dict[str, Any]:
    """The report, once it names the cause."""

    def report() -> dict[str, Any] | None:
        ended = status(deployed)
        return (
            ended.document if ended.exit_code == 3 and because in ended.document.get("summary", ended.stderr) else None
        )

    try:
        return eventually(report, within_seconds=40)
    except AssertionError:
        raise AssertionError(str(status(deployed))) from None


def until_ms(report: dict[str, Any]) -> int | None:
    (subscription,) = report["subscriptions"]
    found = subscription["accounted_until_ms"]
    assert found is None or isinstance(found, int)
    return found


def delete_topic(deployed: Deployment, topic: str) -> None:
    with patient_instance(deployed.name_servers) as instance:
        for address in instance.cluster_addresses():
            Admin(instance.client).delete_topic(address, topic)


def sweep(deployed: Deployment, *, seconds_ago: float) -> None:
    """Puts down a sweep as the sweeper does."""
    with closing(sqlite3.connect(deployed.outbox)) as db:
        at_ms = f"{NOW_MS_SQL['sqlite']} - {round(seconds_ago * 1000)}"
        db.execute(f"UPDATE reconciler_outbox_identity SET swept_at_ms = {at_ms} WHERE id = 2")
        db.commit()


def test_unique_key_topic_that_does_not_exist_is_no_calm(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")
    calm(deployed)
    delete_topic(deployed, deployed.unique_key_topic)
    report = blind(deployed, because=f"no broker has the topic {deployed.unique_key_topic}")
    assert until_ms(report) is None
    assert report["summary"].endswith("run `reconciler topics create`")
    assert deployed.command("topics", "create").exit_code == 0
    calm(deployed)


def test_brokers_that_refuse_us_are_no_calm(new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker) -> None:
    deployed = new_deployment()
    deployed.run("run")
    calm(deployed)
    embedded_broker.configure({"fault.refuse": "-1"})
    report = blind(deployed, because="wants authentication")
    assert until_ms(report) is None
    embedded_broker.configure({"fault.refuse": "0"})
    calm(deployed)


def test_a_broker_whose_index_stands_still_is_no_calm(
    new_deployment: DeploymentFactory, embedded_broker: EmbeddedBroker
) -> None:
    deployed = new_deployment()
    deployed.run("run")
    calm(deployed)
    embedded_broker.configure({"fault.lag_index": "3600"})
    (lost,) = deployed.commit(1, lose=True)
    report = blind(deployed, because=f"{lost}, first seen at ")
    assert " is UNKNOWN: " in report["summary"]
    assert until_ms(report) is not None
    doctor = deployed.command("doctor", "--output", "json")
    assert doctor.exit_code == 1
    assert f"index of broker {embedded_broker.broker_name}" in doctor.stdout
    embedded_broker.configure({"fault.lag_index": "0"})
    eventually(lambda: status(deployed).exit_code == 0, within_seconds=60)


def test_announcements_that_nobody_reads_while_rounds_run_are_no_calm(
    new_deployment: DeploymentFactory, redis_server: RedisServer, embedded_broker: EmbeddedBroker
) -> None:
    deployed = new_deployment()
    service = deployed.run("run")
    deployed.commit(8)
    calm(deployed)
    assert service.end() == 0
    # Another process has the queues' leases, reads nothing, and never gives them up.
    subscription = Subscription(environment=deployed.environment, topic=deployed.topic, group=deployed.group)
    with redis.Redis.from_url(redis_server.url) as client:
        for number in range(SHARDS):
            keys = ShardKeys(Shard(subscription=subscription, number=number))
            client.set(keys.announcement_lease(embedded_broker.broker_name), "somebody")
    deployed.run("run")
    report = calm(deployed)
    deployed.commit(8)
    waiting_ms = min(deployed.rows(deployed.outbox, "SELECT max(created_at_ms) FROM reconciler_outbox"))
    stopped = blind(deployed, because=f"of {deployed.unique_key_topic} wait from offset ")
    assert (until_ms(report) or 0) < (until_ms(stopped) or 0) <= waiting_ms + 1_000
    assert deployed.topic in stopped["late"][0]


def test_announcements_that_are_refused_need_a_person(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")
    calm(deployed)
    deployed.environment += "-of-somebody-else"  # as its producers have it
    deployed.commit(8)
    report = eventually(
        lambda: ended.document if (ended := status(deployed)).exit_code == 1 else None, within_seconds=40
    )
    (line,) = report["damaged"]
    assert "were refused, and what they tell of passes by unseen: ENVIRONMENT: announced for" in line
    assert line in report["summary"]


def test_announcements_in_a_queue_beyond_the_configured_ones_are_no_calm(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")
    with patient_instance(deployed.name_servers) as instance:
        for address in instance.cluster_addresses():
            Admin(instance.client).create_topic(address, deployed.unique_key_topic, queues=SHARDS + 2)
        calm(deployed)

        def beyond() -> MessageQueue | None:
            found = instance.routes.refresh(deployed.unique_key_topic).writable_queues
            return next((queue for queue in found if queue.queue_id > SHARDS), None)

        queue = eventually(beyond, within_seconds=30)
        before_ms = SystemClock().now_ms()
        # As a producer with `queues` of its own announces.
        announcement = Message(topic=deployed.unique_key_topic, body=b"{}", tags=deployed.topic)
        instance.sender("somebody").send(announcement, queue=queue)
    report = blind(deployed, because="no process reads that queue")
    assert before_ms - 1_000 <= (until_ms(report) or 0) <= SystemClock().now_ms()


@pytest.mark.nightly
def test_announcements_in_a_queue_that_was_taken_away_are_no_calm(new_deployment: DeploymentFactory) -> None:
    """A person lowered the queues of the topic while something waited there: its brokers refuse to read it."""
    deployed = new_deployment()
    service = deployed.run("run")
    deployed.commit(8)
    calm(deployed)
    assert service.end() == 0
    last = SHARDS - 1
    with patient_instance(deployed.name_servers) as instance:
        (broker,) = {queue.broker_name for queue in instance.routes.read_queues(deployed.unique_key_topic)}
        queue = MessageQueue(topic=deployed.unique_key_topic, broker_name=broker, queue_id=last)
        instance.sender("SENDERS").send(
            Message(topic=deployed.unique_key_topic, body=b"nobody reads it", tags=deployed.topic), queue=queue
        )
        for address in instance.cluster_addresses():
            Admin(instance.client).create_topic(address, deployed.unique_key_topic, queues=last)
    deployed.run("run")
    report = blind(deployed, because=f"queue {last} of {deployed.unique_key_topic}")
    assert until_ms(report) is None


def test_dead_sweeper_is_no_calm_although_nothing_waits(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")

    def is_calm_after_a_sweep() -> bool:
        sweep(deployed, seconds_ago=0)  # it counts for five seconds only, and a start may take longer
        return status(deployed).exit_code == 0

    eventually(is_calm_after_a_sweep, within_seconds=60)
    sweep(deployed, seconds_ago=60)
    report = blind(deployed, because="was swept last at ")
    assert "reconciler sweep" in report["summary"]


def test_verdicts_that_cannot_be_written_while_rounds_run_are_no_calm(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    with closing(sqlite3.connect(deployed.ledger)) as db:
        db.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON reconciler_candidate BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    deployed.run("run")
    deployed.consume()
    (key,) = deployed.commit(1, lose=True)
    deployed.commit(4)  # the group's watermark moves
    report = blind(deployed, because="is due and has no verdict")
    assert key in report["summary"]


def test_outbox_without_its_tables_is_no_empty_outbox(new_deployment: DeploymentFactory, tmp_path: Path) -> None:
    deployed = new_deployment()
    with closing(sqlite3.connect(tmp_path / "empty.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
    environment = {"RECONCILER_PRODUCERS__0__OUTBOX_URL": f"sqlite:///{tmp_path / 'empty.db'}"}
    ended = reconciler("status", "--config", deployed.config, "-o", "json", environment=environment)
    assert ended.exit_code == 3, ended
    assert f"the outbox of {deployed.producer_group} does not answer: " in ended.document["summary"]


def test_an_outbox_of_another_environment_is_no_calm(new_deployment: DeploymentFactory, tmp_path: Path) -> None:
    """What has no row there is called REJECTED, and nobody has looked for its half yet."""
    deployed = new_deployment()
    staging = f"sqlite:///{tmp_path / 'staging.db'}"
    schema.upgrade(staging, "outbox")
    variables = {"RECONCILER_PRODUCERS__0__OUTBOX_URL": staging}
    deployed.run("run", variables=variables)
    deployed.consume()
    (key,) = deployed.commit(1, lose=True)
    arguments = ("status", "--config", deployed.config, *WITHIN, "-o", "json")

    def told() -> str | None:
        ended = reconciler(*arguments, environment=variables)
        assert ended.exit_code in (0, 3), ended
        return ended.document["summary"] if ended.exit_code and "no round has looked" in ended.stdout else None

    assert key in eventually(told, within_seconds=60)
    assert deployed.verdicts()[key] == "REJECTED"


def test_time_moves_while_nothing_is_committed(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")
    first = until_ms(calm(deployed))
    assert first is not None
    moved: Callable[[], bool] = lambda: (until_ms(calm(deployed)) or 0) > first + 6_000  # noqa: E731
    eventually(moved, within_seconds=40)


def test_lagging_group_is_no_alarm(new_deployment: DeploymentFactory) -> None:
    deployed = new_deployment()
    deployed.run("run")
    calm(deployed)
    deployed.commit(8)
    committed_ms = max(deployed.rows(deployed.outbox, "SELECT created_at_ms FROM reconciler_outbox"))
    # No member of the group consumes: the keys stay pending behind its gate.
    report = eventually(
        lambda: found if (until_ms(found := calm(deployed)) or 0) > committed_ms + 7_000 else None, within_seconds=60
    )
    (subscription,) = report["subscriptions"]
    assert subscription["pending"] == 8
    assert report["late"] == []

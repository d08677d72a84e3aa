"""A group gets another name by the command: nothing happens twice, nothing is missed, and all is well afterwards."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from reconciler.rocketmq.client.admin import Admin
from reconciler.rocketmq.client.offsets import Offsets
from reconciler.rocketmq.client.routes import MessageQueue
from reconciler.rocketmq.consumer.push_consumer import ConsumeStatus, PushConsumer
from reconciler.rocketmq.wire.codes import retry_topic
from reconciler.rocketmq.wire.message import Message
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually
from tests.services.fixtures import ClusterFactory
from tests.services.patient_instance import patient_instance
from tests.services.rocketmq import RocketMQCluster, marks

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]


def rename(deployed: Deployment, new: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Brokers from 5.0 on do not show that a group without members pulls."""
    ended = deployed.command("group", "rename", deployed.group, new, "--pulls", *options, "--output", "json")
    assert ended.stdout, ended.stderr
    return ended.exit_code, json.loads(ended.stdout)


def refusals(deployed: Deployment, new: str, *options: str) -> list[str]:
    """Why it is refused; none: nothing stands in the way."""
    code, report = rename(deployed, new, "--dry-run", *options)
    assert code == bool(report["refused"]), report
    return list(report["refused"])


def refused(deployed: Deployment, new: str, *options: str) -> str:
    """The same in one text."""
    return "; ".join(refusals(deployed, new, *options))


def is_calm(deployed: Deployment) -> bool:
    ended = deployed.command("status")
    return ended.exit_code == 0 and "All is well" in ended.stdout


@contextmanager
def stranger(deployed: Deployment, group: str) -> Iterator[None]:
    """A member of the group that takes another topic, in which nothing is."""
    topic = f"OTHER_{deployed.run_name}"
    with patient_instance(deployed.name_servers) as instance:
        for address in instance.cluster_addresses():
            Admin(instance.client).create_topic(address, topic, queues=1)
        consumer = PushConsumer(group, instance=instance).subscribe(topic, "*")
        with consumer.register_listener(lambda _: ConsumeStatus.CONSUME_SUCCESS):
            yield


def test_the_effects_of_a_renamed_group_happen_once_and_none_is_called_unapplied(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    service = deployed.run("run")
    member, producer = deployed.consume(), deployed.producer()
    old = deployed.commit(20, producer=producer)
    eventually(lambda: deployed.effects() == sorted(old), within_seconds=60)
    new = f"{deployed.group}-2"
    code, report = rename(deployed, new, "--yes")
    assert code == 1
    assert "members are connected" in str(report["refused"])
    member.shutdown()
    only_rounds = f"rounds are at work, stop `reconciler run` (one that was killed is over soon): {deployed.topic}/"
    eventually(lambda: all(why.startswith(only_rounds) for why in refusals(deployed, new)), within_seconds=60)
    assert rename(deployed, new, "--yes")[0] == 1
    assert service.end() == 0
    assert refusals(deployed, new) == []
    (waiting,) = deployed.commit(1, producer=producer)
    code, report = rename(deployed, new, "--yes")
    assert (code, "--leave-waiting" in str(report["refused"])) == (1, True)
    code, report = rename(deployed, new, "--yes", "--leave-waiting")
    assert (code, report["done"]) == (0, True)
    (inbox,) = report["inboxes"]
    assert inbox["copied"] == len(old)
    assert sum(one["offset"] for one in report["offsets"]) == len(old)

    deployed.take_group(new)
    deployed.run("run")
    deployed.run("sweep")
    deployed.consume()
    later = deployed.commit(2, producer=producer)
    (lost,) = deployed.commit(1, lose=True, producer=producer)
    every = sorted([*old, waiting, *later, lost])
    eventually(lambda: deployed.effects() == every, within_seconds=90)
    eventually(lambda: is_calm(deployed), within_seconds=90)
    assert deployed.effects() == every
    assert "DELIVERED_NOT_APPLIED" not in deployed.verdicts().values()


VERSIONS = [
    pytest.param("4.9.7", marks=marks("4.9.7")),
    pytest.param("5.5.0", marks=[*marks("5.5.0"), pytest.mark.nightly]),
]


@pytest.fixture(params=VERSIONS)
def two_masters(request: pytest.FixtureRequest, new_rocketmq_cluster: ClusterFactory) -> RocketMQCluster:
    return new_rocketmq_cluster(request.param, brokers=2)


def test_on_two_real_brokers_a_group_is_renamed_once_it_has_passed_its_queues_and_retries_and_nobody_is_connected(
    two_masters: RocketMQCluster, new_deployment: DeploymentFactory
) -> None:
    deployed = new_deployment(name_servers=two_masters.name_servers)
    new, failed = f"{deployed.group}-2", set[str]()

    def fail_once(message: Any) -> None:
        if message.unique_key == doomed and not failed:
            failed.add(doomed)
            raise RuntimeError("the first try of this one fails")

    producer, doomed = deployed.producer(), ""
    member = deployed.consume(fail_once)
    old = deployed.commit(20, producer=producer)
    eventually(lambda: deployed.effects() == sorted(old), within_seconds=60)
    code, report = rename(deployed, new, "--dry-run")
    assert (code, f"stop them: {deployed.group}: " in str(report["refused"])) == (1, True)

    def remember(keys: list[str]) -> None:
        nonlocal doomed
        (doomed,) = keys

    (again,) = deployed.commit(1, producer=producer, before=remember)
    eventually(lambda: failed, within_seconds=60)
    member.shutdown()
    refusals = eventually(
        lambda: found if "start it until it has passed" in (found := refused(deployed, new)) else None,
        within_seconds=60,
    )
    assert f"1 in %RETRY%{deployed.group} queue 0 on broker-" in refusals
    member = deployed.consume()
    eventually(lambda: again in deployed.effects(), within_seconds=60)
    member.shutdown()
    eventually(lambda: refused(deployed, new) == "", within_seconds=60)
    waiting = deployed.commit(9, producer=producer)
    assert f"leave them to {new} (--leave-waiting)" in refused(deployed, new)
    with stranger(deployed, new):
        assert f"stop them: {new}: " in refused(deployed, new, "--leave-waiting")
    eventually(lambda: refused(deployed, new, "--leave-waiting") == "", within_seconds=60)
    with patient_instance(deployed.name_servers) as instance:  # a topic that no section names
        address, offsets = two_masters.broker("broker-2").address, Offsets(instance.client)
        other = MessageQueue(topic=f"OTHER_{deployed.run_name}", broker_name="broker-2", queue_id=0)
        instance.sender("strangers").send(Message(topic=other.topic, body=b"x"), queue=other)
        offsets.store(address, other, deployed.group, 1)

    code, report = rename(deployed, new, "--yes", "--leave-waiting")
    assert (code, report["done"]) == (0, True), report
    assert [one["copied"] for one in report["inboxes"]] == [len(old) + 1]
    assert {one["broker"] for one in report["offsets"]} == {"broker-1", "broker-2"}
    assert other.topic in report["topics"]
    deployed.take_group(new)
    deployed.run("run")
    deployed.run("sweep")
    deployed.consume()
    later = deployed.commit(2, producer=producer)
    (lost,) = deployed.commit(1, lose=True, producer=producer)
    every = sorted([*old, again, *waiting, *later, lost])
    eventually(lambda: deployed.effects() == every, within_seconds=90)
    eventually(lambda: is_calm(deployed), within_seconds=90)
    assert deployed.effects() == every
    assert set(deployed.copies().values()) == {1}
    assert "DELIVERED_NOT_APPLIED" not in deployed.verdicts().values()

    with patient_instance(deployed.name_servers) as instance:  # no queue of the group has it for two hours
        delayed = instance.sender("strangers").send(Message(topic=retry_topic(new), body=b"x", delay_level=18))
    why = refused(deployed, f"{new}-3")
    assert (
        f"failed messages of {new} wait for their next try, start it until they are done: {delayed.unique_key}" in why
    )
    assert f"(one that was killed is over soon): {deployed.topic}/{new}: " in why


def test_rows_of_a_producer_group_that_was_renamed_are_told_and_repaired_once_its_old_name_has_a_section_again(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    old = deployed.producer_group
    deployed.run("run")
    sweep = deployed.run("sweep")
    deployed.consume()
    done = deployed.commit(3)
    eventually(lambda: deployed.effects() == sorted(done), within_seconds=60)
    eventually(lambda: sweep.takes_signals, within_seconds=60)
    assert sweep.end() == 0
    key_topic, deployed.unique_key_topic = deployed.unique_key_topic, "NOWHERE"  # its service died before it announced
    (unheard,) = deployed.commit(1, lose=True)
    deployed.unique_key_topic, deployed.producer_group = key_topic, f"{old}-2"
    with closing(sqlite3.connect(deployed.outbox)) as db, db:
        db.execute(
            "UPDATE reconciler_outbox SET created_at_ms = created_at_ms - 600000 WHERE unique_key = ?", [unheard]
        )
    settings = deployed.config.read_text()
    deployed.config.write_text(settings.replace(f'"{old}"', f'"{old}-2"'))
    deployed.run("sweep")
    later = deployed.commit(2)
    eventually(lambda: deployed.effects() == sorted([*done, *later]), within_seconds=60)
    told = eventually(
        lambda: found if "Not all is announced" in (found := deployed.command("status")).stdout else None,
        within_seconds=90,
    )
    assert told.exit_code == 0
    assert f"1 commits of {old} to {deployed.topic} wait since" in " ".join(told.stdout.split())

    section = settings[settings.index("[[producers]]") : settings.index("[[subscriptions]]")]
    deployed.config.write_text(deployed.config.read_text() + section)
    deployed.services[-1].end()
    deployed.run("sweep")
    deployed.services[0].end()
    deployed.run("run")
    eventually(lambda: deployed.effects() == sorted([*done, *later, unheard]), within_seconds=90)
    eventually(lambda: is_calm(deployed), within_seconds=90)
    assert deployed.effects() == sorted([*done, *later, unheard])

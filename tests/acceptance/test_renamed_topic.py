"""A topic gets another name by the steps of rename.md while messages are on their way: nothing happens twice,
nothing is lost, and nothing is called accounted for too early."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.rocketmq.client.admin import Admin
from tests.acceptance.conftest import DeploymentFactory
from tests.acceptance.deployment import Deployment
from tests.polling import eventually
from tests.services.patient_instance import patient_instance

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300)]


class Move:
    """From one topic to another: settings with both sections, then with the new one alone."""

    def __init__(self, deployed: Deployment) -> None:
        self.deployed = deployed
        self.old, self.new = deployed.topic, f"{deployed.topic}_2"
        self._settings = deployed.config.read_text()
        with patient_instance(deployed.name_servers) as instance:
            for address in instance.cluster_addresses():
                Admin(instance.client).create_topic(address, self.new, queues=4)

    def add_new(self) -> None:
        section = self._settings[self._settings.index("[[subscriptions]]") : self._settings.index("[logging]")]
        both = self._settings.replace(f'topics = ["{self.old}"]', f'topics = ["{self.old}", "{self.new}"]')
        self.deployed.config.write_text(both.replace("[logging]", section.replace(self.old, self.new) + "[logging]"))

    def take_old_out(self) -> None:
        self.deployed.config.write_text(self._settings.replace(f'"{self.old}"', f'"{self.new}"'))

    def restart(self) -> None:
        for service in self.deployed.services:
            service.end()
        self.deployed.run("run")
        self.deployed.run("sweep")

    def status_of_old(self) -> dict[str, Any]:
        document = self.deployed.command("status", "--output", "json").document
        (found,) = [one for one in document["subscriptions"] if one["topic"] == self.old]
        return dict(found)

    def open_keys(self) -> list[str]:
        listed = self.deployed.command("list", "candidates", "--state", "OPEN", "--output", "json").document
        return [row["unique_key"] for row in listed["candidates"] if row["topic"] == self.old]

    def last_commit_ms(self) -> int:
        (at_ms,) = self.deployed.rows(
            self.deployed.outbox, f"SELECT max(created_at_ms) FROM reconciler_outbox WHERE topic = '{self.old}'"
        )
        return int(at_ms)


def test_messages_in_flight_take_effect_once_while_producers_and_consumers_move_to_another_topic(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment()
    move = Move(deployed)
    deployed.run("run")
    sweep = deployed.run("sweep")
    member, producer = deployed.consume(), deployed.producer()
    done = deployed.commit(5, producer=producer)
    eventually(lambda: deployed.effects() == sorted(done), within_seconds=60)
    member.shutdown()
    waiting = deployed.commit(5, producer=producer)
    lost = deployed.commit(3, lose=True, producer=producer)
    move.add_new()
    move.restart()
    sweep = deployed.services[-1]
    deployed.consume(topics=(move.old, move.new))
    eventually(lambda: deployed.effects() == sorted([*done, *waiting, *lost]), within_seconds=90)
    # The last commit in the old topic: its service cannot announce it, and the sweeper is not there.
    eventually(lambda: sweep.takes_signals, within_seconds=60)
    sweep.end()
    key_topic, deployed.topic, deployed.unique_key_topic = deployed.unique_key_topic, move.old, "NOWHERE"
    lost += (unheard := deployed.commit(1, lose=True))
    deployed.topic, deployed.unique_key_topic = move.new, key_topic
    later = deployed.commit(5, producer=producer)
    lost += deployed.commit(3, lose=True, producer=producer)
    every = sorted([*done, *waiting, *lost, *later])
    eventually(lambda: deployed.effects() == sorted({*every} - {*unheard}), within_seconds=90)
    eventually(lambda: move.status_of_old()["pending"] == 0 and not move.open_keys(), within_seconds=60)
    assert move.status_of_old()["accounted_until_ms"] <= move.last_commit_ms(), (
        "nothing pending, nothing open: too early"
    )
    deployed.run("sweep")
    eventually(lambda: deployed.effects() == every, within_seconds=90)
    eventually(lambda: move.status_of_old()["accounted_until_ms"] > move.last_commit_ms(), within_seconds=60)
    eventually(lambda: move.status_of_old()["pending"] == 0 and not move.open_keys(), within_seconds=60)
    move.take_old_out()
    move.restart()
    every = sorted([*every, *deployed.commit(2, producer=producer), *deployed.commit(1, lose=True, producer=producer)])
    eventually(lambda: deployed.effects() == every, within_seconds=90)
    eventually(lambda: "All is well" in deployed.command("status").stdout, within_seconds=90)
    assert deployed.effects() == every
    for topic in (move.old, move.new):
        deployed.topic = topic
        assert set(deployed.copies().values()) == {1}


@pytest.mark.nightly
def test_where_members_left_the_old_topic_too_early_status_says_that_messages_wait_there(
    new_deployment: DeploymentFactory,
) -> None:
    deployed = new_deployment(subscription="lag_alarm_seconds = 2")
    move = Move(deployed)
    deployed.consume().shutdown()
    producer = deployed.producer()
    waiting = deployed.commit(3, producer=producer)
    move.add_new()
    move.restart()
    member = deployed.consume(topics=(move.new,))
    deployed.topic = move.new
    later = deployed.commit(3, producer=producer)
    eventually(lambda: deployed.effects() == sorted(later), within_seconds=90)
    told = eventually(
        lambda: found if "messages wait" in (found := deployed.command("status").stdout) else None, within_seconds=60
    )
    assert f"{move.old}/{deployed.group}" in told
    assert "All is well" not in told
    member.shutdown()
    deployed.consume(topics=(move.old, move.new))
    eventually(lambda: deployed.effects() == sorted([*waiting, *later]), within_seconds=90)

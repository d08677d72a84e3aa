"""Messages that are lost, what keeps them from being found and repaired, and people from being told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.rocketmq.consumer.settings import PushSettings
from tests.alerts.world import World
from tests.unit.channels.receiver import Reply, receiving

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

#: More than repairs.breaker_candidates_min of the world, in one round or in two.
STORM = 40
NOTIFIER = '\n[[notifiers]]\nname = "on-call"\nkind = "webhook"\nurl = "{}"\npatience_minutes = 0\n'


def test_lost_memory_and_lost_messages(tmp_path: Path) -> None:
    refused: set[str] = set()

    def refuse(message: Any) -> None:
        if message.unique_key in refused:
            raise RuntimeError("the handler takes no such message")

    answers = [Reply(status=503)]
    with (
        receiving(lambda _: answers[-1]) as receiver,
        World(tmp_path, settings=NOTIFIER.format(receiver.url)) as world,
        world.proving("NoticesUnsent") as unsent,
    ):
        world.deployed.consume(refuse, settings=PushSettings(max_reconsume_times=1))
        world.commit(8)
        # Both stay for an hour of the rules: the other accidents pass meanwhile.
        with world.proving("WronglyRolledBack", "RedisMemoryLost") as alerts:
            world.commit(3, roll_back=True)
            alerts.fires("WronglyRolledBack", r": 3 committed messages were rolled back", labels=world.place)
            world.redis.kill()
            world.redis.erase()
            world.redis.start()
            alerts.fires("RedisMemoryLost", r": [1-9]\d* outages and voided rounds within an hour")
            _dead_letters(world, refused)
            late = r"^on-call: a message to people has been due for "
            unsent.fires("NoticesUnsent", late, labels={"notifier": "on-call"})
            answers.append(Reply())
            _storm_under_a_hold(world)
            _broker_that_refuses(world)


def _dead_letters(world: World, refused: set[str]) -> None:
    """Lost messages whose handler refuses what the repair brings: a person has to see to them."""
    keys = world.commit(2, lose=True, before=refused.update)
    with world.proving("RepairFailing", "Quarantined") as alerts:
        alerts.fires("Quarantined", r": 2 keys wait for a person", labels=world.place)
        alerts.fires("RepairFailing", r": 2 repairs have failed", labels=world.topic)
        world.command("dismiss", *keys, "--reason", "refunded by hand")


def _storm_under_a_hold(world: World) -> None:
    with world.proving("BreakerOpen", "LostMessages") as alerts:
        world.command("hold", world.deployed.topic, "--reason", "drill")
        world.commit(STORM, lose=True)
        alerts.fires("BreakerOpen", r"\(openings: 1\)$", labels=world.topic)
        alerts.fires("LostMessages", rf": {STORM} lost messages have not arrived", labels=world.place)
        world.command("resume", world.deployed.topic)


def _broker_that_refuses(world: World) -> None:
    """Keys of different ages: each is looked up ever more rarely, and the questions must not end together."""
    with world.proving("LookupsUnknown") as alerts:
        world.commit(STORM, lose=True)
        world.broker.configure({"fault.refuse": "-1"})
        alerts.fires("LookupsUnknown", r": 100% of the look-ups at brokers are unknown", labels=world.topic)
        world.broker.configure({"fault.refuse": "0"})

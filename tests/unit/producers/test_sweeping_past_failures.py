"""Rows whose announcements always fail hold up no other rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.errors import ConfigurationError
from reconciler.policy.sweeping import SweepPolicy
from tests.unit.producers.test_sweeping import MemoryInboxes
from tests.unit.producers.world import GROUP, MemoryAnnouncements, World, new_key


class OneTopicFails(MemoryAnnouncements):
    """Its unique-key topic was never made, as long as `is_missing`."""

    is_missing = True
    tried = 0

    def send_announcement(self, sent: AnnouncementMessage) -> None:
        if sent.unique_key_topic == "KEYS_OF_AUDIT" and self.is_missing:
            self.tried += 1
            raise ConfigurationError("KEYS_OF_AUDIT has no queue 0")
        super().send_announcement(sent)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path}/orders.db")
    yield made
    made.close()


def sweeper_of(world: World, sender: OneTopicFails, *, pages_maximum: int = 100) -> Sweeper:
    return Sweeper(
        [OutboxSource(producer_group=GROUP, outbox=SqlOutbox(world.url))],
        announcer=Announcer(sender, AnnouncementRoute(environment="test", queues=4, topics={"AUDIT": "KEYS_OF_AUDIT"})),
        subscriptions=(),
        inboxes=MemoryInboxes(),
        policy=SweepPolicy(page_rows=10, sweep_after_seconds=0, pages_maximum=pages_maximum),
    )


@pytest.mark.parametrize("pages_maximum", [100, 1])
def test_rows_of_a_topic_whose_announcements_fail_do_not_starve_those_behind_them(
    world: World, pages_maximum: int
) -> None:
    broken = [new_key() for _ in range(20)]
    for number, key in enumerate(broken):
        world.insert_row(key, topic="AUDIT", created_at_ms=number + 1)
    behind = new_key()
    world.insert_row(behind, created_at_ms=1_000)
    sender = OneTopicFails()
    sweeper = sweeper_of(world, sender, pages_maximum=pages_maximum)
    reports = [sweeper.sweep_once() for _ in range(1 if pages_maximum > 1 else 3)]
    assert behind in sender.keys
    assert reports[0].failed_sources == 1
    assert sender.tried <= 3 * len(reports), "a topic that fails is not tried for every page of a sweep"
    sender.is_missing = False
    for _ in range(1 if pages_maximum > 1 else 4):
        sweeper.sweep_once()
    assert set(broken) <= set(sender.keys), "what failed is announced as soon as it can be"

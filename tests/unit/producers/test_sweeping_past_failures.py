"""Rows whose announcements always fail, or that nobody can read, hold up no other rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.ports import AnnouncementMessage
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.errors import ConfigurationError
from reconciler.policy.sweeping import SweepRules
from reconciler.sql.tables import outbox
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


opened: list[SqlOutbox] = []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(f"sqlite:///{tmp_path}/orders.db")
    yield made
    while opened:
        opened.pop().close()
    made.close()


def sweeper_of(
    world: World, sender: OneTopicFails, *, pages_maximum: int = 100, groups: Sequence[str] = (GROUP,)
) -> Sweeper:
    opened.append(SqlOutbox(world.url))
    return Sweeper(
        [OutboxSource(producer_group=group, outbox=opened[-1]) for group in groups],
        announcer=Announcer(sender, AnnouncementRoute(environment="test", queues=4, topics={"AUDIT": "KEYS_OF_AUDIT"})),
        subscriptions=(),
        inboxes=MemoryInboxes(),
        rules=SweepRules(page_rows=10, sweep_after_seconds=0, pages_maximum=pages_maximum),
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


def test_a_row_behind_one_of_a_topic_that_failed_a_page_before_is_announced_in_the_same_sweep(world: World) -> None:
    """Pages have ten rows, every second one of the topic whose announcements fail."""
    sound = [new_key() for _ in range(10)]
    for number, key in enumerate(sound):
        world.insert_row(new_key(), topic="AUDIT", created_at_ms=2 * number + 1)
        world.insert_row(key, created_at_ms=2 * number + 2)
    sender = OneTopicFails()
    report = sweeper_of(world, sender).sweep_once()
    assert sorted(sender.keys) == sorted(sound)
    assert report.announced == 10


def poison(world: World, count: int, *, tag: object = None, first_ms: int = 1, group: str = GROUP) -> None:
    """The oldest rows: their keys are none, or else their tag is damaged."""
    for number in range(count):
        key = f"poison row {number:03}" if tag is None else new_key()
        world.insert_row(key, created_at_ms=number + first_ms, tag=tag, producer_group=group)


def test_a_sound_row_behind_more_rows_without_a_key_than_a_sweep_reads_is_announced_by_the_first(world: World) -> None:
    poison(world, 50)
    sound = new_key()
    world.insert_row(sound, created_at_ms=1_000)
    sender = OneTopicFails()
    report = sweeper_of(world, sender, pages_maximum=2).sweep_once()
    assert sender.keys == [sound]
    assert report.damaged == 10, "they are told all the same, page by page"
    assert "10 damaged rows, the first is 'poison row 000'" in report.problems[0]


def test_a_sound_row_behind_rows_that_no_query_can_leave_out_is_announced_when_the_walk_has_come_to_it(
    world: World,
) -> None:
    poison(world, 45, tag=b"no text")
    sound = new_key()
    world.insert_row(sound, created_at_ms=1_000)
    sender = OneTopicFails()
    sweeper = sweeper_of(world, sender, pages_maximum=2)
    announced = [sweeper.sweep_once().announced for _ in range(7)]
    assert announced == [0, 0, 0, 0, 1, 0, 0]
    assert sender.keys == [sound]


def test_each_producer_group_of_an_outbox_has_a_walk_of_its_own(world: World) -> None:
    groups = (GROUP, "another")
    sound = [new_key() for _ in groups]
    for number, group in enumerate(groups):
        poison(world, 25, tag=b"no text", first_ms=1_000 * number + 1, group=group)
        world.insert_row(sound[number], created_at_ms=1_000 * number + 100, producer_group=group)
    sender = OneTopicFails()
    sweeper = sweeper_of(world, sender, pages_maximum=2, groups=groups)
    assert [sweeper.sweep_once().announced for _ in range(4)] == [0, 0, 2, 0]
    assert sorted(sender.keys) == sorted(sound)


def test_a_late_commit_waits_for_no_walk(world: World) -> None:
    poison(world, 95)
    sender = OneTopicFails()
    sweeper = sweeper_of(world, sender, pages_maximum=2)
    for created_at_ms in (50, 20, 90):  # behind and before the place of the walk
        sweeper.sweep_once()
        late = new_key()
        world.insert_row(late, created_at_ms=created_at_ms)
        sweeper.sweep_once()
        assert sender.keys[-1] == late


def test_how_long_a_walk_is_is_told_while_it_goes_on_and_after_its_end(world: World) -> None:
    poison(world, 35)
    sweeper = sweeper_of(world, OneTopicFails(), pages_maximum=2)
    assert [sweeper.sweep_once().walk_rows for _ in range(6)] == [10, 20, 30, 35, 35, 35]
    with world.engine.begin() as connection:
        connection.execute(sa.delete(outbox))
    lengths = [sweeper.sweep_once().walk_rows for _ in range(3)]
    assert lengths[-1] == 0


def test_a_whole_walk_is_no_shorter_for_rows_whose_announcements_fail(world: World) -> None:
    for number in range(25):
        world.insert_row(new_key(), topic="AUDIT", created_at_ms=number + 1)
    sender = OneTopicFails()
    sweeper = sweeper_of(world, sender, pages_maximum=2)
    assert [sweeper.sweep_once().walk_rows for _ in range(4)] == [10, 20, 25, 25]
    sender.is_missing = False
    for _ in range(4):
        report = sweeper.sweep_once()
    assert (report.walk_rows, len(sender.keys)) == (0, 25)

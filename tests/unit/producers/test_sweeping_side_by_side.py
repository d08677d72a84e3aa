"""Outboxes are swept side by side: one that does not answer, or has much to do, holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.errors import DatabaseSilent
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.wiring.workers import workers_of
from tests.unit.producers.test_sweeping import BILLING, MemoryInboxes
from tests.unit.producers.world import GROUP, MemoryAnnouncements, World, new_key


class StandingOutbox(SqlOutbox):
    """Its database answers nothing until something is `over`, then its time is over, too."""

    over = threading.Event()

    def mark_swept(self) -> None:
        if not self.over.wait(60):
            pytest.fail("the sweep of another outbox waits for this one")
        raise DatabaseSilent("no answer within 10 s")


class ToldAnnouncements(MemoryAnnouncements):
    """Tells when the first one was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.was_sent = threading.Event()

    def send_announcement(self, message) -> None:  # type: ignore[no-untyped-def]  # as the port's
        super().send_announcement(message)
        self.was_sent.set()


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[list[World]]:
    made = [World(f"sqlite:///{tmp_path}/{name}.db") for name in ("standing", "healthy")]
    yield made
    for world in made:
        world.close()


def test_an_outbox_that_stands_still_holds_up_no_other(worlds: list[World]) -> None:
    key = new_key()
    worlds[1].insert_row(key)
    announcements = ToldAnnouncements()
    with closing(StandingOutbox(worlds[0].url)) as standing, closing(workers_of(2)) as workers:
        standing.over = announcements.was_sent
        report = Sweeper(
            [
                OutboxSource(producer_group=GROUP, outbox=standing),
                OutboxSource(producer_group=GROUP, outbox=worlds[1].outbox()),
            ],
            announcer=Announcer(announcements, AnnouncementRoute(environment="test", queues=4)),
            subscriptions=(),
            inboxes=MemoryInboxes(),
            rules=SweepRules(sweep_after_seconds=0),
            workers=workers,
        ).sweep_once()
    assert announcements.keys == [key]
    assert report.announced == 1
    assert len(report.problems) == 1
    assert "no sign of life" in report.problems[0]


def test_groups_of_one_outbox_are_swept_one_after_the_other_and_reported_in_their_order(worlds: list[World]) -> None:
    at_work: list[str] = []

    class Watched(SqlOutbox):
        def settled_tags(self, producer_group: str):  # type: ignore[no-untyped-def]  # as the port's
            at_work.append(f"begins {producer_group}")
            return super().settled_tags(producer_group)

        def delete_finished(self, producer_group: str, *, older_than_seconds: float, limit: int) -> int:
            at_work.append(f"ends {producer_group}")
            raise DatabaseSilent(f"{self.engine.url.database} is away")

    groups = ("one", "two", "three")
    with (
        closing(Watched(worlds[0].url)) as first,
        closing(Watched(worlds[1].url)) as second,
        closing(workers_of(2)) as workers,
    ):
        report = Sweeper(
            [
                *(OutboxSource(producer_group=f"first {group}", outbox=first) for group in groups),
                *(OutboxSource(producer_group=f"second {group}", outbox=second) for group in groups),
            ],
            announcer=Announcer(MemoryAnnouncements(), AnnouncementRoute(environment="test", queues=4)),
            subscriptions=(),
            inboxes=MemoryInboxes(),
            workers=workers,
        ).sweep_once()
    for outbox in ("first", "second"):
        of_outbox = [step for step in at_work if outbox in step]
        assert of_outbox == [f"{step} {outbox} {group}" for group in groups for step in ("begins", "ends")]
    assert report.failed_sources == 6
    told = [problem.split(":")[0] for problem in report.problems]
    assert told == [f"{outbox} {group}" for outbox in ("first", "second") for group in groups]


def sweeper_of(worlds: list[World], inboxes: MemoryInboxes, rules: SweepRules) -> Sweeper:
    return Sweeper(
        [OutboxSource(producer_group=GROUP, outbox=world.outbox()) for world in worlds],
        announcer=Announcer(MemoryAnnouncements(), AnnouncementRoute(environment="test", queues=4)),
        subscriptions=[SweptSubscription(subscription=BILLING)],
        inboxes=inboxes,
        rules=rules,
    )


def test_each_outbox_is_looked_at_from_where_its_own_last_look_stopped(worlds: list[World]) -> None:
    inboxes = MemoryInboxes()
    keys = [[new_key() for _ in range(2)] for _ in worlds]
    for world, of_world, at_ms in zip(worlds, keys, (1_000, 10), strict=True):
        for number, key in enumerate(of_world):
            world.insert_row(key, state="ANNOUNCED", announced_at_ms=at_ms + number)
    inboxes.applied[BILLING] = {key for of_world in keys for key in of_world}
    sweeper = sweeper_of(worlds, inboxes, SweepRules(settle_after_seconds=0, page_rows=1, pages_maximum=1))
    for settled in (1, 2):
        assert sweeper.sweep_once().settled == 2
        states = [[world.state(key) for key in of_world] for world, of_world in zip(worlds, keys, strict=True)]
        assert states == [["SETTLED"] * settled + ["ANNOUNCED"] * (2 - settled)] * 2


def test_two_outboxes_that_were_not_upgraded_are_both_told(worlds: list[World]) -> None:
    for world in worlds:
        with world.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity DROP COLUMN swept_at_ms")
    sweeper = sweeper_of(worlds, MemoryInboxes(), SweepRules())
    assert [len(sweeper.sweep_once().problems) for _ in range(2)] == [2, 0]

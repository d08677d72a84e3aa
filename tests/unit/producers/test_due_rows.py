"""Between two sweeps: what a dead producer committed is announced as soon as it is due, for one statement an outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper
from reconciler.errors import BrokerUnavailable
from reconciler.settings.schema import SweepSettings
from reconciler.wiring.workers import workers_of
from tests.unit.producers.test_sweeping import MemoryInboxes, Sweeping
from tests.unit.producers.world import GROUP, MemoryAnnouncements, World, new_key


@pytest.fixture
def second(tmp_path: Path) -> Iterator[World]:
    with closing(World(f"sqlite:///{tmp_path}/second.db")) as made:
        yield made


def due_row(sweeping: Sweeping, *, key: str | None = None) -> str:
    """Six seconds old."""
    key = key or new_key()
    sweeping.world.insert_row(key, created_at_ms=sweeping.now_ms() - 6_000)
    return key


def test_rows_that_became_due_are_announced_between_two_sweeps(world: World) -> None:
    sweeping = Sweeping(world)
    young, announced = new_key(), sweeping.announced(hours_ago=7)
    world.insert_row(young, created_at_ms=sweeping.now_ms() - 2_000)
    due = due_row(sweeping)
    sweeper = sweeping.sweeper()
    assert sweeper.announce_due().announced == 1
    assert sweeping.announcements.keys == [due]
    assert [world.state(key) for key in (young, due, announced)] == ["NEW", "ANNOUNCED", "ANNOUNCED"]
    assert sweeper.announce_due().announced == 0, "not twice"


def test_at_rest_a_look_costs_one_statement_an_outbox_however_many_groups_it_has(world: World, second: World) -> None:
    sent: list[str] = []
    with closing(workers_of(2)) as workers:
        sources: list[OutboxSource] = []
        for one in (world, second):
            outbox = one.outbox()
            for engine in (outbox.engine, outbox._single._engine):
                sa.event.listen(engine, "connect", lambda raw, _record: raw.set_trace_callback(sent.append))
            sources += (OutboxSource(producer_group=f"group-{number}", outbox=outbox) for number in range(20))
        sweeper = Sweeper(
            sources,
            announcer=Announcer(MemoryAnnouncements(), AnnouncementRoute(environment="test", queues=4)),
            subscriptions=(),
            inboxes=MemoryInboxes(),
            workers=workers,
        )
        for _ in range(3):
            sweeper.announce_due()
    asked = [statement for statement in sent if "reconciler_outbox" in statement]
    assert len(asked) == 3 * 2
    assert not [statement for statement in sent if "BEGIN" in statement], "nor a transaction around it"


def test_a_source_whose_announcements_fail_is_left_to_the_next_sweep(world: World) -> None:
    sweeping = Sweeping(world)
    sweeper = sweeping.sweeper()
    first = due_row(sweeping)
    sweeping.announcements.failure = BrokerUnavailable("connection refused")
    assert sweeper.announce_due().announced == 0
    sweeping.announcements.failure = None
    assert sweeper.announce_due().announced == 0, "a broker that is away is not tried every two seconds"
    assert world.state(first) == "NEW"
    assert sweeper.sweep_once().announced == 1
    due_row(sweeping)
    assert sweeper.announce_due().announced == 1


def test_rows_that_never_leave_are_read_once_between_two_sweeps(world: World) -> None:
    sweeping = Sweeping(world)
    due_row(sweeping, key="no key")
    pages: list[str] = []

    class Counted(SqlOutbox):
        def unannounced(self, producer_group, **options):  # type: ignore[no-untyped-def]  # as the port's
            pages.append(producer_group)
            return super().unannounced(producer_group, **options)

    with closing(Counted(world.url)) as outbox:
        sweeper = Sweeper(
            [OutboxSource(producer_group=GROUP, outbox=outbox)],
            announcer=Announcer(sweeping.announcements, AnnouncementRoute(environment="test", queues=4)),
            subscriptions=(),
            inboxes=sweeping.inboxes,
        )
        assert [sweeper.announce_due().announced for _ in range(3)] == [0, 0, 0]
        assert pages == [GROUP]
        sweeper.sweep_once()
        due_row(sweeping)
        assert sweeper.announce_due().announced == 1, "and hold up no others"


def test_an_outbox_that_is_away_holds_up_no_other_and_the_sweep_tells_of_it(world: World, tmp_path: Path) -> None:
    sweeping = Sweeping(world)
    (tmp_path / "broken.db").write_bytes(b"no database" * 1_000)
    due = due_row(sweeping)
    sweeper = Sweeper(
        [
            OutboxSource(producer_group="other", outbox=world.outbox(f"sqlite:///{tmp_path}/broken.db")),
            OutboxSource(producer_group=GROUP, outbox=world.outbox()),
        ],
        announcer=Announcer(sweeping.announcements, AnnouncementRoute(environment="test", queues=4)),
        subscriptions=(),
        inboxes=sweeping.inboxes,
    )
    report = sweeper.announce_due()
    assert (report.announced, report.problems) == (1, ())
    assert world.state(due) == "ANNOUNCED"
    assert sweeper.sweep_once().failed_sources == 1


@pytest.mark.parametrize(("between_sweeps", "between_looks"), [(10.0, 2.0), (60.0, 12.0), (5.0, 2.0), (1.0, 1.0)])
def test_whoever_sets_sweeps_far_apart_is_not_asked_much_more_often(
    between_sweeps: float, between_looks: float
) -> None:
    assert SweepSettings(interval_seconds=between_sweeps).due_interval_seconds == between_looks

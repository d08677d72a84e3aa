"""The sweeper: what producers could not announce is announced, and only inboxes retire a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.announcer import AnnouncementRoute, Announcer
from checkback_producers.errors import NotCommitted
from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import OutboxSource, Sweeper, SweepReport
from reconciler.contract.subscription import Subscription
from reconciler.errors import BrokerUnavailable, DatabaseAway
from reconciler.policy.evidence import InboxRow, Lookup, Presence, WitnessAnswer
from reconciler.policy.sweeping import SweepRules, SweptSubscription
from reconciler.sql.database_time import database_now_ms
from reconciler.sql.engines import reading
from reconciler.sql.tables import outbox_identity
from tests.unit.producers.world import GROUP, TOPIC, MemoryAnnouncements, World, message, new_key

BILLING = Subscription(environment="test", topic=TOPIC, group="billing")
SHIPPING = Subscription(environment="test", topic=TOPIC, group="shipping")
HOUR_MS = 3_600_000
OURS, THEIRS = b"o" * 32, b"t" * 32
ROW = InboxRow(
    group="billing", unique_key="A" * 32, topic=TOPIC, content_digest=None, source="consumer", applied_at_ms=1_000
)


@dataclass
class MemoryInboxes:
    """The port InboxEvidence in memory."""

    applied: dict[Subscription, set[str]] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    away: set[Subscription] = field(default_factory=set)
    unconfigured: set[Subscription] = field(default_factory=set)
    #: Keys that a second inbox of every group has, too; whether another one of them is away.
    doubled: set[str] = field(default_factory=set)
    is_one_away: bool = False

    def look_up(self, subscription: Subscription, unique_keys: Sequence[str]) -> Mapping[str, Lookup[InboxRow]]:
        if subscription in self.away:
            return {key: Lookup.unknown("inbox", "away") for key in unique_keys}
        applied = self.applied.get(subscription, set())
        answers = (WitnessAnswer(witness="b", presence=Presence.UNKNOWN, detail="away"),) if self.is_one_away else ()
        return {
            key: Lookup(presence=Presence.FOUND, records=self._rows(key), answers=answers)
            if key in applied
            else Lookup(presence=Presence.UNKNOWN if answers else Presence.ABSENT, answers=answers)
            for key in unique_keys
        }

    def _rows(self, unique_key: str) -> tuple[InboxRow, ...]:
        topic = self.topics.get(unique_key, TOPIC)
        row = replace(ROW, content_digest=self.digests.get(unique_key), topic=topic)
        return (row, row) if unique_key in self.doubled else (row,)

    def applied_since(
        self, subscription: Subscription, *, since_ms: int, after: tuple[int, str] | None, limit: int
    ) -> Sequence[InboxRow]:
        raise NotImplementedError

    def newest_ms(self, subscription: Subscription) -> int | None:
        raise NotImplementedError

    def is_configured(self, subscription: Subscription) -> bool:
        return subscription not in self.unconfigured


@dataclass
class Sweeping:
    """A sweeper over the world's database."""

    world: World
    announcements: MemoryAnnouncements = field(default_factory=MemoryAnnouncements)
    inboxes: MemoryInboxes = field(default_factory=MemoryInboxes)
    subscriptions: Sequence[SweptSubscription] = (SweptSubscription(subscription=BILLING),)
    rules: SweepRules = field(default_factory=SweepRules)

    def sweeper(self) -> Sweeper:
        return Sweeper(
            [OutboxSource(producer_group=GROUP, outbox=self.world.outbox())],
            announcer=Announcer(self.announcements, AnnouncementRoute(environment="test", queues=4)),
            subscriptions=self.subscriptions,
            inboxes=self.inboxes,
            rules=self.rules,
        )

    def now_ms(self) -> int:
        with reading(self.world.engine) as connection:
            return database_now_ms(connection)

    def announced(self, *, hours_ago: float, created_hours_ago: float | None = None, **values: object) -> str:
        """A row announced that long ago."""
        key = new_key()
        at_ms = self.now_ms() - int(hours_ago * HOUR_MS)
        created_ms = at_ms if created_hours_ago is None else self.now_ms() - int(created_hours_ago * HOUR_MS)
        self.world.insert_row(key, state="ANNOUNCED", created_at_ms=created_ms, announced_at_ms=at_ms, **values)
        return key


@pytest.mark.promise("L1")
def test_a_crash_before_the_announcement_is_made_good(world: World) -> None:
    """The producer dies right after its commit: nothing was announced, nothing is left in memory."""
    sweeping = Sweeping(world, rules=SweepRules(sweep_after_seconds=0))
    producer = world.producer()
    tx = producer.transaction(message()).__enter__()
    with world.engine.begin() as connection:
        tx.record(connection)
    # no end of block: the process is gone
    report = sweeping.sweeper().sweep_once()
    assert report.announced == 1
    assert sweeping.announcements.keys == [tx.unique_key]
    assert world.state(tx.unique_key) == "ANNOUNCED"


def test_a_young_row_is_left_to_its_producer(world: World) -> None:
    sweeping = Sweeping(world)
    key = new_key()
    world.insert_row(key, created_at_ms=sweeping.now_ms() - 4_000)
    assert sweeping.sweeper().sweep_once().announced == 0
    world.insert_row(new_key(), created_at_ms=sweeping.now_ms() - 6_000)
    assert sweeping.sweeper().sweep_once().announced == 1
    assert world.state(key) == "NEW"


def test_effect_of_another_message_settles_nothing_and_the_key_is_announced_again_at_once(world: World) -> None:
    sweeping = Sweeping(world)
    key, sound = (sweeping.announced(hours_ago=2, content_digest=OURS) for _ in range(2))
    sweeping.inboxes.applied[BILLING] = {key, sound}
    sweeping.inboxes.digests = {key: THEIRS, sound: OURS}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.differing, report.announced_again, report.failed_sources) == (1, 1, 1, 0)
    assert sweeping.announcements.keys == [key]
    assert (world.state(key), world.state(sound)) == ("ANNOUNCED", "SETTLED")
    (problem,) = report.problems
    assert "1 keys with another content" in problem
    assert key in problem


def test_effect_of_another_topic_settles_nothing_also_without_a_digest(world: World) -> None:
    sweeping = Sweeping(world)
    key, sound = (sweeping.announced(hours_ago=2) for _ in range(2))
    sweeping.inboxes.applied[BILLING] = {key, sound}
    sweeping.inboxes.topics = {key: "REFUNDS"}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.differing) == (1, 1)
    assert (world.state(key), world.state(sound)) == ("ANNOUNCED", "SETTLED")


def test_effect_of_another_message_is_told_at_every_look_and_announced_seldom(world: World) -> None:
    sweeping = Sweeping(world)
    recently = sweeping.announced(hours_ago=2, created_hours_ago=5, content_digest=OURS)
    long_ago = sweeping.announced(hours_ago=7, created_hours_ago=12, content_digest=OURS)
    sweeping.inboxes.applied[BILLING] = {recently, long_ago}
    sweeping.inboxes.digests = {recently: THEIRS, long_ago: THEIRS}
    report = sweeping.sweeper().sweep_once()
    assert (report.differing, report.announced_again, len(report.problems)) == (2, 1, 1)
    assert sweeping.announcements.keys == [long_ago]


def test_effect_that_one_of_two_groups_had_from_another_message_settles_nothing(world: World) -> None:
    sweeping = Sweeping(world, subscriptions=tuple(SweptSubscription(subscription=s) for s in (BILLING, SHIPPING)))
    key = sweeping.announced(hours_ago=2, content_digest=OURS)
    sweeping.inboxes.applied = {BILLING: set(), SHIPPING: {key}}
    sweeping.inboxes.digests = {key: THEIRS}
    assert sweeping.sweeper().sweep_once().differing == 1


def test_effect_without_a_digest_on_one_side_is_believed(world: World) -> None:
    sweeping = Sweeping(world)
    without, compared_with_none = sweeping.announced(hours_ago=2), sweeping.announced(hours_ago=2, content_digest=OURS)
    sweeping.inboxes.applied[BILLING] = {without, compared_with_none}
    sweeping.inboxes.digests = {without: THEIRS}
    assert sweeping.sweeper().sweep_once().settled == 2


def test_digest_that_nobody_can_read_stops_no_announcement(world: World) -> None:
    sweeping = Sweeping(world)
    key = new_key()
    world.insert_row(key, created_at_ms=1, content_digest=b"short")
    assert sweeping.sweeper().sweep_once().announced == 1
    assert world.outbox().find(key) is not None, "nor an answer to the broker"


def test_tombstones_are_never_announced(world: World) -> None:
    sweeping = Sweeping(world)
    world.insert_row(new_key(), state="ROLLED_BACK")
    assert sweeping.sweeper().sweep_once().announced == 0


def test_an_announcement_that_fails_leaves_the_row_new_and_says_so(world: World) -> None:
    sweeping = Sweeping(world)
    sweeping.announcements.failure = BrokerUnavailable("connection refused")
    key = new_key()
    world.insert_row(key)
    report = sweeping.sweeper().sweep_once()
    assert (report.announced, report.failed_sources) == (0, 1)
    assert "connection refused" in report.problems[0]
    assert world.state(key) == "NEW"
    sweeping.announcements.failure = None
    assert sweeping.sweeper().sweep_once().announced == 1


def test_many_rows_are_announced_page_by_page_in_few_messages(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(page_rows=10))
    keys = [new_key() for _ in range(35)]
    for key in keys:
        world.insert_row(key)
    assert sweeping.sweeper().sweep_once().announced == 35
    assert sorted(sweeping.announcements.keys) == sorted(keys)
    assert len(sweeping.announcements.sent) <= 4 * 4


def test_a_row_is_settled_only_when_every_group_has_it(world: World) -> None:
    sweeping = Sweeping(
        world, subscriptions=[SweptSubscription(subscription=BILLING), SweptSubscription(subscription=SHIPPING)]
    )
    both, one, none = (sweeping.announced(hours_ago=2) for _ in range(3))
    sweeping.inboxes.applied = {BILLING: {both, one}, SHIPPING: {both}}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.unsettled, report.announced_again) == (1, 2, 0)
    assert [world.state(key) for key in (both, one, none)] == ["SETTLED", "ANNOUNCED", "ANNOUNCED"]
    assert world.row(both).settled_at_ms is not None


def test_a_row_is_not_looked_up_before_its_time(world: World) -> None:
    sweeping = Sweeping(world)
    key = sweeping.announced(hours_ago=0.5)
    sweeping.inboxes.applied = {BILLING: {key}}
    assert sweeping.sweeper().sweep_once().settled == 0


def test_a_group_that_filters_the_tag_away_is_not_waited_for(world: World) -> None:
    sweeping = Sweeping(
        world,
        subscriptions=[
            SweptSubscription(subscription=BILLING, tags=frozenset({"paid"})),
            SweptSubscription(subscription=SHIPPING, tags=frozenset({"shipped", "returned"})),
        ],
    )
    paid = sweeping.announced(hours_ago=2, tag="paid")
    shipped = sweeping.announced(hours_ago=2, tag="shipped")
    untagged = sweeping.announced(hours_ago=2, tag=None)
    sweeping.inboxes.applied = {BILLING: {paid}}
    sweeping.sweeper().sweep_once()
    assert [world.state(key) for key in (paid, shipped, untagged)] == ["SETTLED", "ANNOUNCED", "SETTLED"]


def test_an_inbox_that_is_away_settles_nothing(world: World) -> None:
    sweeping = Sweeping(world)
    key = sweeping.announced(hours_ago=2)
    sweeping.inboxes.away = {BILLING}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.unsettled) == (0, 1)
    assert world.state(key) == "ANNOUNCED"


def test_a_row_that_took_effect_in_two_inboxes_is_not_settled_but_announced_to_be_judged(world: World) -> None:
    """Its match in Redis has hidden the second effect: only another announcement brings it before the inboxes."""
    sweeping = Sweeping(world)
    doubled, sound, old = (sweeping.announced(hours_ago=hours) for hours in (2, 2, 7))
    sweeping.inboxes.applied, sweeping.inboxes.doubled = {BILLING: {doubled, sound, old}}, {doubled, old}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.doubled, report.unsettled, report.announced_again) == (1, 2, 0, 2)
    assert [world.state(key) for key in (doubled, sound, old)] == ["ANNOUNCED", "SETTLED", "ANNOUNCED"]
    assert sorted(sweeping.announcements.keys) == sorted([doubled, old])
    (problem,) = report.problems
    assert "2 rows are not settled" in problem
    assert "double effect" in problem


def test_a_double_effect_is_announced_once_more_at_once_and_then_in_its_turn(world: World) -> None:
    sweeping = Sweeping(world)
    again = sweeping.announced(hours_ago=2, created_hours_ago=4)
    sweeping.inboxes.applied, sweeping.inboxes.doubled = {BILLING: {again}}, {again}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.doubled, report.announced_again) == (0, 1, 0)


def test_a_row_is_not_settled_while_an_inbox_that_may_have_it_too_is_away(world: World) -> None:
    sweeping = Sweeping(world)
    key = sweeping.announced(hours_ago=2)
    sweeping.inboxes.applied, sweeping.inboxes.is_one_away = {BILLING: {key}}, True
    assert sweeping.sweeper().sweep_once().unsettled == 1
    sweeping.inboxes.is_one_away = False
    assert sweeping.sweeper().sweep_once().settled == 1
    assert world.state(key) == "SETTLED"


def test_an_announcement_lost_by_its_broker_is_repeated(world: World) -> None:
    sweeping = Sweeping(world)
    recent, old = sweeping.announced(hours_ago=5), sweeping.announced(hours_ago=7)
    report = sweeping.sweeper().sweep_once()
    assert report.announced_again == 1
    assert sweeping.announcements.keys == [old]
    assert world.row(old).announced_at_ms > world.row(recent).announced_at_ms
    assert sweeping.sweeper().sweep_once().announced_again == 0, "not before its time has passed again"


def test_what_nothing_can_prove_is_announced_twice_and_then_left_alone(world: World) -> None:
    sweeping = Sweeping(world)
    once = sweeping.announced(hours_ago=7)
    twice = sweeping.announced(hours_ago=7, created_hours_ago=14)
    sweeping.inboxes.unconfigured = {BILLING}
    report = sweeping.sweeper().sweep_once()
    assert (report.settled, report.unprovable, report.announced_again) == (0, 2, 1)
    assert sweeping.announcements.keys == [once]
    assert world.state(twice) == "ANNOUNCED"


def test_a_topic_without_any_group_is_not_settled_by_nobody(world: World) -> None:
    sweeping = Sweeping(world, subscriptions=[])
    key = sweeping.announced(hours_ago=2)
    assert sweeping.sweeper().sweep_once().unprovable == 1
    assert world.state(key) == "ANNOUNCED"


def test_unsettled_rows_do_not_hide_the_rows_behind_them(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(page_rows=5, pages_maximum=1))
    stuck = [sweeping.announced(hours_ago=3) for _ in range(12)]
    behind = sweeping.announced(hours_ago=2)
    sweeping.inboxes.applied = {BILLING: {behind}}
    sweeper = sweeping.sweeper()
    reports = [sweeper.sweep_once() for _ in range(3)]
    assert sum(report.settled for report in reports) == 1
    assert world.state(behind) == "SETTLED"
    assert {world.state(key) for key in stuck} == {"ANNOUNCED"}
    assert sweeper.sweep_once().unsettled == 5, "and then it begins anew"


def test_two_sweepers_at_once_lose_nothing_and_settle_nothing_twice(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(page_rows=20))
    fresh = [new_key() for _ in range(100)]
    for key in fresh:
        world.insert_row(key)
    old = [sweeping.announced(hours_ago=2) for _ in range(100)]
    sweeping.inboxes.applied = {BILLING: set(old)}
    with ThreadPoolExecutor(2) as two:
        reports = list(two.map(lambda sweeper: sweeper.sweep_once(), [sweeping.sweeper(), sweeping.sweeper()]))
    assert set(sweeping.announcements.keys) == set(fresh)
    assert {world.state(key) for key in fresh} == {"ANNOUNCED"}
    assert {world.state(key) for key in old} == {"SETTLED"}
    assert all(report.problems == () for report in reports)


@pytest.mark.parametrize(
    ("mark", "takes", "makes"),
    [
        (SqlOutbox.mark_announced, {"NEW", "ANNOUNCED"}, "ANNOUNCED"),
        (SqlOutbox.mark_settled, {"ANNOUNCED"}, "SETTLED"),
        (SqlOutbox.reopen, {"ANNOUNCED", "SETTLED"}, "NEW"),
    ],
)
def test_a_mark_that_comes_late_changes_no_row_that_another_sweeper_has_changed_meanwhile(
    world: World, mark: Callable[[SqlOutbox, Sequence[str]], int], takes: set[str], makes: str
) -> None:
    """A page is read first: a row that is reopened then is not settled unannounced, a tombstone is left as it is."""
    keys = {state: new_key() for state in ("NEW", "ANNOUNCED", "SETTLED", "ROLLED_BACK")}
    for state, key in keys.items():
        world.insert_row(key, state=state)
    assert mark(world.outbox(), list(keys.values())) == len(takes)
    assert {state: world.state(key) for state, key in keys.items()} == {
        state: makes if state in takes else state for state in keys
    }


def test_finished_rows_are_deleted_after_their_time_a_bounded_number_a_sweep(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(delete_rows=2, delete_transactions_maximum=3))
    old_ms = sweeping.now_ms() - 31 * 24 * HOUR_MS
    tombstones = [new_key() for _ in range(7)]
    for key in tombstones:
        world.insert_row(key, state="ROLLED_BACK", created_at_ms=old_ms)
    unsettled = sweeping.announced(hours_ago=1, created_hours_ago=31 * 24)
    sweeper = sweeping.sweeper()
    assert [sweeper.sweep_once().deleted for _ in range(3)] == [6, 1, 0]
    assert {world.state(key) for key in tombstones} == {None}
    assert world.state(unsettled) == "ANNOUNCED"


def test_one_database_that_is_away_does_not_stop_the_others(world: World, tmp_path: Path) -> None:
    sweeping = Sweeping(world)
    (tmp_path / "broken.db").write_bytes(b"no database" * 1_000)
    key = new_key()
    world.insert_row(key)
    sweeper = Sweeper(
        [
            OutboxSource(producer_group="other", outbox=world.outbox(f"sqlite:///{tmp_path}/broken.db")),
            OutboxSource(producer_group=GROUP, outbox=world.outbox()),
        ],
        announcer=Announcer(sweeping.announcements, AnnouncementRoute(environment="test", queues=4)),
        subscriptions=sweeping.subscriptions,
        inboxes=sweeping.inboxes,
    )
    report = sweeper.sweep_once()
    assert (report.announced, report.failed_sources) == (1, 1)
    assert "not a database" in report.problems[0]


def test_a_stop_ends_the_sweep_between_two_pages(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(page_rows=1))
    for _ in range(3):
        world.insert_row(new_key())
    stops = iter([False, True, True, True])
    sweeper = sweeping.sweeper()
    sweeper._is_stopping = lambda: next(stops)
    assert sweeper.sweep_once().announced == 1


def test_rows_of_another_producer_group_are_left_alone(world: World) -> None:
    sweeping = Sweeping(world)
    key = new_key()
    world.insert_row(key, producer_group="somebody-else")
    assert sweeping.sweeper().sweep_once().announced == 0
    assert world.state(key) == "NEW"


def test_a_rolled_back_block_leaves_nothing_for_the_sweeper(world: World) -> None:
    sweeping = Sweeping(world, rules=SweepRules(sweep_after_seconds=0))
    try:
        with world.producer().transaction(message()) as tx, world.engine.connect() as connection:
            tx.record(connection)
    except NotCommitted:
        pass
    assert sweeping.sweeper().sweep_once().announced == 0


def test_a_failing_mark_is_reported_and_the_row_is_announced_again(world: World) -> None:
    sweeping = Sweeping(world)
    key = new_key()
    world.insert_row(key)

    class CannotMark(SqlOutbox):
        def mark_announced(self, unique_keys: Sequence[str]) -> int:
            raise DatabaseAway("gone between sending and marking")

    sweeper = sweeping.sweeper()
    with closing(CannotMark(world.url)) as outbox:
        sweeper._sources = (OutboxSource(producer_group=GROUP, outbox=outbox),)
        assert sweeper.sweep_once().failed_sources == 1
    assert sweeping.sweeper().sweep_once().announced == 1
    assert sweeping.announcements.keys == [key, key]


def test_every_sweep_shows_life(world: World) -> None:
    sweeping = Sweeping(world)
    sweeper = sweeping.sweeper()
    at_ms = []
    for _ in range(2):
        before_ms = sweeping.now_ms()
        assert sweeper.sweep_once() == SweepReport()
        at_ms.append(_swept_ms(world))
        assert before_ms <= at_ms[-1] <= sweeping.now_ms()
    assert at_ms[0] <= at_ms[1]


def test_an_outbox_that_was_not_upgraded_is_swept_and_said_once_until_it_is(world: World) -> None:
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity DROP COLUMN swept_at_ms")
    sweeping = Sweeping(world)
    key = new_key()
    world.insert_row(key, created_at_ms=sweeping.now_ms() - 60_000)
    sweeper = sweeping.sweeper()
    report = sweeper.sweep_once()
    assert (report.announced, report.failed_sources) == (1, 0)
    (problem,) = report.problems
    assert "reconciler db upgrade" in problem
    assert sweeper.sweep_once().problems == ()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity ADD COLUMN swept_at_ms BIGINT")
    assert sweeper.sweep_once().problems == ()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM reconciler_outbox_identity WHERE id = 2")
    (problem,) = sweeper.sweep_once().problems
    assert "lacks row 2" in problem


def _swept_ms(world: World) -> int:
    with reading(world.engine) as connection:
        query = sa.select(outbox_identity.c.swept_at_ms).where(outbox_identity.c.id == 2)
        return int(connection.execute(query).scalar_one())

"""A setting `tags` that was wrong: rows that it settled are judged again, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from checkback_producers.sweeper import Sweeper, SweepReport
from reconciler.clock import utc_text
from reconciler.errors import DatabaseAway
from reconciler.policy.sweeping import OutboxFact, SettledTags, SweepRules, SweptSubscription
from reconciler.sql.engines import writing
from reconciler.sql.tables import outbox, outbox_filter
from tests.unit.producers.test_sweeping import BILLING, HOUR_MS, OURS, SHIPPING, THEIRS, Sweeping
from tests.unit.producers.world import GROUP, World, new_key

KEY = (BILLING.topic, BILLING.group)


@dataclass
class Changing(Sweeping):
    """Sweepers of one outbox, each with a setting `tags` of its own."""

    rules: SweepRules = field(default_factory=lambda: SweepRules(settle_after_seconds=60.0))

    def with_tags(self, *tags: str, **rules: int) -> Sweeper:
        """A sweeper as it starts with the setting; no tags: '*'."""
        self.subscriptions = (SweptSubscription(subscription=BILLING, tags=frozenset(tags) or None),)
        if rules:
            self.rules = SweepRules(settle_after_seconds=60.0, **rules)
        return self.sweeper()

    def with_both(self, billing: str, shipping: str, **rules: int) -> Sweeper:
        """A sweeper that starts with a tag of each group."""
        tags = {BILLING: frozenset({billing}), SHIPPING: frozenset({shipping})}
        self.subscriptions = tuple(SweptSubscription(subscription=group, tags=taken) for group, taken in tags.items())
        self.rules = SweepRules(settle_after_seconds=60.0, **rules)
        return self.sweeper()

    def settled_tags(self) -> frozenset[str] | None:
        return self.world.outbox().settled_tags(GROUP)[KEY].tags

    def states(self, *keys: str) -> list[str | None]:
        return [self.world.state(key) for key in keys]


def settled_by_a_wrong_setting(changing: Changing, count: int = 3) -> list[str]:
    """Rows with the tag `paid`, of which the group never had the first."""
    keys = [changing.announced(hours_ago=2, content_digest=OURS) for _ in range(count)]
    changing.inboxes.applied[BILLING] = set(keys[1:])
    assert changing.with_tags("refund").sweep_once().settled == count
    return keys


def test_lost_message_that_a_wrong_setting_settled_is_announced_again_and_no_other_one_is(world: World) -> None:
    changing = Changing(world)
    lost, *consumed = settled_by_a_wrong_setting(changing)
    still_foreign = changing.announced(hours_ago=2, tag="noise")
    tagless = changing.announced(hours_ago=2, tag=None)
    report = changing.with_tags("refund", "paid").sweep_once()
    assert (report.reopened, report.announced, report.problems) == (1, 1, ())
    assert report.reviewing == (f"{BILLING} takes more tags than before: done",)
    assert changing.announcements.keys == [lost]
    assert changing.states(lost, *consumed) == ["ANNOUNCED", "SETTLED", "SETTLED"]
    assert world.row(lost).settled_at_ms is None
    assert changing.states(still_foreign, tagless) == ["SETTLED", "SETTLED"]
    again = changing.with_tags("refund", "paid").sweep_once()
    assert again == SweepReport()
    assert changing.announcements.keys == [lost]


def test_setting_that_takes_fewer_tags_has_nothing_looked_at_again(world: World) -> None:
    changing = Changing(world)
    settled_by_a_wrong_setting(changing)
    changing.with_tags("refund", "noise").sweep_once()
    report = changing.with_tags("noise").sweep_once()
    assert (report.reopened, report.reviewing) == (0, ())
    assert changing.settled_tags() == frozenset({"noise"})


def test_setting_that_was_wrong_for_a_while_and_is_put_back_is_noticed(world: World) -> None:
    changing = Changing(world)
    changing.with_tags("paid").sweep_once()
    lost, *_ = settled_by_a_wrong_setting(changing)
    assert changing.settled_tags() == frozenset({"refund"})
    assert changing.with_tags("paid").sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]
    assert changing.settled_tags() == frozenset({"paid"})


def test_every_tag_is_taken_again_and_messages_without_one_too(world: World) -> None:
    changing = Changing(world)
    changing.with_tags().sweep_once()
    keys = [changing.announced(hours_ago=2, tag=tag) for tag in ("paid", "refund", None)]
    assert changing.with_tags("refund").sweep_once().settled == 2
    assert changing.with_tags().sweep_once().reopened == 2
    assert sorted(changing.announcements.keys) == [keys[0], keys[2]]
    assert changing.settled_tags() is None


def test_two_sweepers_of_different_settings_side_by_side_lose_nothing(world: World) -> None:
    changing = Changing(world)
    old = changing.with_tags("refund")
    new = changing.with_tags("paid", "refund")
    old.sweep_once()
    new.sweep_once()
    lost = changing.announced(hours_ago=2)
    assert old.sweep_once().settled == 1
    assert new.sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]
    assert old.sweep_once().settled == 0, "it was announced just now"
    assert changing.settled_tags() == frozenset({"refund"}), (
        "and the old one may settle more: the new one looks once more"
    )


@pytest.mark.parametrize("instead_of", [None, 1])
def test_nothing_is_settled_by_a_setting_that_another_sweeper_overtook(
    world: World, monkeypatch: pytest.MonkeyPatch, instead_of: int | None
) -> None:
    changing = Changing(world)
    if instead_of is not None:
        changing.with_tags("paid", "refund").sweep_once()
    key = changing.announced(hours_ago=2)
    sweeper = changing.with_tags("refund")
    swept = sweeper._sources[0].outbox
    before: Mapping[tuple[str, str], SettledTags] = swept.settled_tags(GROUP)
    assert world.outbox().write_settled_tags(GROUP, KEY, frozenset({"paid"}), instead_of=instead_of)
    monkeypatch.setattr(swept, "settled_tags", lambda _group: before)
    assert sweeper.sweep_once().settled == 0
    assert changing.states(key) == ["ANNOUNCED"]
    assert changing.settled_tags() == frozenset({"paid"})


def test_a_crash_in_the_middle_begins_anew_and_many_rows_take_many_sweeps(world: World) -> None:
    changing = Changing(world)
    lost, *consumed = settled_by_a_wrong_setting(changing, 5)
    later = changing.announced(hours_ago=1)
    killed = changing.with_tags("paid", page_rows=2, pages_maximum=1)
    first = killed.sweep_once()
    assert (first.reopened, first.announced) == (1, 1)
    place = world.row(sorted([lost, *consumed])[1]).created_at_ms
    assert first.reviewing == (f"{BILLING} takes more tags than before: looked at up to {utc_text(place)}",)
    assert changing.settled_tags() == frozenset()
    restarted = changing.with_tags("paid")
    reports = [restarted.sweep_once() for _ in range(4)]
    assert [report.reviewing != () for report in reports] == [True, True, True, True]
    assert changing.settled_tags() == frozenset({"paid"})
    assert set(changing.announcements.keys) == {lost, later}
    assert set(changing.states(*consumed)) == {"SETTLED"}
    assert restarted.sweep_once().reviewing == ()


def test_inbox_that_is_away_holds_the_look_back_and_floods_nobody(world: World) -> None:
    changing = Changing(world)
    lost, *_ = settled_by_a_wrong_setting(changing)
    changing.inboxes.away = {BILLING}
    sweeper = changing.with_tags("paid")
    report = sweeper.sweep_once()
    assert (report.reopened, report.announced) == (0, 0)
    assert report.reviewing == (f"{BILLING} takes more tags than before: an inbox is away",)
    changing.inboxes.away = set()
    assert sweeper.sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]


def test_the_inbox_of_one_of_two_groups_that_is_away_holds_the_look_back_of_both(world: World) -> None:
    changing = Changing(world)
    lost = changing.announced(hours_ago=2)
    changing.inboxes.applied[BILLING] = {lost}
    assert changing.with_both("refund", "refund").sweep_once().settled == 1
    changing.inboxes.away = {SHIPPING}
    sweeper = changing.with_both("paid", "paid")
    away = [f"{group} takes more tags than before: an inbox is away" for group in (BILLING, SHIPPING)]
    assert list(sweeper.sweep_once().reviewing) == away
    changing.inboxes.away = set()
    assert sweeper.sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]


def test_a_second_group_whose_tags_change_during_the_look_has_the_oldest_rows_looked_at_once_more(
    world: World,
) -> None:
    changing = Changing(world)
    keys = [changing.announced(hours_ago=2) for _ in range(3)]
    changing.inboxes.applied = {BILLING: set(keys), SHIPPING: set(keys)}
    assert changing.with_both("refund", "paid").sweep_once().settled == 3
    looking = changing.with_both("paid", "paid", page_rows=2, pages_maximum=1)
    assert len(looking.sweep_once().reviewing) == 1, "two of three rows"
    lost = changing.announced(hours_ago=3)
    changing.inboxes.applied[BILLING].add(lost)
    assert changing.with_both("refund", "refund").sweep_once().settled == 1, "of a process with the former settings"
    reports = [looking.sweep_once() for _ in range(4)]
    assert sum(report.reopened for report in reports) == 1
    assert changing.announcements.keys == [lost]


def test_a_double_effect_that_a_wrong_setting_settled_is_judged_again(world: World) -> None:
    """SETTLED by a setting that asks no inbox, it is not looked at by any sweep."""
    changing = Changing(world)
    lost, doubled, _ = settled_by_a_wrong_setting(changing)
    changing.inboxes.doubled = {doubled}
    report = changing.with_tags("paid").sweep_once()
    assert sorted(changing.announcements.keys) == sorted([lost, doubled])
    assert report.reopened == 2


def test_one_of_several_inboxes_that_is_away_holds_the_look_back(world: World) -> None:
    """It might have the key a second time."""
    changing = Changing(world)
    keys = settled_by_a_wrong_setting(changing)
    changing.inboxes.applied[BILLING] = set(keys)
    changing.inboxes.is_one_away = True
    sweeper = changing.with_tags("paid")
    assert sweeper.sweep_once().reviewing == (f"{BILLING} takes more tags than before: an inbox is away",)
    changing.inboxes.is_one_away = False
    report = sweeper.sweep_once()
    assert (report.reopened, report.reviewing) == (0, (f"{BILLING} takes more tags than before: done",))


def test_effect_of_another_message_is_none_and_what_the_brokers_have_no_more_stays(world: World) -> None:
    changing = Changing(world)
    _, foreign, old = settled_by_a_wrong_setting(changing)
    with writing(world.engine) as connection:
        long_ago = changing.now_ms() - 73 * HOUR_MS
        connection.execute(sa.update(outbox).where(outbox.c.unique_key == old).values(created_at_ms=long_ago))
    changing.inboxes.applied[BILLING] = {foreign}
    changing.inboxes.digests = {foreign: THEIRS}
    assert changing.with_tags("paid").sweep_once().reopened == 2
    assert foreign in changing.announcements.keys
    assert old not in changing.announcements.keys


def test_of_a_group_without_an_inbox_everything_is_judged_again(world: World) -> None:
    changing = Changing(world)
    keys = settled_by_a_wrong_setting(changing)
    changing.inboxes.unconfigured = {BILLING}
    assert changing.with_tags("paid").sweep_once().reopened == 3
    assert sorted(changing.announcements.keys) == sorted(keys)


def test_other_topics_and_groups_are_left_alone(world: World) -> None:
    changing = Changing(world)
    settled_by_a_wrong_setting(changing)
    world.insert_row(new_key(), state="SETTLED", topic="INVOICES", created_at_ms=changing.now_ms())
    changing.subscriptions = (
        SweptSubscription(subscription=BILLING, tags=frozenset({"paid"})),
        SweptSubscription(subscription=SHIPPING),
    )
    report = changing.sweeper().sweep_once()
    assert (report.reopened, len(report.reviewing)) == (1, 1)


def test_damaged_row_and_damaged_tags_stop_nothing(world: World) -> None:
    changing = Changing(world)
    lost, *_ = settled_by_a_wrong_setting(changing)
    world.insert_row(new_key(), state="SETTLED", created_at_ms=changing.now_ms(), content_digest=b"short")
    for damaged in ("{", "5", '{"paid": 1}'):
        with writing(world.engine) as connection:
            connection.execute(sa.update(outbox_filter).values(tags=damaged))
        assert changing.settled_tags() == frozenset()
    assert changing.with_tags("paid").sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]


def test_a_row_that_a_wrong_setting_settled_and_nobody_can_read_is_told_until_it_is_judged_again(world: World) -> None:
    changing = Changing(world)
    lost = new_key()
    world.insert_row(lost, state="SETTLED", created_at_ms=changing.now_ms() - HOUR_MS, content_digest=b"short")
    settled_by_a_wrong_setting(changing, 1)
    sweeper = changing.with_tags("paid", page_rows=1)
    for _ in range(2):
        report = sweeper.sweep_once()
        assert report.reviewing == (f"{BILLING} takes more tags than before: waits for damaged rows",)
        assert (report.damaged, lost in "".join(report.problems)) == (1, True)
        assert changing.settled_tags() == frozenset()
    with writing(world.engine) as connection:
        connection.execute(sa.update(outbox).where(outbox.c.unique_key == lost).values(content_digest=OURS))
    report = sweeper.sweep_once()
    assert (report.reopened, report.damaged, report.reviewing) == (
        1,
        0,
        (f"{BILLING} takes more tags than before: done",),
    )
    assert lost in changing.announcements.keys
    assert changing.settled_tags() == frozenset({"paid"})


def test_a_full_page_of_which_one_row_is_damaged_is_not_the_last(world: World) -> None:
    changing = Changing(world)
    world.insert_row(new_key(), state="SETTLED", created_at_ms=changing.now_ms() - 3 * HOUR_MS, content_digest=b"short")
    *consumed, lost = settled_by_a_wrong_setting(changing)
    changing.inboxes.applied[BILLING] = set(consumed)
    assert changing.with_tags("paid", page_rows=2).sweep_once().reopened == 1
    assert changing.announcements.keys == [lost]


def test_damaged_version_stops_nothing_but_the_look(world: World) -> None:
    changing = Changing(world)
    settled_by_a_wrong_setting(changing)
    with writing(world.engine) as connection:
        connection.execute(sa.text("UPDATE reconciler_outbox_filter SET version = 'two'"))
    changing.inboxes.applied[BILLING] = {changing.announced(hours_ago=2)}
    report = changing.with_tags("paid").sweep_once()
    assert (report.settled, report.reopened) == (1, 0)
    assert "version is 'two'" in report.problems[0]


def test_a_sweep_that_could_not_write_down_its_tags_settles_nothing_by_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseAway("the connection broke")

    changing = Changing(world)
    lost = changing.announced(hours_ago=2, content_digest=OURS)
    with monkeypatch.context() as patched:
        patched.setattr(SqlOutbox, "settled_tags", away)
        assert changing.with_tags("refund").sweep_once().settled == 0
    changing.with_tags("paid").sweep_once()
    assert changing.states(lost) == ["ANNOUNCED"]


def test_outbox_that_was_not_upgraded_is_swept_and_told_once(world: World) -> None:
    changing = Changing(world)
    outbox_filter.drop(world.engine)
    key = changing.announced(hours_ago=2)
    changing.inboxes.applied[BILLING] = {key}
    sweeper = changing.with_tags("paid")
    report = sweeper.sweep_once()
    assert (report.settled, report.failed_sources, len(report.problems)) == (1, 0, 1)
    assert "a change of tags is not seen" in report.problems[0]
    assert sweeper.sweep_once().problems == ()
    outbox_filter.create(world.engine)
    assert sweeper.sweep_once().problems == ()
    assert changing.settled_tags() == frozenset({"paid"})


def test_a_stop_ends_the_look_and_a_broken_database_keeps_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing = Changing(world)
    settled_by_a_wrong_setting(changing)
    sweeper = changing.with_tags("paid", page_rows=1)
    asked: list[OutboxFact | None] = []
    swept = sweeper._sources[0].outbox
    written = swept.written

    def stopping(*arguments: object, after: OutboxFact | None, **named: object) -> object:
        asked.append(after)
        if len(asked) == 2:
            raise DatabaseAway("connection reset")
        return written(*arguments, after=after, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(swept, "written", stopping)
    assert "connection reset" in sweeper.sweep_once().problems[0]
    assert sweeper.sweep_once().reviewing[0].endswith("done")
    assert asked[1] is not None
    assert asked[1] == asked[2]

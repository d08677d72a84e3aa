"""Notices over a real ledger and a real HTTP server: what is told, by which of several processes, and what waits."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.clock import SystemClock
from reconciler.commands.asking.availability import away, broker_away, database_away
from reconciler.commands.notices import _accounts_watch, rounds_watch
from reconciler.contract.facts import Fact
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import HoldKind, NoticeKind
from reconciler.errors import DatabaseAway
from reconciler.telling.notifier import REFUSED_SECONDS, Listener, NoticeService, Watch
from reconciler.telling.ports.notices import Notice, StandingTrouble
from reconciler.wiring.databases import INBOX, OUTBOX
from reconciler.wiring.notices import listeners_of, telling_people
from reconciler.words import said
from tests.contract.ledger.rows import round_done
from tests.polling import eventually
from tests.unit.channels.receiver import Received, Receiver, Reply, receiving
from tests.unit.service.notice_world import (
    BILLING,
    ENVIRONMENT,
    PACE,
    NoticeWorld,
    listener,
    section,
    settings_with,
    webhook,
)
from tests.unit.web.reports import report_of

ROOT = Path(__file__).parents[3]
ROUNDS_STALE = NoticeKind.ROUNDS_STALE


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NoticeWorld]:
    made = NoticeWorld(tmp_path)
    yield made
    made.engine.dispose()


def told(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(one.body)["data"] for one in receiver.received]


def no_answer() -> int:
    raise DatabaseAway("the ledger does not answer")


def begun(world: NoticeWorld, *services: NoticeService) -> None:
    """The notifiers are known from now on."""
    world.turn(*services)
    world.clock.advance(1)


def known(world: NoticeWorld, *listeners: Listener, watches: Sequence[Watch] = ()) -> NoticeService:
    """A service whose notifiers are known from now on."""
    service = world.service(*listeners, watches=watches)
    begun(world, service)
    return service


def test_ten_thousand_losses_are_one_message_and_their_end_is_another(world: NoticeWorld) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        world.lose(1, 10_000)
        world.turn(service)
        for _ in range(20):
            world.turn(service, seconds=5)
        (loss,) = told(receiver)
        assert (loss["kind"], loss["count"], loss["is_over"]) == ("LOSS_PROVED", 10_000, False)
        assert (loss["topic"], loss["consumer_group"]) == ("ORDERS", "billing")
        world.settle(1, 10_000)
        world.turn(service, seconds=5)
        assert [one["is_over"] for one in told(receiver)] == [False, True]
    assert service.outcomes == {("on-call", "sent"): 2}


PATIENT = replace(PACE, patience_seconds=300)


def test_losses_that_are_repaired_soon_are_told_to_nobody_and_one_that_lasts_is(world: NoticeWorld) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url), pace=PATIENT))
        world.lose(1, 35)
        world.turn(service, seconds=5)
        world.settle(1, 35)
        for _ in range(80):
            world.turn(service, seconds=60)
        assert told(receiver) == []
        world.lose(100)
        for _ in range(30):
            world.turn(service, seconds=9)
        assert told(receiver) == [], "it has not lasted for five minutes"
        for _ in range(6):
            world.turn(service, seconds=9)
        (loss,) = told(receiver)
        assert (loss["kind"], loss["is_over"], loss["count"]) == ("LOSS_PROVED", False, 1), (
            "the others were an hour ago"
        )
        world.settle(100)
        world.turn(service, seconds=5)
        assert [one["is_over"] for one in told(receiver)] == [False, True], "whoever heard of it hears of its end"


@pytest.mark.parametrize("looks_between", [0, 1], ids=["between two looks", "seen open"])
def test_a_loss_that_comes_three_times_within_an_hour_is_told_however_short(
    world: NoticeWorld, looks_between: int
) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url), pace=PATIENT))
        for number in range(3):
            assert told(receiver) == []
            world.lose(number)
            world.turn(*[service] * looks_between, seconds=2)
            world.settle(number)
            world.turn(service, seconds=2)
            world.turn(service, seconds=600)
        (loss,) = told(receiver)
        assert (loss["kind"], loss["count"]) == ("LOSS_PROVED", 3)


@pytest.mark.parametrize(
    ("gone", "kind"),
    [
        (broker_away("broker-a", "refused"), "BROKER_AWAY"),
        (away("rocketmq", "no broker is registered"), "BROKER_AWAY"),
        (database_away([OUTBOX(owners="shop"), INBOX(owners="ORDERS/billing")], "refused"), "DATABASE_AWAY"),
    ],
)
def test_what_is_away_for_long_is_told_with_its_reason_and_that_it_is_back(
    world: NoticeWorld, gone: Fact, kind: str
) -> None:
    seen = [report_of()]
    with receiving() as receiver:
        watches = [_accounts_watch(lambda: seen[0])]
        service = known(world, listener(webhook(receiver.url), pace=PATIENT), watches=watches)
        seen[0] = report_of(away=[gone, away("redis", "refused")])
        for _ in range(30):
            world.turn(service, seconds=9)
        assert told(receiver) == []
        for _ in range(6):
            world.turn(service, seconds=9)
        (first,) = told(receiver)
        assert (first["kind"], first["count"], first["detail"]) == (kind, 1, said(gone))
        seen[0] = report_of()
        world.turn(service, seconds=5)
        assert [(one["kind"], one["is_over"]) for one in told(receiver)] == [(kind, False), (kind, True)]


def test_two_processes_that_see_the_same_tell_it_once(world: NoticeWorld) -> None:
    with receiving() as receiver:
        both = [world.service(listener(webhook(receiver.url))) for _ in range(2)]
        begun(world, *both)
        world.lose(1)
        world.ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.BREAKER, by="run", reason="too many")
        for service in both:
            service.look()
        world.clock.advance(5)
        threads = [threading.Thread(target=service.send, args=("on-call",)) for service in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        world.turn(*both, seconds=1)
    assert sorted(one["kind"] for one in told(receiver)) == ["BREAKER_OPEN", "LOSS_PROVED"]


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}], ids=["says nothing", "asks for no pause"])
def test_a_receiver_that_was_away_gets_one_message_with_what_is_there_now(
    world: NoticeWorld, headers: dict[str, str]
) -> None:
    answers = [Reply(status=503, headers=headers)]
    with receiving(lambda _: answers[-1]) as receiver:
        service = known(world, listener(webhook(receiver.url)))
        for second in range(60):
            world.lose(second + 1)
            world.turn(service, seconds=5)
        tries = len(receiver.received)
        assert 2 <= tries <= 12, "the pauses grow"
        assert service.untold_since_ms.get("on-call")
        answers.append(Reply())
        receiver.received.clear()
        for _ in range(16):
            world.turn(service, seconds=20)
        (loss,) = told(receiver)
        assert loss["count"] == 60
        assert not service.untold_since_ms.get("on-call")
    assert service.outcomes["on-call", "failed"] == tries


def test_each_of_two_notifiers_counts_what_it_has_not_told_itself(world: NoticeWorld) -> None:
    with receiving() as chat, receiving() as receiver:
        service = known(world, listener(webhook(chat.url), name="chat"), listener(webhook(receiver.url)))
        for number in (1, 2):
            world.lose(number)
            for _ in range(20):
                world.turn(service, seconds=60)
            assert [one["count"] for one in told(receiver)] == [1] * number
        service.send("chat")
    assert [one["count"] for one in told(chat)] == [2]


def test_a_receiver_that_asks_to_wait_is_left_alone_for_so_long(world: NoticeWorld) -> None:
    with receiving(lambda _: Reply(status=429, headers={"Retry-After": "600"})) as receiver:
        service = known(world, listener(webhook(receiver.url)))
        world.lose(1)
        world.turn(service)
        for _ in range(25):
            world.turn(service, seconds=20)
        assert len(receiver.received) == 1
        for _ in range(6):
            world.turn(service, seconds=20)
        assert len(receiver.received) == 2


def test_a_refusal_is_logged_once_and_tried_again_at_long_intervals(
    world: NoticeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving(lambda _: Reply(status=401)) as receiver, caplog.at_level(logging.INFO):
        service = known(world, listener(webhook(receiver.url)))
        world.lose(1)
        world.turn(service)
        for _ in range(30):
            world.turn(service, seconds=20)
        assert len(receiver.received) == 2
        assert [record.levelname for record in caplog.records if record.msg == "notice_unsent"] == ["ERROR"]
        assert receiver.url not in caplog.text
    (waits,) = (one for one in world.ledger.notices.conversations(ENVIRONMENT) if one.waiting is not None)
    assert waits.is_refused
    assert waits.error == "on-call: answers 401; correct its secret or token"


def test_a_bug_of_one_channel_keeps_no_other_notifier_silent(world: NoticeWorld) -> None:
    class Broken:
        refusals = ()

        def send(self, notice: Notice, *, at_ms: int) -> None:
            raise KeyError(notice.kind)

    with receiving() as receiver:
        service = known(world, listener(Broken()), listener(webhook(receiver.url), name="chat"))
        world.lose(1)
        world.turn(service)
        world.turn(service, seconds=5)
        service.send("chat")
    assert len(told(receiver)) == 1
    assert service.outcomes == {("on-call", "failed"): 1, ("chat", "sent"): 1}


def test_a_bug_of_one_watch_keeps_no_other_silent(world: NoticeWorld) -> None:
    def broken(*_: object) -> dict[NoticeKind, list[StandingTrouble]]:
        raise KeyError("a bug")

    late = StandingTrouble(kind=NoticeKind.ROUNDS_STALE, topic="ORDERS", group="billing", since_ms=1)
    with receiving() as receiver:
        watches: list[Watch] = [broken, lambda *_: {late.kind: [late]}]
        service = known(world, listener(webhook(receiver.url)), watches=watches)
        world.ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.BREAKER, by="run", reason="too many")
        world.turn(service)
        world.turn(service, seconds=5)
        assert sorted(one["kind"] for one in told(receiver)) == ["BREAKER_OPEN", "ROUNDS_STALE"]


def test_a_robot_with_a_limit_gets_one_message_after_the_other_from_all_processes(
    world: NoticeWorld, tmp_path: Path
) -> None:
    notifier = section("on-call", "https://dingtalk.example/robot", kind="dingtalk")
    (robot,) = listeners_of(settings_with(tmp_path, notifier))
    topics = [f"ORDERS-{number}" for number in range(5)]
    late = [StandingTrouble(kind=NoticeKind.ROUNDS_STALE, topic=topic, since_ms=1) for topic in topics]
    with receiving() as receiver:
        limited = replace(robot, channel=webhook(receiver.url))
        both = [world.service(limited, watches=[lambda *_: {NoticeKind.ROUNDS_STALE: late}]) for _ in range(2)]
        begun(world, *both)
        world.clock.advance(5)
        told_by_now = []
        for _ in range(20):
            world.turn(*both, seconds=1)
            told_by_now.append(len(receiver.received))
        assert told_by_now[:12:3] == [1, 2, 3, 4]
        assert sorted(one["topic"] for one in told(receiver)) == topics


def test_a_process_that_lost_a_message_to_another_one_sends_the_next_within_the_gap(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [StandingTrouble(kind=NoticeKind.ROUNDS_STALE, topic=topic, since_ms=1) for topic in ("ORDERS", "REFUNDS")]
    with receiving() as receiver:
        limited = replace(listener(webhook(receiver.url)), gap_seconds=3.0)
        both = [world.service(limited, watches=[lambda *_: {NoticeKind.ROUNDS_STALE: late}]) for _ in range(2)]
        both[0].look()
        world.clock.advance(5)
        due = world.ledger.notices.due(ENVIRONMENT, "on-call", gap_seconds=3.0)
        assert len(due) == 2
        monkeypatch.setattr(world.ledger.notices, "due", lambda *_, **__: due)  # both have looked before either claims
        for service in both:
            service.send("on-call")
        assert len(receiver.received) == 1


@pytest.mark.parametrize("other", [("REFUNDS", "billing"), ("ORDERS", "shipping")])
def test_a_process_without_a_subscription_tells_its_trouble_as_over(world: NoticeWorld, other: tuple[str, str]) -> None:
    kind = NoticeKind.ROUNDS_STALE
    places = [("ORDERS", "billing"), other]
    of_web = [StandingTrouble(kind=kind, topic=topic, group=group, since_ms=1) for topic, group in places]
    with receiving() as receiver:
        to = listener(webhook(receiver.url))
        # `sweep` has settings of before the second subscription.
        web, sweep = (world.service(to, watches=[lambda *_, n=n: {kind: of_web[:n]}]) for n in (2, 1))
        begun(world, web, sweep)
        for _ in range(5):
            world.turn(web, sweep, seconds=5)
        found = [(one["topic"], one["consumer_group"], one["is_over"]) for one in told(receiver)]
        assert sorted(found) == sorted((*place, False) for place in places)


def test_violations_that_were_tidied_away_hide_as_many_new_ones(world: NoticeWorld) -> None:
    kind = NoticeKind.AUDIT_VIOLATION
    days = [StandingTrouble(kind=kind, count=2, since_ms=1, newest_ms=2)]
    with receiving() as receiver:
        found = [days]
        service = known(world, listener(webhook(receiver.url)), watches=[lambda *_: {kind: found[-1]}])
        for now_found in (days, [], days):
            found.append(now_found)
            world.turn(service, seconds=1_000)
            world.turn(service, seconds=5)
        assert [one["count"] for one in told(receiver)] == [2, 2]


def test_a_kind_that_is_no_longer_wanted_is_sent_or_its_old_trouble_is_told_as_over_later(
    world: NoticeWorld,
) -> None:
    holds = world.ledger.holds
    with receiving() as receiver:
        wanted = listener(webhook(receiver.url))
        unwanted = replace(wanted, kinds=frozenset({NoticeKind.OUTAGE}))
        before = known(world, wanted)
        for topic in ("ORDERS", "REFUNDS"):
            world.turn(before, seconds=5)
            holds.place(ENVIRONMENT, topic, HoldKind.BREAKER, by="run", reason="too many")
            world.turn(before)
        world.turn(before)
        assert [one["topic"] for one in told(receiver)] == ["ORDERS"]
        world.clock.advance(5)
        meanwhile = world.service(unwanted)
        meanwhile.send("on-call")  # the other message is due, and the process has not looked yet
        world.turn(meanwhile)
        assert not any(meanwhile.untold_since_ms.values())
        holds.lift(ENVIRONMENT, "ORDERS", HoldKind.BREAKER)
        world.turn(meanwhile, seconds=86_400)
        again = world.service(wanted)
        world.turn(again)
        world.turn(again, seconds=5)
        assert [(one["topic"], one["is_over"]) for one in told(receiver)[1:]] == [("REFUNDS", False)]


def test_a_message_of_a_kind_that_is_no_longer_wanted_holds_up_no_other(world: NoticeWorld) -> None:
    with receiving() as receiver:
        wanted = listener(webhook(receiver.url))
        before = known(world, wanted)
        world.ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.BREAKER, by="run", reason="too many")
        world.lose(1)
        before.look()
        world.clock.advance(5)
        kinds = [one.kind for one in world.ledger.notices.due(ENVIRONMENT, "on-call")]
        assert kinds == [NoticeKind.BREAKER_OPEN, NoticeKind.LOSS_PROVED]
        world.service(replace(wanted, kinds=frozenset(kinds[1:]))).send("on-call")
        assert [one["kind"] for one in told(receiver)] == kinds[1:]


def test_a_damaged_row_keeps_a_process_silent_that_may_delete_none(world: NoticeWorld) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        with world.engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TRIGGER no_right BEFORE DELETE ON reconciler_notice BEGIN SELECT RAISE(ABORT, 'denied'); END"
            )
            connection.exec_driver_sql("UPDATE reconciler_notice SET attempts = 'many'")
        world.lose(1)
        world.turn(service)
        world.turn(service, seconds=5)
        assert [one["kind"] for one in told(receiver)] == ["LOSS_PROVED"]


def test_what_a_process_could_not_judge_is_not_told_as_over(world: NoticeWorld) -> None:
    answers: list[dict[NoticeKind, list[StandingTrouble]]] = []
    kind = NoticeKind.ACCOUNTED_UNTIL_STALE
    late = StandingTrouble(kind=kind, topic="ORDERS", group="billing", since_ms=1, until_ms=1, detail="rounds")
    with receiving() as receiver:
        service = world.service(listener(webhook(receiver.url)), watches=[lambda *_: answers[-1]])
        blind = world.service(listener(webhook(receiver.url)))
        answers.append({kind: [late]})
        begun(world, service)
        world.turn(service, seconds=5)
        assert told(receiver) == []
        world.turn(service, seconds=120)
        answers.append({})
        for _ in range(5):
            world.turn(service, blind, seconds=5)
        assert [one["is_over"] for one in told(receiver)] == [False]
        answers.append({kind: []})
        world.turn(service, seconds=5)
        assert [one["is_over"] for one in told(receiver)] == [False, True]


def test_a_clock_of_the_ledger_that_is_set_back_keeps_no_loss_untold(world: NoticeWorld) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        world.lose(1)
        world.turn(service)
        world.clock.step_wall(-3_600)  # while the first message waits
        world.turn(service, seconds=5)
        world.settle(1)
        world.turn(service, seconds=5)
        # The first one is counted again in both: its date is ahead of the clock.
        assert [(one["count"], one["is_over"]) for one in told(receiver)] == [(1, False), (1, True)]
        world.clock.step_wall(-3_600)  # after messages were sent
        world.turn(service)
        world.lose(2, 3)
        world.settle(2, 3)
        for _ in range(20):
            world.turn(service, seconds=60)
        assert [(one["count"], one["is_over"]) for one in told(receiver)[2:]] == [(4, True)]


def test_a_notifier_whose_only_row_is_damaged_tells_of_the_next_loss(world: NoticeWorld) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        with world.engine.begin() as connection:
            connection.execute(sa.text("UPDATE reconciler_notice SET mark_ms = 'x'"))
        begun(world, service)
        world.lose(1)
        world.settle(1)
        world.turn(service)
        world.turn(service, seconds=5)
        assert [(one["kind"], one["count"]) for one in told(receiver)] == [("LOSS_PROVED", 1)]


def test_rounds_that_stand_still_and_those_that_run_again_are_told_once_each(
    world: NoticeWorld, tmp_path: Path
) -> None:
    settings = settings_with(tmp_path)
    rounds = world.ledger.rounds

    def run_round(generation: int) -> int:
        now_ms = world.clock.now_ms()
        for number in range(2):
            rounds.store(round_done(Shard(subscription=BILLING, number=number), generation, now_ms))
        return now_ms

    with receiving() as receiver:
        both = [world.service(listener(webhook(receiver.url)), watches=[rounds_watch(settings)]) for _ in range(2)]
        begun(world, *both)
        world.turn(*both, seconds=3_600)
        for generation in range(1, 5):  # one that never had a round may be new; then rounds run
            last_ms = run_round(generation)
            world.turn(*both, seconds=15)
        assert told(receiver) == []
        for _ in range(10):
            world.turn(*both, seconds=60)
        (stale,) = told(receiver)
        assert (stale["kind"], stale["is_over"], stale["since_ms"]) == ("ROUNDS_STALE", False, last_ms)
        assert (stale["topic"], stale["consumer_group"]) == ("ORDERS", "billing")
        assert 300_000 < stale["written_at_ms"] - last_ms < 420_000
        for generation in range(5, 10):
            run_round(generation)
            world.turn(*both, seconds=60)
        assert [(one["kind"], one["is_over"]) for one in told(receiver)[1:]] == [("ROUNDS_STALE", True)]


@pytest.mark.parametrize(
    ("ages", "stale"),
    [
        pytest.param({("billing", 0): 10, ("shipping", 0): 1_000}, {"shipping"}, id="another group of the topic"),
        pytest.param({("billing", 0): 200, ("billing", 1): 1_000}, set(), id="another shard"),
        pytest.param(
            {("billing", 0): 1_000, ("billing", 16): 10}, {"billing"}, id="a shard there is no more, just now"
        ),
        pytest.param({("billing", 0): 1_000, ("billing", 16): 200}, {"billing"}, id="a shard there is no more"),
    ],
)
def test_rounds_of_something_else_say_nothing_of_a_groups_rounds(
    world: NoticeWorld, tmp_path: Path, ages: dict[tuple[str, int], int], stale: set[str]
) -> None:
    """Seconds since the last round of each shard; the topic has 16."""
    settings = settings_with(tmp_path)
    groups = [settings.subscriptions[0].model_copy(update={"group": group}) for group in ("billing", "shipping")]
    now_ms = world.clock.now_ms() + 2_000_000
    for (group, number), age in sorted(ages.items(), key=lambda one: -one[1]):
        world.clock.advance((now_ms - world.clock.now_ms()) / 1000 - age)
        of = Subscription(environment=ENVIRONMENT, topic="ORDERS", group=group)
        world.ledger.rounds.store(round_done(Shard(subscription=of, number=number), 1, world.clock.now_ms()))
    watch = rounds_watch(settings.model_copy(update={"subscriptions": groups}))
    found = watch(world.ledger.reports, now_ms)
    assert {one.group for one in found[NoticeKind.ROUNDS_STALE]} == stale


def test_rounds_of_a_group_that_may_be_at_rest_unseen_are_stale_half_an_hour_later(
    world: NoticeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Subscription(environment=ENVIRONMENT, topic="ORDERS", group="billing")
    world.ledger.rounds.store(round_done(Shard(subscription=of, number=0), 1, world.clock.now_ms()))
    stored_ms, watch = world.clock.now_ms(), rounds_watch(settings_with(tmp_path))
    monkeypatch.setattr(world.ledger.reports, "rests_are_hidden", lambda: True)
    ages = [age for age in range(60, 3_600, 60) if watch(world.ledger.reports, stored_ms + age * 1000)[ROUNDS_STALE]]
    assert 2_000 < min(ages) < 2_400
    monkeypatch.setattr(world.ledger.reports, "rests_are_hidden", lambda: False)
    assert watch(world.ledger.reports, stored_ms + 420_000)[ROUNDS_STALE]


def test_a_ledger_that_is_away_is_told_from_memory_once_an_hour(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        with monkeypatch.context() as patch:
            patch.setattr(world.ledger.notices, "now_ms", no_answer)
            for _ in range(23):
                world.turn(service, seconds=5)
            assert told(receiver) == []
            for _ in range(167):
                world.turn(service, seconds=30)
            assert [(one["kind"], one["is_over"]) for one in told(receiver)] == [("LEDGER_AWAY", False)] * 2
            assert told(receiver)[0]["detail"] == "the ledger does not answer"
        world.turn(service, seconds=5)
        world.turn(service, seconds=5)
        assert [one["is_over"] for one in told(receiver)] == [False, False, True]


@pytest.mark.parametrize(("status", "pause_seconds"), [(503, 5.0), (401, REFUSED_SECONDS)])
def test_an_absence_of_the_ledger_that_its_receiver_refused_once_is_told_after_the_pause(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch, status: int, pause_seconds: float
) -> None:
    answers = [Reply(status=status)]
    with receiving(lambda _: answers.pop() if answers else Reply()) as receiver:
        service = known(world, listener(webhook(receiver.url)))
        monkeypatch.setattr(world.ledger.notices, "now_ms", no_answer)
        for _ in range(25):
            world.turn(service, seconds=5)
        assert len(receiver.received) == 1
        world.turn(service, seconds=pause_seconds)
        assert [(one["kind"], one["is_over"]) for one in told(receiver)] == [("LEDGER_AWAY", False)] * 2
        assert len({one.headers["webhook-id"] for one in receiver.received}) == 1
        for _ in range(60):
            world.turn(service, seconds=30)
        assert len(receiver.received) == 2


def test_an_absence_of_the_ledger_that_one_notifier_refuses_is_told_by_the_other_and_later_by_itself(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Reply(status=401)]
    with receiving(lambda _: answers.pop() if answers else Reply()) as chat, receiving() as receiver:
        service = known(world, listener(webhook(chat.url), name="chat"), listener(webhook(receiver.url)))
        monkeypatch.setattr(world.ledger.notices, "now_ms", no_answer)
        for _ in range(25):
            world.turn(service, seconds=5)
        assert (len(chat.received), len(receiver.received)) == (1, 1)
        world.turn(service, seconds=REFUSED_SECONDS)
        assert (len(chat.received), len(receiver.received)) == (2, 1)


def test_a_receiver_that_is_away_with_the_ledger_is_tried_with_growing_pauses(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(lambda _: Reply(status=503)) as receiver:
        service = known(world, listener(webhook(receiver.url)))
        monkeypatch.setattr(world.ledger.notices, "now_ms", no_answer)
        for _ in range(124):
            world.turn(service, seconds=30)
        assert 10 <= len(receiver.received) <= 40


def test_a_ledger_that_hangs_is_told_although_no_question_to_it_ends(
    world: NoticeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    now_ms = world.ledger.notices.now_ms

    def hang() -> int:
        asked.set()
        answers.wait(60)
        return now_ms()

    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        monkeypatch.setattr(world.ledger.notices, "now_ms", hang)
        look = threading.Thread(target=service.look)
        look.start()
        try:
            assert asked.wait(60)
            for _ in range(119):
                world.clock.advance(1)
                service.tell_silence()
            assert told(receiver) == []
            world.clock.advance(1)
            service.tell_silence()
            (away,) = told(receiver)
            assert (away["kind"], away["is_over"], away["detail"]) == ("LEDGER_AWAY", False, "it does not answer")
        finally:
            answers.set()
            look.join()
        service.tell_silence()
        assert [one["is_over"] for one in told(receiver)] == [False, True]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_message_whose_sender_was_killed_is_sent_by_the_next_process_under_the_same_id(
    tmp_path: Path, moment: str
) -> None:
    world = NoticeWorld(tmp_path)
    world.clock.step_wall(time.time() - world.clock.now_ms() / 1000)  # the killed process has the machine's clock
    with receiving() as receiver:
        service = known(world, listener(webhook(receiver.url)))
        world.lose(1)
        child = [
            sys.executable,
            "-m",
            "tests.unit.service.notice_world",
            receiver.url,
            f"sqlite:///{tmp_path}/ledger.db",
        ]
        eventually(lambda: time.time() * 1000 > world.clock.now_ms() + 5, within_seconds=60)
        assert subprocess.run([*child, moment], cwd=ROOT, timeout=60, check=False).returncode == -9
        (left,) = (one for one in world.ledger.notices.conversations(ENVIRONMENT) if one.waiting is not None)
        assert (left.attempts, len(receiver.received)) == (1, int(moment == "after"))
        assert left.waiting is not None
        world.turn(service, seconds=60)
        ids = {one.headers["webhook-id"] for one in receiver.received}
        assert ids == {left.waiting.notice.notice_id}
        assert len(receiver.received) == 1 + int(moment == "after")
        assert len({one.body for one in receiver.received}) == 1
    world.engine.dispose()


def test_a_receiver_that_hangs_delays_neither_another_notifier_nor_the_end_of_the_process(tmp_path: Path) -> None:
    world = NoticeWorld(tmp_path)
    release, hangs = threading.Event(), threading.Event()

    def hang(_: Received) -> Reply:
        hangs.set()
        return Reply(hangs=release)

    with receiving(hang) as hanging, receiving() as receiver:
        settings = settings_with(tmp_path, section("hanging", hanging.url), section("chat", receiver.url))
        world.ledger.holds.place(ENVIRONMENT, "ORDERS", HoldKind.BREAKER, by="run", reason="too many")
        try:
            with telling_people(settings, clock=SystemClock()) as service:
                assert service is not None
                assert hangs.wait(60)
                eventually(lambda: receiver.received, within_seconds=30)
            assert "notices of hanging" in {thread.name for thread in threading.enumerate()}, "it was not waited for"
            (data,) = told(receiver)
            assert data["kind"] == "BREAKER_OPEN"
        finally:
            release.set()
    world.engine.dispose()

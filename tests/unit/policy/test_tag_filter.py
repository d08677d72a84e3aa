"""Keys announced with a tag that the group does not take: out of pending by the outbox's answer, and by no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from reconciler.contract.tables import OutboxState
from reconciler.policy.events import KeysNotTaken, RoundFinished, ShardRoundRan
from reconciler.policy.evidence import Lookup, OutboxRow, Presence, WitnessAnswer
from reconciler.policy.inquiry.case_file import PAGE_KEYS
from reconciler.policy.judging import tag_filter
from reconciler.policy.ports.announcing import Admission, AnnouncementQueue
from reconciler.policy.ports.rounds import PendingKey
from tests.unit.policy.world import Crash, Mortal, World, key

TAGS = {"billing": frozenset({"paid"})}


def filtering(**options: int) -> World:
    """A group that takes `paid`."""
    return World(tags=TAGS, **options)  # type: ignore[arg-type]


def not_taken_keys(world: World) -> list[str]:
    return sorted(k for event in world.events.of(KeysNotTaken) for k in event.unique_keys)


def apart(world: World) -> set[str]:
    memory = world.shards
    return {k for shard in world.topic.shards_of(world.subscriptions[0]) for k in memory.apart(shard)[1]}


class Counted:
    """The outbox, counting what it is asked."""

    def __init__(self, world: World) -> None:
        self._outbox = world.outbox
        self.asked: list[int] = []
        world.outbox = self  # type: ignore[assignment]  # the port is all that rounds need

    def look_up(
        self, topic: str, not_before_ms: Mapping[str, int], *, now_ms: int | None = None
    ) -> Mapping[str, Lookup[OutboxRow]]:
        self.asked.append(len(not_before_ms))
        return self._outbox.look_up(topic, not_before_ms, now_ms=now_ms)


def test_a_flood_of_foreign_tags_costs_one_statement_for_500_keys_and_neither_look_up_nor_ledger_row() -> None:
    world = filtering()
    flood = [key(number) for number in range(1, 1_201)]
    for unique_key in flood:
        world.commit_locally(unique_key, tag="noise")
    world.announce(*flood, tag="noise")
    outbox = Counted(world)
    world.rounds(world.process(), 4)
    assert world.pending() == []
    assert apart(world) == set()
    assert not_taken_keys(world) == flood
    assert outbox.asked == [500, 500, 200]
    assert all(world.candidate(unique_key) is None for unique_key in flood)
    finished = world.events.of(RoundFinished)
    assert sum(event.not_taken for event in finished) == 1_200
    assert sum(event.verified + event.broker_look_ups for event in finished) == 0


@pytest.mark.promise("G4")
def test_announced_is_matched_pending_settled_and_not_taken() -> None:
    world = filtering()
    for number in range(1, 40):
        match number % 4:
            case 0:
                world.lose(number)
            case 1:
                world.deliver(number)
            case _:
                world.commit_locally(key(number), tag="noise")
                world.announce(key(number), tag="noise")
    world.rounds(world.process(), 10)
    done = [event.done.counts for event in world.events.of(ShardRoundRan)]
    finished = world.events.of(RoundFinished)
    announced = sum(counts.announced for counts in done)
    matched = sum(counts.matched + counts.pending_matched for counts in done)
    settled, left = sum(event.settled for event in finished), sum(event.not_taken for event in finished)
    assert announced == 39 == matched + len(world.pending()) + settled + left
    assert left == 20


@pytest.mark.promise("G4")
def test_a_forged_tag_takes_no_lost_message_out_of_pending() -> None:
    world = filtering()
    lost = world.lose(1)
    world.announce(lost, tag="noise")
    world.rounds(world.process(), 12)
    assert world.repair(lost) is not None
    assert world.inbox.rows
    assert not_taken_keys(world) == []


@pytest.mark.parametrize("consume", [True, False])
def test_who_announces_a_lost_key_with_a_foreign_tag_without_end_hides_it_from_no_round(
    monkeypatch: pytest.MonkeyPatch, *, consume: bool
) -> None:
    world = filtering()
    lost, due = world.lose(1), world.shards.due

    def announced_again(*arguments: Any, **options: Any) -> Sequence[PendingKey]:
        world.announce(lost, tag="noise")
        return due(*arguments, **options)

    monkeypatch.setattr(world.shards, "due", announced_again)
    world.rounds(world.process(), 12, consume=consume)
    assert world.repair(lost) is not None


def test_a_key_announced_with_a_wrong_tag_after_the_right_one_keeps_its_age() -> None:
    world = filtering(grace=20)
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 3)
    world.announce(lost, tag="noise")
    world.rounds(process, 2)
    assert world.verdict(lost) == "LOST_CONFIRM"


def test_an_announcement_with_a_tag_that_is_taken_keeps_no_foreign_message_pending() -> None:
    world = filtering()
    world.commit_locally(key(1), tag="noise")
    world.announce(key(1), tag="paid")
    world.announce(key(1), tag="noise")
    world.rounds(world.process(), 1)
    assert world.pending() == []


@pytest.mark.parametrize("changes", [None, {"tag": "noise", "state": OutboxState.ROLLED_BACK}, {"tag": "paid"}])
def test_what_was_not_committed_with_such_a_tag_goes_on_as_a_candidate(changes: dict[str, Any] | None) -> None:
    world = filtering()
    if changes is not None:
        world.commit_locally(key(1), **changes)
    world.announce(key(1), tag="noise")
    process = world.process()
    world.rounds(process, 1)
    assert world.pending() == [key(1)]
    assert apart(world) == set()
    world.rounds(process, 6)
    assert world.candidate(key(1)) is not None


def test_while_the_outbox_is_away_keys_stay_pending_without_verdicts_and_it_is_asked_once_a_round() -> None:
    world = filtering()
    many = [key(number) for number in range(1, 1_501)]
    for unique_key in many:
        world.commit_locally(unique_key, tag="noise")
    world.announce(*many, tag="noise")
    world.outbox.away = True
    fake, outbox = world.outbox, Counted(world)
    process = world.process()
    world.rounds(process, 12)
    assert len(world.pending()) == 1_500
    assert outbox.asked == [PAGE_KEYS] * 12
    assert world.ledger.candidates.of_keys(world.subscriptions[0], many) == {}
    fake.away = False
    world.rounds(process, 1)
    assert world.pending() == []
    assert world.ledger.candidates.of_keys(world.subscriptions[0], many) == {}


def test_keys_that_no_outbox_tells_about_hold_up_no_others() -> None:
    """Forged ones, and the outbox is a replica that proves no absence: each page of them answers nothing."""
    world = filtering(shards=1)
    world.outbox.has_come_to_ms = 0
    world.announce(*(key(number) for number in range(1, 1_001)), tag="noise")
    world.commit_locally(key(2_000), tag="noise")
    world.announce(key(2_000), tag="noise")
    world.rounds(world.process(), 3)
    assert not_taken_keys(world) == [key(2_000)]


def test_a_shut_gate_lets_no_key_through_that_is_set_apart() -> None:
    world = filtering()
    world.commit_locally(key(1), tag="noise")
    world.announce(key(1), tag="noise")
    world.deliver(2)
    world.outbox.away = True
    world.rounds(world.process(), 12, consume=False)
    assert world.candidate(key(1)) is None
    assert world.candidate(key(2)) is not None


def test_a_row_that_nobody_can_read_is_not_waited_for() -> None:
    damaged = WitnessAnswer(witness="outbox", presence=Presence.UNKNOWN, detail="tag", is_damaged=True)
    plan = filtering().topic.subscriptions[0]
    assert tag_filter.is_filtered_out(Lookup(presence=Presence.UNKNOWN, answers=(damaged,)), plan) is False
    away = replace(damaged, is_damaged=False)
    assert tag_filter.is_filtered_out(Lookup(presence=Presence.UNKNOWN, answers=(damaged, away)), plan) is None


def test_committed_rows_that_contradict_each_other_are_left_to_the_verdict() -> None:
    world = filtering()
    row = world.commit_locally(key(1), tag="noise", content_digest=b"1" * 32)
    rows = (row.seen, replace(row, content_digest=b"2" * 32).seen)
    lookup = Lookup(presence=Presence.FOUND, records=rows)
    assert tag_filter.is_filtered_out(lookup, world.topic.subscriptions[0]) is False
    assert tag_filter.is_filtered_out(replace(lookup, records=rows[:1]), world.topic.subscriptions[0]) is True


def test_where_no_outbox_is_configured_any_more_keys_go_on_as_candidates() -> None:
    world = filtering()
    world.announce(key(1), tag="noise")
    world.without_evidence()
    world.rounds(world.process(), 1)
    assert apart(world) == set()
    assert world.pending() == [key(1)]


def test_a_group_that_takes_the_tag_by_now_gets_the_message() -> None:
    world = filtering()
    lost = world.lose(1)
    world.announce(lost, tag="noise")
    world.outbox.rows[lost] = replace(world.outbox.rows[lost], tag="noise")
    world.topic = replace(
        world.topic, subscriptions=tuple(replace(plan, tags=None) for plan in world.topic.subscriptions)
    )
    world.rounds(world.process(), 4)
    assert world.verdict(lost) is not None
    assert apart(world) == set()


def test_members_that_are_no_keys_are_asked_for_nowhere() -> None:
    world = filtering(shards=1)
    world.shards._memory(world.shard(key(1))).apart.add("00" * 40)
    outbox = Counted(world)
    world.rounds(world.process(), 1)
    assert outbox.asked == []
    assert apart(world) == set()


class Paged:
    """Shards whose keys apart come in pages of ten, with keys removed in between."""

    def __init__(self, world: World) -> None:
        self._memory = world.shards
        self.pages = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._memory, name)

    def apart(self, shard: object, *, cursor: int = 0) -> tuple[int, Sequence[str]]:
        self.pages += 1
        first = "" if cursor == 0 else f"{cursor:032X}"
        page = sorted(k for k in self._memory.apart(shard)[1] if k >= first)[:11]  # type: ignore[arg-type]
        return (int(page[10], 16), page[:10]) if len(page) == 11 else (0, page)


def test_one_round_compares_a_bounded_number_of_keys_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tag_filter, "COMPARED_KEYS_MAX", 25)
    world = filtering(shards=1)
    many = [key(number) for number in range(1, 101)]
    for unique_key in many:
        world.commit_locally(unique_key, tag="noise")
    world.announce(*many, tag="noise")
    world.shards = Paged(world)  # type: ignore[assignment]
    process = world.process()
    world.rounds(process, 1)
    assert len(world.pending()) == 70
    world.rounds(process, 1)
    assert world.pending() == many[60:]


def test_a_process_that_dies_at_any_call_leaves_no_key_behind_and_settles_none_twice() -> None:
    calls = 1
    while True:
        world = filtering(shards=1)
        lost = world.lose(1)
        world.commit_locally(key(2), tag="noise")
        world.announce(key(2), lost, tag="noise")
        mortal = Mortal(calls)
        with suppress(Crash):
            world.rounds(world.process(mortal, owner="first"), 3)
        if not mortal.is_dead:
            break
        waiting = {*world.pending(), *world.shards._memory(world.shard(key(2))).half}
        assert lost in waiting or world.candidate(lost) is not None
        world.rounds(world.process(owner="second"), 12)
        assert world.pending() == []
        assert world.candidate(key(2)) is None
        assert (world.subscriptions[0].group, lost) in world.inbox.rows
        calls += 1
    assert calls > 10


def test_after_a_rewind_keys_leave_once_more() -> None:
    world = filtering(shards=1)
    queue = AnnouncementQueue(unique_key_topic="KEYS", broker="a", queue_id=0)
    shard = world.shard(key(1))
    world.commit_locally(key(1), tag="noise")
    process = world.process()
    for _ in range(2):
        answer: Admission = world.shards.admit(
            shard,
            queue,
            expected=world.shards.position(shard, queue),
            following=1,
            unique_keys=[key(1)],
            apart=[key(1)],
        )
        assert answer.admitted
        world.rounds(process, 2)
        assert world.pending() == []
    assert not_taken_keys(world) == [key(1), key(1)]
    floor = world.ledger.rows.floors[world.subscriptions[0], "a/0"]
    assert floor.queue_offset == 1


# ---- a setting that was wrong


def corrected(world: World) -> None:
    """The service starts with another setting."""
    plan = replace(world.topic.subscriptions[0], tags=frozenset({"paid"}))
    world.topic = replace(world.topic, subscriptions=(plan,))


def test_loss_that_a_wrong_setting_called_filtered_is_repaired_once_when_it_is_announced_again() -> None:
    world = World(tags={"billing": frozenset({"refund"})})
    lost, arrived = world.lose(1), world.deliver(2)
    world.consume()
    world.rounds(world.process(), 6)
    assert (world.verdict(lost), world.pending()) == ("FILTERED", [])
    corrected(world)
    process = world.process()
    world.announce(lost, arrived)
    world.rounds(process, 12)
    assert world.verdict(lost) == "CONSUMED"
    assert world.repair(lost) is not None
    assert world.repair(arrived) is None
    assert world.pending() == []


def test_what_a_wrong_setting_called_filtered_is_quarantined_where_it_has_to_be() -> None:
    world = World(tags={"billing": frozenset({"refund"})})
    skipped = world.deliver(1)
    world.consume(effects=False, records=False)
    world.rounds(world.process(), 6, consume=False)
    assert world.verdict(skipped) == "FILTERED"
    corrected(world)
    world.announce(skipped)
    world.rounds(world.process(), 6, consume=False)
    assert world.verdict(skipped) == "DELIVERED_NOT_APPLIED"

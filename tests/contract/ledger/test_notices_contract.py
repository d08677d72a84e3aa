"""Notices on every database: what is there to tell, one owner of a message, and another one when it dies."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa

from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import TOO_ABSENT
from reconciler.contract.tables import CandidateState, HoldKind, NoticeKind, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger import notices as ledger_notices
from reconciler.ledger.candidates import SqlCandidates
from reconciler.ledger.database import LedgerDatabase
from reconciler.policy.ports.ledger import RepairChange, VerdictEntry
from reconciler.sql.tables import candidate
from reconciler.sql.tables import notice as notice_table
from reconciler.telling.account import LAST_ROUND, MORE_SHARDS
from reconciler.telling.conversations import (
    LATE_COMMIT_MS,
    LEASE_SECONDS_MAX,
    Pace,
    after_past,
    after_standing,
    new_conversation,
)
from reconciler.telling.ports.notices import Conversation, PastTroubles, Place, StandingTrouble
from reconciler.words import said
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import entry, key, new_environment, shard, subscription

LOSSES: Place = (NoticeKind.LOSS_PROVED, "ORDERS", "billing")
OUTAGES: Place = (NoticeKind.OUTAGE, None, None)
PACE = Pace(interval_seconds=900, reminder_seconds=14_400, gather_seconds=0)
LEASE_SECONDS = 60.0


def lost(number: int, state: CandidateState = CandidateState.OPEN) -> VerdictEntry:
    return entry(number, Verdict.LOST_CONFIRM, state)


def past(world: DatabaseWorld, mark_ms: int, place: Place = LOSSES) -> PastTroubles:
    return world.ledger.notices.past(world.environment, [(place, mark_ms)])[place, mark_ms]


def conversation(world: DatabaseWorld, place: Place = LOSSES) -> Conversation:
    (found,) = (one for one in world.ledger.notices.conversations(world.environment) if one.place == place)
    return found


def waiting(world: DatabaseWorld, number: int = 1) -> Conversation:
    """A conversation with a message that is due."""
    born = new_conversation(world.environment, "on-call", LOSSES, born_ms=world.clock.now_ms() - 1)
    world.ledger.candidates.record(shard(world.environment), [lost(number)])
    decided = after_past(
        born, past(world, born.mark_ms), pace=PACE, now_ms=world.clock.now_ms(), new_id=lambda: f"{number:026d}"
    )
    assert decided is not None
    assert world.ledger.notices.write(decided)
    return conversation(world)


def test_a_loss_is_dated_once_whatever_follows_its_proof(database_world: DatabaseWorld) -> None:
    world, of = database_world, shard(database_world.environment)
    before_ms = world.clock.now_ms()
    world.ledger.candidates.record(of, [entry(1), entry(2)])
    world.clock.advance(10)
    world.ledger.candidates.record(of, [lost(2), lost(3)])
    world.clock.advance(10)
    world.ledger.candidates.record(of, [lost(2), entry(3, Verdict.CONSUMED, CandidateState.SETTLED)])
    query = sa.select(candidate.c.unique_key, candidate.c.loss_at_ms).where(
        candidate.c.environment == world.environment
    )
    with world.ledger.database.reading() as connection:
        dated = {row.unique_key: row.loss_at_ms for row in connection.execute(query)}
    assert dated == {key(1): None, key(2): before_ms + 10_000, key(3): before_ms + 10_000}
    found = past(world, before_ms)
    assert (found.count, found.since_ms, found.until_ms) == (2, before_ms + 10_000, before_ms + 10_000)
    assert found.is_open
    assert found.detail in (key(2), key(3))
    world.ledger.candidates.record(of, [entry(2, Verdict.CONSUMED, CandidateState.SETTLED)])
    assert not past(world, before_ms).is_open
    assert past(world, before_ms + 10_000).count == 0


def test_a_writer_that_commits_after_a_later_one_is_counted_at_the_next_look(database_world: DatabaseWorld) -> None:
    """Two writers on two connections; the first dates its loss, and commits after the second was told."""
    world = database_world
    born_ms = world.clock.now_ms() - 1
    slow = SqlCandidates(LedgerDatabase(world.ledger.database.engine, now=world.ledger.database._now))
    is_written, may_commit = threading.Event(), threading.Event()

    def hold_back(connection: sa.Connection) -> None:
        if threading.current_thread() is thread:
            is_written.set()
            may_commit.wait(60)

    thread = threading.Thread(target=lambda: slow.record(shard(world.environment), [lost(1)]))
    engine = world.ledger.database.engine
    if engine.dialect.name == "sqlite":
        return  # one writer at a time: none is overtaken
    sa.event.listen(engine, "commit", hold_back)
    try:
        thread.start()
        assert is_written.wait(60)
        world.clock.advance(1)
        world.ledger.candidates.record(shard(world.environment), [lost(2), lost(3)])
        before = past(world, born_ms)
        assert (before.count, before.recent_count) == (2, 2)
        world.clock.advance(30)
    finally:
        may_commit.set()
        thread.join()
        sa.event.remove(engine, "commit", hold_back)
    assert past(world, before.recent_ms).count - before.recent_count == 1


@pytest.mark.parametrize("cause", [
    MORE_SHARDS(cause=LAST_ROUND(shard=3, at_ms=5_000), number=2), TOO_ABSENT(found_nowhere=41, half_asked=60)],
    ids=lambda cause: str(cause.code.name))  # fmt: skip
def test_a_cause_waits_with_its_message_and_ends_with_the_text_that_it_belongs_to(
    cause: Fact, database_world: DatabaseWorld
) -> None:
    world, now_ms = database_world, database_world.clock.now_ms()
    place: Place = (NoticeKind.ACCOUNTED_UNTIL_STALE, "ORDERS", "billing")
    late = StandingTrouble(
        kind=place[0], topic="ORDERS", group="billing", since_ms=now_ms, detail="shard 3, and more", cause=cause
    )
    born = new_conversation(world.environment, "on-call", place, born_ms=now_ms)
    decided = after_standing(born, late, pace=PACE, now_ms=now_ms, new_id=lambda: key(1))
    assert decided is not None
    assert world.ledger.notices.write(decided)

    def told() -> tuple[str, object]:
        message = conversation(world, place).waiting
        assert message is not None
        return message.notice.detail, message.notice.cause

    assert told() == ("shard 3, and more", cause)
    with world.ledger.database.writing() as connection:
        mine = notice_table.c.environment == world.environment
        (document,) = connection.execute(sa.select(notice_table.c.notice).where(mine)).scalars()
        other = json.dumps(json.loads(document) | {"detail": "shard 4"})
        connection.execute(sa.update(notice_table).where(mine).values(notice=other))
    assert told() == ("shard 4", None)


def test_only_what_stands_is_told_as_standing(database_world: DatabaseWorld) -> None:
    world, ledger = database_world, database_world.ledger
    environment = world.environment
    waits = [entry(n, Verdict.COLLISION, CandidateState.QUARANTINED, first_seen_ms=n) for n in (5, 7)]
    ledger.candidates.record(shard(environment), waits)
    ledger.candidates.record(shard(environment, group="audit"), [entry(1)])
    ledger.repairs.open(environment, "ORDERS", key(9), rung=Rung.END)
    (repair,) = ledger.repairs.of_keys(environment, "ORDERS", [key(9)])[key(9)]
    claimed = ledger.repairs.claim(repair, token="t", lease_seconds=60)
    assert claimed is not None
    failed = RepairChange(state="FAILED", rung=Rung.END, answer="no")  # type: ignore[arg-type]
    ledger.repairs.change(claimed, replace(failed, state=type(claimed.state)("FAILED")), token="t")
    ledger.holds.place(environment, "ORDERS", HoldKind.HOLD, by="anna", reason="drill")
    storm = TOO_ABSENT(found_nowhere=41, half_asked=60)
    ledger.holds.place(environment, "PAYMENTS", HoldKind.BREAKER, by="run", reason=storm)
    found = {(one.kind, one.topic, one.group): one for one in ledger.notices.standing(environment, [])}
    quarantined = found.pop((NoticeKind.QUARANTINED, "ORDERS", "billing"))
    assert (quarantined.count, quarantined.since_ms, quarantined.newest_ms) == (2, 5, 7)
    assert found.pop((NoticeKind.REPAIR_FAILED, "ORDERS", None)).detail == key(9)
    breaker = found.pop((NoticeKind.BREAKER_OPEN, "PAYMENTS", None))
    assert (breaker.detail, breaker.cause, breaker.since_ms) == (said(storm), storm, world.clock.now_ms())
    assert not found


def test_a_storm_in_one_group_hides_no_key_that_waits_in_another(
    database_world: DatabaseWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_notices, "STANDING_TROUBLES_MAX", 3)
    world, of = database_world, database_world.environment
    groups = [subscription(of, group=name) for name in ("billing", "stock", "mail")]
    old = [entry(1, Verdict.COLLISION, CandidateState.QUARANTINED, first_seen_ms=1)]
    world.ledger.candidates.record(shard(of, group="stock"), old)
    storm = [entry(n, Verdict.COLLISION, CandidateState.QUARANTINED, first_seen_ms=n) for n in range(10, 20)]
    world.ledger.candidates.record(shard(of), storm)
    found = {one.group: (one.count, one.newest_ms) for one in world.ledger.notices.standing(of, groups)}
    assert found == {"billing": (4, 19), "stock": (1, 1)}


def test_two_storms_change_each_others_counts(database_world: DatabaseWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_notices, "STANDING_TROUBLES_MAX", 3)
    world, of = database_world, database_world.environment
    for group, numbers in (("billing", (1, 2, 3)), ("stock", (4, 5))):
        waits = [entry(n, Verdict.COLLISION, CandidateState.QUARANTINED, first_seen_ms=n) for n in numbers]
        world.ledger.candidates.record(shard(of, group=group), waits)
    groups = [subscription(of, group="billing")]
    assert {one.group: one.count for one in world.ledger.notices.standing(of, groups)} == {"billing": 3, "stock": 2}


def test_an_outage_that_opened_and_closed_between_two_looks_is_told(database_world: DatabaseWorld) -> None:
    world, outages = database_world, database_world.ledger.outages
    began_ms = world.clock.now_ms()
    world.clock.advance(1)
    outage = outages.open(world.environment, reason="AWAY", noticed_by="run")
    seen = past(world, began_ms, OUTAGES)
    assert (seen.is_open, seen.count, seen.since_ms, seen.detail) == (True, 0, began_ms + 1_000, "AWAY")
    world.clock.advance(1)
    outages.finish(outage)
    seen = past(world, began_ms, OUTAGES)
    assert (seen.is_open, seen.count, seen.since_ms, seen.until_ms) == (False, 1, began_ms + 1_000, began_ms + 2_000)
    assert past(world, began_ms + 2_000, OUTAGES).count == 0


def test_two_outages_between_two_looks_are_told_from_the_first_ones_begin_to_the_last_ones_end(
    database_world: DatabaseWorld,
) -> None:
    world, outages = database_world, database_world.ledger.outages
    began_ms = world.clock.now_ms()
    for environment, reason in (
        (world.environment, "FIRST"),
        (world.environment, "LAST"),
        (new_environment(), "OTHER"),
    ):
        world.clock.advance(1)
        outage = outages.open(environment, reason=reason, noticed_by="run")
        world.clock.advance(1)
        outages.finish(outage)
    seen = past(world, began_ms, OUTAGES)
    assert (seen.count, seen.since_ms, seen.until_ms, seen.detail) == (2, began_ms + 1_000, began_ms + 4_000, "LAST")


def test_two_losses_are_told_from_the_first_one_on_with_the_key_of_the_last(database_world: DatabaseWorld) -> None:
    world = database_world
    began_ms = world.clock.now_ms()
    for number in (2, 1):
        world.clock.advance(1)
        world.ledger.candidates.record(shard(world.environment), [lost(number)])
    seen = past(world, began_ms)
    assert (seen.count, seen.since_ms, seen.until_ms, seen.detail) == (2, began_ms + 1_000, began_ms + 2_000, key(1))


def test_a_new_notifier_does_not_tell_what_was_before_it(database_world: DatabaseWorld) -> None:
    world = database_world
    world.ledger.notices.begin(world.environment, "on-call")
    world.clock.advance(5)
    world.ledger.notices.begin(world.environment, "on-call")
    found = conversation(world, OUTAGES)
    assert (found.mark_ms, found.version, found.waiting) == (world.clock.now_ms() - 5_000, 0, None)


def test_a_conversation_is_read_as_it_was_written(database_world: DatabaseWorld) -> None:
    world = database_world
    born = new_conversation(world.environment, "on-call", LOSSES, born_ms=world.clock.now_ms() - 1)
    world.ledger.candidates.record(shard(world.environment), [lost(1)])
    decided = after_past(
        born, past(world, born.mark_ms), pace=PACE, now_ms=world.clock.now_ms(), new_id=lambda: "1" * 26
    )
    assert decided is not None
    assert world.ledger.notices.write(decided)
    assert conversation(world) == replace(decided, version=1, created_at_ms=world.clock.now_ms())


def test_of_two_processes_that_decide_the_same_one_writes(database_world: DatabaseWorld) -> None:
    world = database_world
    found = waiting(world)
    assert world.ledger.notices.write(found)
    assert not world.ledger.notices.write(found)
    assert not world.ledger.notices.write(replace(found, version=0))


def test_a_message_has_one_owner_until_its_lease_ends(database_world: DatabaseWorld) -> None:
    world, notices = database_world, database_world.ledger.notices
    found = waiting(world)
    mine = notices.claim(found, token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    assert notices.claim(found, token="b", lease_seconds=LEASE_SECONDS) is None
    claimed = conversation(world)
    assert (claimed.is_claimed, claimed.attempts) == (True, 1)
    assert not notices.write(claimed)
    assert notices.claim(claimed, token="b", lease_seconds=LEASE_SECONDS) is None
    world.clock.advance(LEASE_SECONDS + 1)  # its owner was killed
    free = conversation(world)
    theirs = notices.claim(free, token="b", lease_seconds=LEASE_SECONDS)
    assert theirs is not None
    assert theirs.waiting == mine.waiting
    assert not notices.told(mine, token="a")
    assert notices.told(theirs, token="b")
    told = conversation(world)
    assert (told.waiting, told.is_open, told.attempts, told.told_at_ms) == (None, True, 0, world.clock.now_ms())
    assert told.mark_ms == world.clock.now_ms() - round(LEASE_SECONDS + 1) * 1000 - LATE_COMMIT_MS


def test_a_claim_without_an_end_keeps_no_message(database_world: DatabaseWorld) -> None:
    world, notices = database_world, database_world.ledger.notices
    waiting(world)
    with world.ledger.database.writing() as connection:
        mine = notice_table.c.environment == world.environment
        connection.execute(sa.update(notice_table).where(mine).values(token="nobody", lease_until_ms=None))
    (found,) = notices.due(world.environment, "on-call", gap_seconds=3)
    assert not found.is_claimed
    assert notices.claim(found, token="a", lease_seconds=LEASE_SECONDS) is not None


def test_a_message_that_is_being_sent_while_the_clock_is_set_back_has_one_owner_for_the_length_of_a_claim(
    database_world: DatabaseWorld,
) -> None:
    """Another process would send it a second time; an owner that was killed must not keep it for the hour."""
    world, notices = database_world, database_world.ledger.notices
    mine = notices.claim(waiting(world), token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    world.clock.step_wall(-3_600)
    with world.ledger.database.writing() as connection:
        of_mine = notice_table.c.environment == world.environment
        connection.execute(sa.update(notice_table).where(of_mine).values(next_at_ms=0))
    for _ in range(2):
        late = conversation(world)
        assert late.is_claimed
        assert notices.due(world.environment, "on-call") == []
        assert notices.claim(late, token="b", lease_seconds=LEASE_SECONDS) is None
        assert not notices.write(late)
        world.clock.advance(LEASE_SECONDS_MAX / 2)
    (free,) = notices.due(world.environment, "on-call", gap_seconds=3)
    assert not free.is_claimed
    theirs = notices.claim(free, token="b", lease_seconds=LEASE_SECONDS)
    assert theirs is not None
    assert not notices.told(mine, token="a")
    assert notices.told(theirs, token="b")


def test_a_message_that_was_sent_after_the_clock_was_set_back_is_told_by_its_owner(
    database_world: DatabaseWorld,
) -> None:
    world, notices = database_world, database_world.ledger.notices
    three_waiting(world)
    mine = notices.claim(notices.due(world.environment, "on-call")[0], token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    world.clock.step_wall(-60.5 - LEASE_SECONDS)
    with world.ledger.database.writing() as connection:
        of_mine = notice_table.c.environment == world.environment
        connection.execute(sa.update(notice_table).where(of_mine).values(next_at_ms=0))
    assert notices.due(world.environment, "on-call", gap_seconds=3) == [], "one is on its way"
    assert notices.told(mine, token="a")
    world.clock.advance(3)
    assert len(notices.due(world.environment, "on-call", gap_seconds=3)) == 2


def test_a_message_that_is_not_due_or_that_another_process_sends_is_sent_at_once(database_world: DatabaseWorld) -> None:
    world, notices = database_world, database_world.ledger.notices
    environment = world.environment
    notices.begin(environment, "on-call")  # a conversation without a message
    found = waiting(world)
    assert notices.due(environment, "on-call") == [found]
    assert notices.due(environment, "chat") == []
    mine = notices.claim(found, token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    assert notices.due(environment, "on-call") == []
    assert notices.failed(mine, token="a", wait_seconds=30, error="away", is_refused=False)
    assert notices.due(environment, "on-call") == []
    world.clock.advance(30)
    assert [one.place for one in notices.due(environment, "on-call")] == [LOSSES]


def three_waiting(world: DatabaseWorld) -> None:
    """Conversations of one notifier with a message that is due."""
    waiting(world)
    for topic in ("REFUNDS", "PAYMENTS"):
        other = new_conversation(world.environment, "on-call", (NoticeKind.LOSS_PROVED, topic, "billing"), born_ms=0)
        assert world.ledger.notices.write(replace(other, waiting=conversation(world).waiting))


@pytest.mark.parametrize(("is_refused", "left"), [(False, 0), (True, 2)])
def test_a_receiver_with_a_limit_that_asks_for_a_pause_gets_the_other_messages_in_it(
    database_world: DatabaseWorld, is_refused: bool, left: int
) -> None:
    world, notices = database_world, database_world.ledger.notices
    three_waiting(world)
    mine = notices.claim(notices.due(world.environment, "on-call")[0], token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    assert notices.failed(mine, token="a", wait_seconds=600, error="too many", is_refused=is_refused)
    world.clock.advance(599)
    assert len(notices.due(world.environment, "on-call", gap_seconds=3)) == left, "what is refused is one message"
    assert len(notices.due(world.environment, "on-call")) == 2
    world.clock.advance(1)
    assert len(notices.due(world.environment, "on-call", gap_seconds=3)) == 3


def test_a_receiver_with_a_limit_gets_one_message_after_the_other(database_world: DatabaseWorld) -> None:
    world, notices = database_world, database_world.ledger.notices
    three_waiting(world)
    elsewhere = new_environment()
    for environment, notifier in ((world.environment, "chat"), (elsewhere, "on-call")):
        other = new_conversation(environment, notifier, LOSSES, born_ms=0)
        assert notices.write(replace(other, waiting=notices.due(world.environment, "on-call")[0].waiting))
    for left in (3, 2, 1):
        due = notices.due(world.environment, "on-call", gap_seconds=3)
        assert len(due) == left
        mine = notices.claim(due[0], token="a", lease_seconds=LEASE_SECONDS)
        assert mine is not None
        assert notices.due(world.environment, "on-call", gap_seconds=3) == [], "one is on its way"
        assert len(notices.due(world.environment, "chat", gap_seconds=3)) == 1, "another notifier waits for none"
        assert len(notices.due(elsewhere, "on-call", gap_seconds=3)) == 1
        assert notices.told(mine, token="a")
        assert notices.due(world.environment, "on-call", gap_seconds=3) == []
        world.clock.advance(3)
    assert notices.due(world.environment, "on-call", gap_seconds=3) == []


def test_a_message_that_failed_waits_and_says_why(database_world: DatabaseWorld) -> None:
    world, notices = database_world, database_world.ledger.notices
    mine = notices.claim(waiting(world), token="a", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    assert notices.failed(mine, token="a", wait_seconds=30, error="on-call: answers 401\x00", is_refused=True)
    found = conversation(world)
    assert (found.error, found.is_refused, found.is_claimed) == ("on-call: answers 401�", True, False)
    assert notices.claim(found, token="b", lease_seconds=LEASE_SECONDS) is None
    world.clock.advance(30)
    assert notices.claim(conversation(world), token="b", lease_seconds=LEASE_SECONDS) is not None


def test_a_damaged_message_is_decided_anew_and_a_damaged_row_stops_no_other(database_world: DatabaseWorld) -> None:
    world = database_world
    waiting(world)
    world.ledger.notices.begin(world.environment, "on-call")
    with world.ledger.database.writing() as connection:
        of_losses = (notice_table.c.environment == world.environment) & (notice_table.c.topic == "ORDERS")
        connection.execute(sa.update(notice_table).where(of_losses).values(notice='{"notice_id":5}'))
    assert conversation(world).waiting is None
    with world.ledger.database.writing() as connection:
        connection.execute(sa.update(notice_table).where(of_losses).values(kind="GOSSIP"))
    assert [one.place for one in world.ledger.notices.conversations(world.environment)] == [OUTAGES]

"""ports.Repairs and ports.HandOvers on every backend."""

from __future__ import annotations

import pytest

from reconciler.contract.kept_facts import REPAIR_DISMISSED, TAKEN_BY_NOBODY
from reconciler.contract.tables import EVERY_GROUP, RepairState, Rung
from reconciler.errors import MalformedInput
from reconciler.policy.ports.ledger import Repair, RepairChange
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import key, message

LEASE_SECONDS = 60


def opened(world: World, number: int = 1, *, rung: Rung = Rung.END) -> Repair:
    world.ledger.repairs.open(world.environment, "ORDERS", key(number), rung=rung)
    return world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(number)])[key(number)][0]


def claimed(world: World, number: int = 1, *, token: str = "mine") -> Repair:
    row = world.ledger.repairs.claim(opened(world, number), token=token, lease_seconds=LEASE_SECONDS)
    assert row is not None
    return row


def claimable(world: World, scope: str = EVERY_GROUP, limit: int = 10) -> list[str]:
    rows = world.ledger.repairs.claimable(world.environment, "ORDERS", scope=scope, limit=limit)
    return [row.unique_key for row in rows]


def test_an_open_repair_has_no_owner_no_attempt_and_is_due(world: World) -> None:
    row = opened(world, rung=Rung.REPUBLISH)
    assert row == Repair(
        environment=world.environment,
        topic="ORDERS",
        scope=EVERY_GROUP,
        unique_key=key(1),
        state=RepairState.OPEN,
        rung=Rung.REPUBLISH,
        token=None,
        lease_until_ms=None,
        attempts=0,
        next_at_ms=world.clock.now_ms(),
        target=None,
        answer=None,
        created_at_ms=world.clock.now_ms(),
        sent_at_ms=None,
        done_at_ms=None,
    )
    assert claimable(world) == [key(1)]


def test_opening_twice_leaves_the_row_and_its_claim_as_they_are(world: World) -> None:
    mine = claimed(world)
    world.clock.advance(5)
    assert opened(world, rung=Rung.REPUBLISH) == mine


def test_a_topic_has_repairs_due_while_a_row_that_is_not_finished_has_its_time(world: World) -> None:
    repairs = world.ledger.repairs
    assert not repairs.due_topics(world.environment)
    mine = claimed(world)
    assert set(repairs.due_topics(world.environment)) == {"ORDERS"}, "also while somebody has claimed it"
    assert not repairs.due_topics(f"{world.environment}-other")
    sent = repairs.change(mine, RepairChange(state=RepairState.SENT, rung=Rung.END, wait_seconds=5), token="mine")
    assert sent is not None
    assert not repairs.due_topics(world.environment)
    world.clock.advance(5)
    assert set(repairs.due_topics(world.environment)) == {"ORDERS"}
    assert repairs.change(sent, RepairChange(state=RepairState.DONE, rung=Rung.END), token="mine") is not None
    assert not repairs.due_topics(world.environment)


def test_only_one_of_two_claims_wins(world: World) -> None:
    row = opened(world)
    first = world.ledger.repairs.claim(row, token="one", lease_seconds=LEASE_SECONDS)
    second = world.ledger.repairs.claim(row, token="two", lease_seconds=LEASE_SECONDS)
    assert first is not None
    assert first.token == "one"
    assert first.lease_until_ms == world.clock.now_ms() + LEASE_SECONDS * 1000
    assert second is None
    assert claimable(world) == []


@pytest.mark.parametrize(("offset_ms", "is_free"), [(-1, False), (0, False), (1, True)])
def test_a_lease_ends_just_after_its_time(world: World, offset_ms: int, is_free: bool) -> None:
    dead = claimed(world, token="dead")
    world.ledger.repairs.change(dead, RepairChange(state=RepairState.SENDING, rung=Rung.END), token="dead")
    world.clock.advance(LEASE_SECONDS + offset_ms / 1000)
    assert (claimable(world) == [key(1)]) is is_free
    heir = world.ledger.repairs.claim(dead, token="heir", lease_seconds=LEASE_SECONDS)
    assert (heir is not None) is is_free
    if heir is not None:
        assert heir.state is RepairState.SENDING, "the state is taken over as it is"


def test_a_claim_that_a_clock_set_back_has_put_out_of_reach_is_free_after_its_own_length(world: World) -> None:
    dead = claimed(world, token="dead")
    world.clock.step_wall(-3_600)
    world.clock.advance(15 * 60)  # nobody looked meanwhile: nothing says that its owner does not renew it
    assert claimable(world) == []
    world.clock.advance(LEASE_SECONDS - 1)
    assert claimable(world) == []
    assert world.ledger.repairs.claim(dead, token="early", lease_seconds=LEASE_SECONDS) is None
    world.clock.advance(1)
    assert claimable(world) == [key(1)]
    heir = world.ledger.repairs.claim(dead, token="heir", lease_seconds=LEASE_SECONDS)
    assert heir is not None
    assert (heir.token, heir.lease_until_ms) == ("heir", world.clock.now_ms() + LEASE_SECONDS * 1000)
    assert claimable(world) == [], "the heir's claim is an ordinary one"
    send = RepairChange(state=RepairState.SENDING, rung=Rung.END)
    assert world.ledger.repairs.change(dead, send, token="dead") is None, "whoever was late is no owner any more"


def test_a_claim_that_its_owner_renews_is_kept_although_the_clock_was_set_back(world: World) -> None:
    mine = claimed(world)
    world.clock.step_wall(-3_600)
    assert claimable(world) == []
    world.clock.advance(LEASE_SECONDS - 1)
    assert world.ledger.repairs.renew(mine, token="mine", lease_seconds=LEASE_SECONDS) is not None
    world.clock.advance(2)
    assert claimable(world) == []
    assert world.ledger.repairs.claim(mine, token="heir", lease_seconds=LEASE_SECONDS) is None


@pytest.mark.parametrize(("offset_ms", "is_due"), [(-1, False), (0, True), (1, True)])
def test_a_repair_is_due_exactly_when_its_time_has_come(world: World, offset_ms: int, is_due: bool) -> None:
    mine = claimed(world)
    wait = RepairChange(state=RepairState.OPEN, rung=Rung.END, wait_seconds=7, releases=True)
    assert world.ledger.repairs.change(mine, wait, token="mine") is not None
    world.clock.advance(7 + offset_ms / 1000)
    assert (claimable(world) == [key(1)]) is is_due
    assert (world.ledger.repairs.claim(mine, token="next", lease_seconds=LEASE_SECONDS) is not None) is is_due


def test_a_repair_that_waits_is_due_once_the_clock_of_the_ledger_was_set_back_by_an_hour(world: World) -> None:
    put_off = RepairChange(state=RepairState.OPEN, rung=Rung.END, wait_seconds=300.0, releases=True)
    waiting = world.ledger.repairs.change(claimed(world), put_off, token="mine")
    assert waiting is not None
    assert claimable(world) == []
    world.clock.step_wall(-3_600)
    assert claimable(world) == [key(1)]
    assert world.ledger.repairs.claim(waiting, token="another", lease_seconds=LEASE_SECONDS) is not None
    assert claimable(world) == []


def test_a_zombie_writes_nothing_after_its_row_was_taken_over(world: World) -> None:
    repairs = world.ledger.repairs
    zombie = claimed(world, token="zombie")
    world.clock.advance(LEASE_SECONDS + 0.001)
    heir = repairs.claim(zombie, token="heir", lease_seconds=LEASE_SECONDS)

    send = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, target={"offset": 1})
    assert repairs.change(zombie, send, token="zombie") is None
    assert repairs.renew(zombie, token="zombie", lease_seconds=LEASE_SECONDS) is None
    assert world.ledger.hand_overs.finish(zombie, token="zombie", answer="done") is None
    assert repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)] == [heir]


def test_an_attempt_is_written_with_target_and_time_and_kept_by_later_changes(world: World) -> None:
    repairs = world.ledger.repairs
    mine = claimed(world)
    world.clock.advance(1)
    sending = repairs.change(
        mine,
        RepairChange(
            state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, target={"broker": "b", "offset": 9}
        ),
        token="mine",
    )
    assert sending is not None
    assert (sending.attempts, sending.sent_at_ms) == (1, world.clock.now_ms())
    assert (sending.token, sending.lease_until_ms) == ("mine", mine.lease_until_ms)
    world.clock.advance(1)
    sent = repairs.change(
        sending, RepairChange(state=RepairState.SENT, rung=Rung.END, answer="code 0", releases=True), token="mine"
    )
    assert sent is not None
    assert (sent.attempts, sent.sent_at_ms, sent.target) == (1, sending.sent_at_ms, {"broker": "b", "offset": 9})
    assert (sent.answer, sent.token, sent.lease_until_ms, sent.done_at_ms) == ("code 0", None, None, None)
    again = repairs.claim(sent, token="other", lease_seconds=LEASE_SECONDS)
    assert again is not None
    assert again.answer == "code 0"


@pytest.mark.parametrize("state", [RepairState.DONE, RepairState.FAILED])
def test_a_finished_repair_is_never_claimed_again(world: World, state: RepairState) -> None:
    mine = claimed(world)
    ended = world.ledger.repairs.change(mine, RepairChange(state=state, rung=Rung.END), token="mine")
    assert ended is not None
    assert (ended.token, ended.lease_until_ms) == (None, None)
    assert ended.done_at_ms == (world.clock.now_ms() if state is RepairState.DONE else None)
    world.clock.advance(3_600)
    assert claimable(world) == []
    assert world.ledger.repairs.claim(mine, token="late", lease_seconds=LEASE_SECONDS) is None
    assert world.ledger.repairs.change(mine, RepairChange(state=RepairState.OPEN, rung=Rung.END), token="mine") is None


def test_the_first_send_is_written_once_and_survives_every_later_one(world: World) -> None:
    """The audit asks whether the first send came before the effect."""
    repairs = world.ledger.repairs
    mine = claimed(world)
    assert mine.first_sent_at_ms is None
    send = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    row = repairs.change(mine, send, token="mine")
    assert row is not None
    first_ms = world.clock.now_ms()
    assert (row.first_sent_at_ms, row.sent_at_ms) == (first_ms, first_ms)
    world.clock.advance(5)
    for state, counts in ((RepairState.OPEN, False), (RepairState.SENDING, True), (RepairState.FAILED, False)):
        row = repairs.change(row, RepairChange(state=state, rung=Rung.END, counts_as_attempt=counts), token="mine")
        assert row is not None
    assert (row.first_sent_at_ms, row.sent_at_ms) == (first_ms, first_ms + 5_000)

    assert repairs.reopen(row, rung=Rung.REPUBLISH)
    again = repairs.claim(row, token="other", lease_seconds=LEASE_SECONDS)
    assert again is not None
    sent = repairs.change(again, send, token="other")
    assert sent is not None
    assert (sent.attempts, sent.first_sent_at_ms) == (2, first_ms)


def test_an_attempt_that_came_to_nothing_is_taken_back(world: World) -> None:
    repairs = world.ledger.repairs
    send = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    row = repairs.change(claimed(world), send, token="mine")
    assert row is not None
    back = RepairChange(state=RepairState.OPEN, rung=Rung.HAND_OVER, takes_back_attempt=True, releases=True)
    row = repairs.change(row, back, token="mine")
    assert row is not None
    assert (row.attempts, row.sent_at_ms is None, row.token) == (0, False, None)


def test_an_operator_reopens_a_failed_repair_and_no_other(world: World) -> None:
    repairs = world.ledger.repairs
    mine = claimed(world)
    assert not repairs.reopen(mine, rung=Rung.REPUBLISH)
    change = RepairChange(state=RepairState.FAILED, rung=Rung.END, counts_as_attempt=True, wait_seconds=99)
    failed = repairs.change(mine, change, token="mine")
    assert failed is not None
    assert not repairs.reopen(mine, rung=Rung.REPUBLISH), "it has been sent since it was read"
    assert repairs.reopen(failed, rung=Rung.REPUBLISH)
    row = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    # One attempt: what was sent before has been waited for.
    assert (row.state, row.rung, row.attempts) == (RepairState.OPEN, Rung.REPUBLISH, 1)
    assert claimable(world) == [key(1)]


def test_a_repair_that_was_closed_unsent_begins_as_a_new_one_and_only_once(world: World) -> None:
    repairs = world.ledger.repairs
    first = claimed(world)
    for state in (RepairState.SENT, RepairState.DONE):
        repairs.change(first, RepairChange(state=state, rung=Rung.END, answer="healed without a repair"), token="mine")
    closed = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert closed.closed_unsent
    world.clock.advance(60)
    assert repairs.reopen(closed, rung=Rung.REPUBLISH)
    assert not repairs.reopen(closed, rung=Rung.END), "it has been opened since it was read"
    row = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert (row.state, row.rung, row.attempts, row.done_at_ms) == (RepairState.OPEN, Rung.REPUBLISH, 0, None)
    # No witness may answer for the new loss with what it knew when the first one was proved.
    assert row.created_at_ms == world.clock.now_ms() > first.created_at_ms
    assert claimable(world) == [key(1)]


def test_a_repair_that_a_person_opened_again_and_that_was_closed_unsent_begins_as_a_new_one(world: World) -> None:
    repairs = world.ledger.repairs
    failed = repairs.change(claimed(world), RepairChange(state=RepairState.FAILED, rung=Rung.END), token="mine")
    assert failed is not None
    assert repairs.reopen(failed, rung=Rung.END)
    (again,) = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert repairs.claim(again, token="another", lease_seconds=LEASE_SECONDS) is not None
    for state in (RepairState.SENT, RepairState.DONE):
        repairs.change(again, RepairChange(state=state, rung=Rung.END, answer="healed"), token="another")
    (closed,) = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert (closed.attempts, closed.closed_unsent) == (1, True)
    world.clock.advance(60)
    assert repairs.reopen(closed, rung=Rung.REPUBLISH)
    (row,) = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert (row.state, row.rung, row.attempts, row.done_at_ms) == (RepairState.OPEN, Rung.REPUBLISH, 0, None)


def test_a_repair_whose_send_came_to_nothing_and_that_nobody_takes_by_some_settings_begins_as_a_new_one(
    world: World,
) -> None:
    repairs = world.ledger.repairs
    mine = claimed(world)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    assert repairs.change(mine, sending, token="mine") is not None
    for state in (RepairState.SENT, RepairState.DONE):
        repairs.change(mine, RepairChange(state=state, rung=Rung.END, answer=TAKEN_BY_NOBODY()), token="mine")
    (closed,) = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert (closed.attempts, closed.closed_unsent) == (1, True)
    assert repairs.reopen(closed, rung=Rung.REPUBLISH)
    (row,) = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)]
    assert (row.state, row.rung, row.attempts, row.done_at_ms) == (RepairState.OPEN, Rung.REPUBLISH, 0, None)


def test_a_repair_that_a_person_dismissed_is_not_one_that_was_closed_unsent_and_another_person_opens_it_once(
    world: World,
) -> None:
    repairs = world.ledger.repairs
    mine = claimed(world)
    repairs.change(mine, RepairChange(state=RepairState.FAILED, rung=Rung.END), token="mine")
    assert repairs.dismiss(mine, answer=REPAIR_DISMISSED(by="anna", reason="refunded"))
    dismissed = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert (dismissed.closed_unsent, dismissed.is_dismissed) == (False, True)
    assert claimable(world) == []
    world.clock.advance(60)
    assert repairs.reopen(dismissed, rung=Rung.END)
    assert not repairs.reopen(dismissed, rung=Rung.END), "it has been opened since it was read"
    row = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert (row.state, row.attempts, row.done_at_ms, row.is_dismissed) == (RepairState.OPEN, 1, None, False)
    assert row.created_at_ms == world.clock.now_ms()


def test_a_repair_that_is_done_is_not_opened_again(world: World) -> None:
    repairs = world.ledger.repairs
    first = claimed(world)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    assert repairs.change(first, sending, token="mine") is not None
    for state in (RepairState.SENT, RepairState.DONE):
        repairs.change(first, RepairChange(state=state, rung=Rung.END, answer="the effect is there"), token="mine")
    done = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert not repairs.reopen(done, rung=Rung.END)
    assert claimable(world) == []


def test_renewing_moves_the_end_of_the_lease(world: World) -> None:
    mine = claimed(world)
    world.clock.advance(LEASE_SECONDS - 1)
    renewed = world.ledger.repairs.renew(mine, token="mine", lease_seconds=LEASE_SECONDS)
    assert renewed is not None
    assert renewed.lease_until_ms == world.clock.now_ms() + LEASE_SECONDS * 1000
    world.clock.advance(2)
    assert claimable(world) == []


def test_claimable_rows_come_oldest_first_and_bounded(world: World) -> None:
    for number in (3, 1, 2):
        opened(world, number)
        world.clock.advance(1)
    assert claimable(world) == [key(3), key(1), key(2)]
    assert claimable(world, limit=2) == [key(3), key(1)]
    assert world.ledger.repairs.claimable(world.environment, "OTHER", scope=EVERY_GROUP, limit=5) == []


def test_repairs_that_wait_for_an_effect_do_not_starve_new_ones(world: World) -> None:
    for number in (1, 2):
        opened(world, number)
        world.clock.advance(1)
    for row in world.ledger.repairs.claimable(world.environment, "ORDERS", scope=EVERY_GROUP, limit=2):
        mine = world.ledger.repairs.claim(row, token="mine", lease_seconds=LEASE_SECONDS)
        assert mine is not None
        waits = RepairChange(state=RepairState.SENT, rung=Rung.END, wait_seconds=10.0, releases=True)
        assert world.ledger.repairs.change(mine, waits, token="mine")
    world.clock.advance(5)
    opened(world, 3)
    world.clock.advance(10)
    assert claimable(world, limit=1) == [key(3)]
    assert claimable(world, limit=3) == [key(3), key(1), key(2)]


def test_answers_with_bytes_that_no_database_takes_are_written_all_the_same(world: World) -> None:
    mine = claimed(world)
    change = RepairChange(state=RepairState.OPEN, rung=Rung.END, answer="a\x00b\ud800" + "x" * 5_000)
    row = world.ledger.repairs.change(mine, change, token="mine")
    assert row is not None
    assert row.answer is not None
    assert row.answer.startswith("a")
    assert len(row.answer) <= 2_000


# ---- hand-overs


def handed_over(world: World, group: str = "billing", number: int = 1) -> Repair:
    rows = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(number)])[key(number)]
    return next(row for row in rows if row.scope == group)


def test_one_row_a_group_beside_the_row_of_every_group(world: World) -> None:
    opened(world)
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["shipping", "billing"])
    rows = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1), key(2)])
    assert [(row.scope, row.rung) for row in rows[key(1)]] == [
        ("*", Rung.END),
        ("billing", Rung.HAND_OVER),
        ("shipping", Rung.HAND_OVER),
    ]
    assert claimable(world, "billing") == [key(1)]
    assert claimable(world, "*") == [key(1)]
    world.ledger.hand_overs.insert(world.environment, message(2), groups=[])
    assert world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(2)]) == {}


@pytest.mark.promise("G3")
def test_the_handed_over_message_equals_the_half(world: World) -> None:
    world.ledger.hand_overs.insert(world.environment, message(1, body=bytes(range(256)) * 400), groups=["billing"])
    assert world.ledger.hand_overs.message_of(handed_over(world)) == message(1, body=bytes(range(256)) * 400)


def test_a_message_that_is_not_the_outbox_rows_is_refused_when_it_is_read(world: World) -> None:
    digest = message(1).content_digest
    insert = world.ledger.hand_overs.insert
    insert(world.environment, message(1), groups=["billing"], content_digest=digest)
    insert(world.environment, message(1, body=b"other"), groups=["shipping"], content_digest=digest)
    assert world.ledger.hand_overs.message_of(handed_over(world)) == message(1)
    with pytest.raises(MalformedInput, match="content digest"):
        world.ledger.hand_overs.message_of(handed_over(world, "shipping"))


def test_inserting_again_neither_replaces_the_message_nor_the_claim(world: World) -> None:
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["billing"])
    mine = world.ledger.repairs.claim(handed_over(world), token="worker", lease_seconds=LEASE_SECONDS)
    world.ledger.hand_overs.insert(world.environment, message(1, body=b"other"), groups=["billing", "shipping"])
    assert handed_over(world) == mine
    assert world.ledger.hand_overs.message_of(handed_over(world)) == message(1)


def test_a_hand_over_that_failed_begins_again_with_the_message_of_now_and_no_other_row_does(world: World) -> None:
    ledger = world.ledger
    for number, groups in ((1, ["billing", "shipping"]), (2, ["billing"])):
        ledger.hand_overs.insert(world.environment, message(number), groups=groups)
    failed = RepairChange(state=RepairState.FAILED, rung=Rung.HAND_OVER, counts_as_attempt=True, wait_seconds=99)
    for group, number in (("billing", 1), ("shipping", 1), ("billing", 2)):
        rows = ledger.repairs.of_keys(world.environment, "ORDERS", [key(number)])[key(number)]
        (row,) = (row for row in rows if row.scope == group)
        mine = ledger.repairs.claim(row, token="worker", lease_seconds=LEASE_SECONDS)
        assert mine is not None
        assert ledger.repairs.change(mine, failed, token="worker") is not None
    ledger.hand_overs.insert(world.environment, message(1, body=b"other"), groups=["billing"])
    found = ledger.repairs.of_keys(world.environment, "ORDERS", [key(1), key(2)])
    assert {(row.unique_key, row.scope): (row.state, row.attempts) for rows in found.values() for row in rows} == {
        (key(1), "billing"): (RepairState.OPEN, 0),
        (key(1), "shipping"): (RepairState.FAILED, 1),
        (key(2), "billing"): (RepairState.FAILED, 1),
    }
    (again,) = ledger.repairs.claimable(world.environment, "ORDERS", scope="billing", limit=9)
    assert ledger.hand_overs.message_of(again) == message(1, body=b"other")


def test_finishing_empties_the_message_and_keeps_the_answer(world: World) -> None:
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["billing"])
    mine = world.ledger.repairs.claim(handed_over(world), token="worker", lease_seconds=LEASE_SECONDS)
    assert mine is not None
    assert world.ledger.hand_overs.finish(mine, token="stranger", answer="x") is None
    done = world.ledger.hand_overs.finish(mine, token="worker", answer="applied")
    assert done is not None
    assert (done.state, done.answer, done.done_at_ms) == (RepairState.DONE, "applied", world.clock.now_ms())
    assert world.ledger.hand_overs.message_of(done) is None


def test_a_person_dismisses_a_failed_repair_and_no_other(world: World) -> None:
    repairs = world.ledger.repairs
    mine = claimed(world)
    assert not repairs.dismiss(mine, answer="seen to")
    failed = repairs.change(mine, RepairChange(state=RepairState.FAILED, rung=Rung.END), token="mine")
    assert failed is not None
    world.clock.advance(5)
    assert repairs.dismiss(failed, answer="seen to\x00")
    row = repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert (row.state, row.answer, row.done_at_ms) == (RepairState.DONE, "seen to\ufffd", world.clock.now_ms())
    assert claimable(world) == []
    assert not repairs.dismiss(row, answer="again")

"""The repair ladder on a broker in memory: each answer, each brake, each way a repair may end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest

from reconciler.contract.content_digest import content_digest
from reconciler.contract.tables import CandidateState, HoldKind, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.events import RepairStepped
from reconciler.evidence import EndOutcome, SendAnswer
from reconciler.ports import Repair, RepairChange
from reconciler.repair import RepairRules
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

END_ONLY = (Rung.END,)


def ended(world: World, unique_key: str) -> Repair:
    row = world.repair(unique_key)
    assert row is not None
    return row


def copies(world: World, unique_key: str) -> int:
    return Counter(copy.unique_key for copy in world.broker.copies)[unique_key]


def say(outcome: EndOutcome, code: int | None = None) -> SendAnswer:
    return SendAnswer(outcome=outcome, code=code, detail="scripted")


# ---- answers


def test_refused_end_is_tried_again_later() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.REFUSED_FOR_NOW, 2), say(EndOutcome.MISMATCH, 1), say(EndOutcome.NOT_SENT)]
    world.rounds(world.process(), 16)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.DONE, 4, 1)


def test_half_that_is_gone_is_republished_from_the_outbox_body() -> None:
    world = World()
    half = world.broker.send_half(key(1), body=b"kept")
    properties = {"user": "value"}
    digest = content_digest(topic=TOPIC, tags="paid", keys="order-1", properties=properties, body=b"kept")
    world.commit_locally(
        key(1), half, body=b"kept", properties=properties, message_keys="order-1", content_digest=digest
    )
    world.announce(key(1))
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert ended(world, key(1)).state is RepairState.DONE
    (sent,) = world.broker.republished
    assert (sent.body, sent.tag, sent.content_digest) == (b"kept", "paid", digest)
    candidate = world.candidate(key(1))
    assert candidate is not None
    assert (candidate.loss_verdict, candidate.verdict) == (Verdict.EXPIRED, Verdict.CONSUMED)
    assert world.broker.ends == []


def test_end_that_finds_the_half_gone_climbs_to_republish() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.HALF_GONE, 1)]
    world.rounds(world.process(), 10)
    row = ended(world, lost)
    assert (row.state, row.rung, row.attempts, copies(world, lost)) == (RepairState.DONE, Rung.REPUBLISH, 2, 1)


@pytest.mark.parametrize("outcome", [EndOutcome.HALF_GONE])
def test_ladder_without_a_further_rung_ends_in_quarantine(outcome: EndOutcome) -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.scripted = [say(outcome, 1)]
    world.rounds(world.process(), 10)
    assert ended(world, lost).state is RepairState.FAILED
    candidate = world.candidate(lost)
    assert candidate is not None
    assert (candidate.state, candidate.verdict) == (CandidateState.QUARANTINED, Verdict.QUARANTINED)
    assert world.pending() == []


def test_republish_that_a_broker_would_never_take_climbs() -> None:
    world = World(repair_order=(Rung.REPUBLISH, Rung.HAND_OVER))
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.NOT_SENT)]
    world.rounds(world.process(), 6)
    row = ended(world, lost)
    assert (row.rung, row.state) == (Rung.HAND_OVER, RepairState.SENT)
    world.replay()
    world.rounds(world.process(owner="later"), 6)
    assert ended(world, lost).state is RepairState.DONE


def test_answer_that_was_lost_is_found_and_not_sent_twice() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.NO_ANSWER)]
    world.rounds(world.process(), 12, consume=False)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.SENT, 1, 1)


def test_send_that_never_arrived_is_sent_again_once_the_index_has_passed_it() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.NO_ANSWER)]
    world.broker.executes_unanswered = False
    world.rounds(world.process(), 12)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.DONE, 2, 1)
    steps = [(e.before, e.after) for e in world.events.of(RepairStepped)]
    assert (RepairState.SENDING, RepairState.OPEN) in steps


@pytest.mark.parametrize(("after_ms", "sends"), [(4_999, 0), (5_000, 0), (5_001, 1)])
def test_absent_copy_counts_only_five_seconds_after_the_send(after_ms: int, sends: int) -> None:
    world = World(repair=RepairRules(claim_lease_seconds=20.0))
    lost = world.lose(1)
    world.clock.advance(60)
    world.process().verify_one(world.subscriptions[0], lost)
    mine = world.ledger.repairs.claim(ended(world, lost), token="dead", lease_seconds=1)
    assert mine is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, releases=True)
    world.ledger.repairs.change(mine, sending, token="dead")
    # The fake proves its index 2 ms after it was asked.
    world.clock.advance((after_ms - 2) / 1000)
    world.process().repair_one(world.subscriptions[0], lost)
    assert len(world.broker.ends) == sends
    assert ended(world, lost).attempts == 1 + sends


# ---- before a send


@pytest.mark.parametrize("witness", ["copies", "halves"])
def test_nothing_is_sent_while_a_look_up_is_unknown(witness: str) -> None:
    world = World()
    process, lost = world.proved_loss()
    world.broker.unknown.add(witness)
    world.rounds(process, 5)
    assert world.broker.ends == []
    assert ended(world, lost).state is RepairState.OPEN
    world.broker.unknown.clear()
    world.rounds(process, 10)
    assert ended(world, lost).state is RepairState.DONE


def test_outbox_that_goes_away_stops_the_repair_and_a_vanished_row_fails_it() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.outbox.away = True
    world.rounds(process, 3)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.OPEN, [])
    world.outbox.away = False
    world.outbox.rows[lost] = replace(world.outbox.rows[lost], state=OutboxState.ROLLED_BACK)
    world.rounds(process, 3)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.FAILED, [])


def test_late_end_of_the_producer_is_seen_before_the_repair() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.broker.commit(world.broker.halves[0])
    world.rounds(process, 4)
    row = ended(world, lost)
    assert (row.state, row.attempts, world.broker.ends) == (RepairState.DONE, 0, [])


def test_delivered_by_somebody_else_and_not_applied_is_shown_not_repaired() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.broker.commit(world.broker.halves[0])
    world.consume(effects=False)
    world.rounds(process, 12)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.FAILED, 0, 1)
    assert world.verdict(lost) == "DELIVERED_NOT_APPLIED"


def test_half_of_another_message_is_never_ended() -> None:
    world = World(repair_order=END_ONLY)
    process, lost = world.proved_loss()
    world.broker.halves = [replace(world.broker.halves[0], producer_group="somebody")]
    world.rounds(process, 4)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.FAILED, [])


def test_newest_half_copy_is_ended_and_the_ghost_on_another_broker_is_closed() -> None:
    world = World()
    half = world.broker.send_half(key(1))
    ghost = world.broker.send_half(key(1), broker="broker-b")
    again = world.broker.put_back(half)
    world.commit_locally(key(1), half)
    world.announce(key(1))
    world.rounds(world.process(), 12)
    assert world.broker.ends == [
        (key(1), again.commit_log_offset, True),
        (key(1), ghost.commit_log_offset, False),
    ]
    assert ended(world, key(1)).state is RepairState.DONE


def test_half_whose_broker_the_outbox_does_not_know_is_ended_on_the_first() -> None:
    world = World()
    half = world.broker.send_half(key(1))
    world.broker.send_half(key(1), broker="broker-b")
    world.commit_locally(key(1), half, half_broker=None)
    world.announce(key(1))
    world.rounds(world.process(), 4)
    assert world.broker.ends[0] == (key(1), half.commit_log_offset, True)


def test_copy_that_was_put_back_after_the_end_is_closed_after_the_effect() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    again = world.broker.put_back(world.broker.halves[0])
    world.rounds(process, 6)
    assert world.broker.ends[1:] == [(lost, again.commit_log_offset, False)]
    assert ended(world, lost).state is RepairState.DONE


def test_closing_that_is_not_answered_is_tried_again() -> None:
    world = World(repair_order=(Rung.REPUBLISH,))
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.DONE, 0), say(EndOutcome.NO_ANSWER), say(EndOutcome.MISMATCH, 1)]
    world.broker.executes_unanswered = False
    world.rounds(world.process(), 14)
    assert [commit for _, _, commit in world.broker.ends] == [False, False]
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.DONE, 1)


def test_prepared_records_of_old_brokers_are_not_closed() -> None:
    world = World(repair_order=(Rung.REPUBLISH,))
    lost = world.lose(1)
    world.broker.halves = [replace(world.broker.halves[0], topic=TOPIC)]
    world.rounds(world.process(), 10)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.DONE, [])


@pytest.mark.parametrize("witness", ["copies", "halves"])
def test_done_waits_until_the_open_halves_are_known(witness: str) -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.broker.unknown.add(witness)
    world.rounds(process, 4)
    assert ended(world, lost).state is RepairState.SENT
    assert world.verdict(lost) == "CONSUMED"
    world.broker.unknown.clear()
    world.rounds(process, 4)
    assert ended(world, lost).state is RepairState.DONE


# ---- the next rung


def test_copy_that_a_group_acknowledged_without_an_effect_climbs_to_the_hand_over() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    for _ in range(40):
        world.clock.advance(5)
        world.consume(effects=False)
        process.run(world.subscriptions[0])
        world.replay()
    row = ended(world, lost)
    assert (row.state, row.rung, row.attempts) == (RepairState.DONE, Rung.HAND_OVER, 3)
    assert copies(world, lost) == 2
    rungs = [e.rung for e in world.events.of(RepairStepped)]
    assert [rung for rung, _ in groupby(rungs)] == [Rung.END, Rung.REPUBLISH, Rung.HAND_OVER]


@pytest.mark.parametrize(("seconds", "climbs"), [(19.9, False), (20.0, True), (20.1, True)])
def test_next_rung_is_taken_two_grace_periods_after_the_send_and_no_earlier(seconds: float, climbs: bool) -> None:
    world = World(repair_order=(Rung.END, Rung.REPUBLISH))
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.consume(effects=False)
    sent_at = ended(world, lost).sent_at_ms
    assert sent_at is not None
    world.clock.advance(seconds - (world.clock.now_ms() - sent_at) / 1000)
    process.repair_one(world.subscriptions[0], lost)
    assert bool(world.broker.republished) == climbs


def test_lagging_group_is_waited_for_and_gets_no_second_copy() -> None:
    world = World(groups=("billing", "slow"))
    lost = world.lose(1)
    process = world.process()
    for _ in range(40):
        world.clock.advance(5)
        world.consume("billing")
        for subscription in world.subscriptions:
            process.run(subscription)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.SENT, 1)
    world.rounds(process, 20)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.DONE, 1)


@pytest.mark.parametrize(("kind", "state"), [("retry", RepairState.SENT), ("dead-letter", RepairState.FAILED)])
def test_failing_group_is_not_repaired_over_and_over(kind: str, state: RepairState) -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.consume(effects=False)
    world.broker.in_group_topic("billing", kind, world.broker.copies[0], topic="SCHEDULE_TOPIC_XXXX")
    world.rounds(process, 16)
    assert (ended(world, lost).state, copies(world, lost)) == (state, 1)
    if state is RepairState.FAILED:
        assert world.verdict(lost) == "DEAD_LETTERED"


@pytest.mark.parametrize("what", ["positions", "inbox"])
def test_group_whose_standing_is_unknown_is_waited_for(what: str) -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.consume(effects=False)
    if what == "positions":
        world.broker.positions_known = False
    else:
        world.inbox.away = True
    world.rounds(process, 12)
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.SENT, 1)


def test_effect_that_appears_while_the_standing_is_asked_is_no_reason_to_climb() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.consume(effects=False)
    world.clock.advance(21)
    # Read once for the batch, then once more after the positions.
    world.inbox.later.append((world.inbox.reads + 2, world.inbox_row("billing", lost)))
    process.repair_one(world.subscriptions[0], lost)
    assert (ended(world, lost).state, world.broker.republished) == (RepairState.SENT, [])


def test_copy_that_the_broker_lost_again_is_sent_again() -> None:
    world = World()
    lost = world.lose(1)
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1)
    world.broker.copies = []
    world.rounds(process, 16)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.DONE, 2, 1)


def test_retry_after_a_climb_does_not_send_beside_a_copy_that_is_still_to_come() -> None:
    """OPEN with attempts and a copy the group has not reached: it is waited for."""
    world = World(repair_order=(Rung.END, Rung.REPUBLISH))
    lost = world.lose(1)
    process = world.process()
    world.broker.scripted = [say(EndOutcome.REFUSED_FOR_NOW, 2)]
    while not world.broker.ends:
        world.rounds(process, 1)
    world.broker.commit(world.broker.halves[0])
    world.clock.advance(30)
    process.repair_one(world.subscriptions[0], lost)
    row = ended(world, lost)
    assert (row.state, row.attempts, copies(world, lost)) == (RepairState.SENT, 1, 1)


# ---- where losses start


def test_parked_message_starts_at_republish() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.parked, world.broker.halves = world.broker.halves, []
    world.rounds(world.process(), 10)
    row = ended(world, lost)
    assert (row.state, row.rung, world.broker.ends) == (RepairState.DONE, Rung.REPUBLISH, [])


def test_wrongly_rolled_back_message_is_republished() -> None:
    world = World()
    world.broker.rollback_evident_after = 20.0
    lost = world.lose(1)
    world.clock.advance(30)
    world.rounds(world.process(), 12)
    row = ended(world, lost)
    assert (row.state, row.rung, copies(world, lost)) == (RepairState.DONE, Rung.REPUBLISH, 1)
    candidate = world.candidate(lost)
    assert candidate is not None
    assert candidate.loss_verdict is Verdict.ROLLED_BACK_WRONGLY


def test_expired_message_without_a_body_is_quarantined() -> None:
    world = World()
    lost = world.lose(1)
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert ended(world, lost).state is RepairState.FAILED
    candidate = world.candidate(lost)
    assert candidate is not None
    assert (candidate.loss_verdict, candidate.state) == (Verdict.EXPIRED, CandidateState.QUARANTINED)


def test_expired_message_of_a_ladder_with_end_only_is_quarantined() -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.halves = []
    world.rounds(world.process(), 10)
    assert ended(world, lost).state is RepairState.FAILED


@pytest.mark.parametrize("witness", ["halves", "parked"])
def test_republish_waits_for_a_readable_copy(witness: str) -> None:
    world = World(repair_order=(Rung.REPUBLISH,))
    process, lost = world.proved_loss()
    world.broker.halves = []
    world.broker.unknown.add(witness)
    world.rounds(process, 3)
    assert (ended(world, lost).state, world.broker.republished) == (RepairState.OPEN, [])


# ---- hand-over


def test_hand_over_goes_to_every_group_that_takes_the_tag_and_has_no_effect() -> None:
    world = World(groups=("billing", "shipping", "refunds"), tags={"refunds": frozenset({"refund"})},
                  repair_order=(Rung.HAND_OVER,))  # fmt: skip
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4)
    scopes = {row.scope for row in world.ledger.repairs.read(ENVIRONMENT, TOPIC, [lost])[lost]}
    assert scopes == {"*", "billing", "shipping"}
    assert ended(world, lost).state is RepairState.SENT
    world.replay()
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.DONE
    assert copies(world, lost) == 0
    # The half is closed, so that nobody is asked about it any more.
    assert [commit for _, _, commit in world.broker.ends] == [False]


def test_hand_over_that_one_group_fails_is_failed() -> None:
    world = World(groups=("billing", "shipping"), repair_order=(Rung.HAND_OVER,))
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4)
    row = world.repair(lost, "shipping")
    assert row is not None
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "shipping", lost] = replace(row, state=RepairState.FAILED)
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.FAILED
    assert world.verdict(lost, "shipping") == "QUARANTINED"


def test_hand_over_that_is_done_counts_where_no_inbox_tells() -> None:
    world = World(repair_order=(Rung.HAND_OVER,))
    world.inbox.configured = False
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4, consume=False)
    world.replay()
    world.rounds(process, 8, consume=False)
    assert ended(world, lost).state is RepairState.DONE


def test_hand_over_without_rows_is_followed_like_any_other_send() -> None:
    world = World(repair_order=(Rung.HAND_OVER,))
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 4)
    del world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", lost]
    world.rounds(process, 12)
    assert world.repair(lost, "billing") is not None


# ---- brakes and owners


@pytest.mark.parametrize("kind", list(HoldKind))
def test_hold_stops_sends_and_effects_are_still_seen(kind: HoldKind) -> None:
    world = World()
    lost, healed = world.lose(1), world.lose(2)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, kind, by="test", reason="test")
    process = world.process()
    for _ in range(4):
        world.rounds(process, 1)
        world.ledger.holds.place(ENVIRONMENT, TOPIC, kind, by="test", reason="test")
    world.broker.commit(world.broker.halves[1])
    for _ in range(6):
        reports = world.rounds(process, 1)
        world.ledger.holds.place(ENVIRONMENT, TOPIC, kind, by="test", reason="test")
    assert world.broker.ends == []
    assert ended(world, healed).state is RepairState.DONE
    assert ended(world, lost).state is RepairState.OPEN
    assert reports[0].repairs.holds == (kind,)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, kind)
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.DONE


def test_held_repairs_cost_no_look_up_and_no_write() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    before, look_ups = ended(world, lost), len(world.broker.look_ups)
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("held", "held: HOLD")
    assert ended(world, lost) == before
    assert len(world.broker.look_ups) == look_ups


def test_dry_run_writes_verdicts_and_sends_nothing() -> None:
    world = World(repair=RepairRules(enabled=False))
    lost = world.lose(1)
    world.rounds(world.process(), 8)
    assert world.verdict(lost) == "LOST_CONFIRM"
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.OPEN, [])


def test_rate_limit_spreads_repairs() -> None:
    world = World(repair=RepairRules(rate_per_second=1.0, burst=3.0, held_wait_seconds=1.0))
    for number in range(20):
        world.lose(number)
    process = world.process()
    sent = []
    for _ in range(8):
        before = len([e for e in world.broker.ends if e[2]])
        world.rounds(process, 1, every=2.0, consume=False)
        sent.append(len([e for e in world.broker.ends if e[2]]) - before)
    assert max(sent) == 3
    assert sent[-1] == 2


def test_sixteen_attempts_are_made_and_no_more() -> None:
    world = World(repair_order=END_ONLY, repair=RepairRules(held_wait_seconds=1.0))
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.REFUSED_FOR_NOW, 2)] * 100
    process = world.process()
    seen = []
    for _ in range(60):
        world.rounds(process, 1, every=120.0)
        row = world.repair(lost)
        seen.append((row.attempts, row.state) if row is not None else (0, RepairState.OPEN))
    assert (15, RepairState.OPEN) in seen
    assert (16, RepairState.OPEN) in seen
    assert (16, RepairState.FAILED) in seen
    assert len(world.broker.ends) == 16
    assert world.verdict(lost) == "QUARANTINED"


def test_hand_over_that_never_gets_written_fails_after_sixteen_attempts() -> None:
    world = World(repair_order=(Rung.HAND_OVER,))
    process, lost = world.proved_loss()
    row = replace(ended(world, lost), state=RepairState.SENDING, attempts=16)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "*", lost] = row
    world.rounds(process, 2)
    assert ended(world, lost).state is RepairState.FAILED


def test_owner_whose_claim_ran_out_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every write: another owner takes the row first, so nothing more is sent under the old token."""
    for stolen_at in range(1, 3):
        world = World()
        process, lost = world.proved_loss()
        change = world.ledger.repairs.change
        writes = 0

        def stealing(  # type: ignore[no-untyped-def]
            repair, what, *, token, stolen_at=stolen_at, world=world, change=change
        ):
            nonlocal writes
            writes += 1
            if writes == stolen_at:
                world.clock.advance(30)
                assert world.ledger.repairs.claim(repair, token="thief", lease_seconds=60) is not None
            return change(repair, what, token=token)

        with monkeypatch.context() as patch:
            patch.setattr(world.ledger.repairs, "change", stealing)
            _, outcome = process.repair_one(world.subscriptions[0], lost)
        assert outcome is not None
        assert outcome.outcome == "taken"
        assert len(world.broker.ends) == stolen_at - 1
        assert ended(world, lost).token == "thief"


def test_two_reconcilers_send_once() -> None:
    world = World()
    lost = world.lose(1)
    first, second = world.process(owner="first"), world.process(owner="second")
    for _ in range(12):
        world.rounds(first, 1)
        second.run(world.subscriptions[0])
    assert (ended(world, lost).state, copies(world, lost)) == (RepairState.DONE, 1)


def test_row_that_another_owner_holds_is_left_alone() -> None:
    world = World()
    process, lost = world.proved_loss()
    assert world.ledger.repairs.claim(ended(world, lost), token="other", lease_seconds=60) is not None
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, world.broker.ends) == ("taken", [])


# ---- single keys


def test_dry_run_of_one_key_tells_the_next_step_and_changes_nothing() -> None:
    world = World()
    lost = world.lose(1)
    world.clock.advance(60)
    process = world.process()
    judged, outcome = process.repair_one(world.subscriptions[0], lost, dry_run=True)
    assert (judged.verification.verdict, outcome) == (Verdict.LOST_CONFIRM, None)
    assert world.candidate(lost) is None
    process.verify_one(world.subscriptions[0], lost)
    _, outcome = process.repair_one(world.subscriptions[0], lost, dry_run=True)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("planned", "END_TRANSACTION(COMMIT)")
    assert world.broker.ends == []


def test_operator_gives_a_failed_repair_another_chance() -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.HALF_GONE, 1)]
    process = world.process()
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.FAILED
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "sent"
    world.rounds(process, 6)
    assert (ended(world, lost).state, world.verdict(lost)) == (RepairState.DONE, "CONSUMED")
    _, outcome = process.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "done"


def test_key_without_a_loss_has_nothing_to_repair() -> None:
    world = World()
    fine = world.deliver(1)
    world.clock.advance(60)
    world.consume()
    judged, outcome = world.process().repair_one(world.subscriptions[0], fine)
    assert (judged.verification.verdict, outcome) == (Verdict.CONSUMED, None)


# ---- weaker modes


def test_without_an_outbox_trusted_announcements_repair_and_others_never() -> None:
    for trusts in (True, False):
        world = World(trust_announcements=trusts)
        world.outbox.configured = False
        world.broker.send_half(key(1))
        world.announce(key(1))
        process = world.process()
        world.rounds(process, 10)
        assert bool(world.broker.ends) == trusts
    world.ledger.repairs.open(ENVIRONMENT, TOPIC, key(1), rung=Rung.END)
    world.rounds(process, 3)
    assert world.broker.ends == []


def test_without_an_outbox_the_copy_tells_which_groups_want_it() -> None:
    world = World(trust_announcements=True, groups=("billing", "refunds"), tags={"refunds": frozenset({"refund"})})
    world.outbox.configured = False
    world.broker.send_half(key(1))
    world.announce(key(1))
    world.rounds(world.process(), 16)
    assert ended(world, key(1)).state is RepairState.DONE

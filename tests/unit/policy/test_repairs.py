"""The repair ladder on a broker in memory: each answer, each brake, each way a repair may end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.content_digest import content_digest
from reconciler.contract.tables import CandidateState, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.events import RepairStepped
from reconciler.policy.evidence import EndOutcome, StoredMessage
from reconciler.policy.ports.ledger import RepairChange
from reconciler.policy.repairing.repair import RepairRules
from tests.unit.policy.repair_rows import END_ONLY, copies, ended, say
from tests.unit.policy.world import TOPIC, World, key

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


def test_end_that_finds_the_half_committed_by_its_check_back_is_followed_by_no_send() -> None:
    world = World()
    lost = world.lose(1)

    def end_too_late(half: StoredMessage) -> None:
        world.broker.commit(half)
        world.broker.scripted = [say(EndOutcome.HALF_GONE, 1)]

    world.broker.on_end = end_too_late
    process = world.process()
    while not world.broker.ends:
        world.rounds(process, 1, consume=False)
    row = ended(world, lost)
    assert (row.state, row.rung, row.attempts) == (RepairState.SENT, Rung.REPUBLISH, 1), "in the same pass"
    world.rounds(process, 10)
    assert (ended(world, lost).state, world.broker.republished, copies(world, lost)) == (RepairState.DONE, [], 1)


@pytest.mark.parametrize("answers", [1, 3])
def test_repairs_under_way_follow_a_rung_that_was_taken_out_of_the_settings(answers: int) -> None:
    world = World()
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.REFUSED_FOR_NOW, 2)] * answers
    while world.broker.scripted:
        world.rounds(world.process(), 1)
    row = ended(world, lost)
    assert (row.state, row.rung) == (RepairState.OPEN, Rung.END)
    refused = [commit for _, _, commit in world.broker.ends]
    world.topic = replace(world.topic, repair_order=(Rung.REPUBLISH, Rung.HAND_OVER))
    world.rounds(world.process(), 16)
    row = ended(world, lost)
    assert (row.state, row.rung, copies(world, lost)) == (RepairState.DONE, Rung.REPUBLISH, 1)
    # Nothing is committed by END any more; the half is closed when the effect is there.
    assert [commit for _, _, commit in world.broker.ends] == [*refused, False]


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
    world.run_replay_workers()
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
    world.process().keys_by_hand.judge_one(world.subscriptions[0], lost)
    mine = world.ledger.repairs.claim(ended(world, lost), token="dead", lease_seconds=1)
    assert mine is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, releases=True)
    world.ledger.repairs.change(mine, sending, token="dead")
    # The fake proves its index 2 ms after it was asked.
    world.clock.advance((after_ms - 2) / 1000)
    world.process().keys_by_hand.repair_one(world.subscriptions[0], lost)
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


def test_an_effect_that_came_while_the_inbox_was_away_is_seen_before_a_send() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.inbox.away = True
    world.rounds(process, 5)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.OPEN, [])
    world.inbox.rows["billing", lost] = world.inbox_row("billing", lost)
    world.inbox.away = False
    world.rounds(process, 10)
    assert (ended(world, lost).state, world.broker.ends) == (RepairState.DONE, [])


@pytest.mark.promise("G2")
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


@pytest.mark.parametrize("ghosts", [0, 1])
def test_closing_that_is_not_answered_is_tried_again(ghosts: int) -> None:
    """Also where the first broker has answered, and the second one has not."""
    world = World(repair_order=(Rung.REPUBLISH,))
    lost = world.lose(1)
    for _ in range(ghosts):
        world.broker.send_half(lost, broker="broker-b")
    first = [say(EndOutcome.DONE, 0)] * ghosts
    world.broker.scripted = [say(EndOutcome.DONE, 0), *first, say(EndOutcome.NO_ANSWER), *first]
    world.broker.scripted += [say(EndOutcome.MISMATCH, 1)]
    world.broker.executes_unanswered = False
    world.rounds(world.process(), 14)
    assert [commit for _, _, commit in world.broker.ends] == [False] * 2 * (1 + ghosts)
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

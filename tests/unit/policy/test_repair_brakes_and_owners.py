"""Holds, rates, claims and operators: who may repair, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.contract.kept_facts import BY_HOLD, DEAD_LETTERED_BY, ENDS, HELD, TAKEN_BY_NOBODY
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, OutboxState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.evidence import EndOutcome, StoredMessage
from reconciler.policy.plan import TopicPlan
from reconciler.policy.repairing.repair import BATCH, RepairRules
from tests.unit.policy.repair_rows import END_ONLY, copies, ended, say
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, evidence, key

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


@pytest.mark.parametrize("kind", list(HoldKind))
def test_a_hold_that_is_placed_in_the_middle_of_a_pass_stops_what_is_sent_next(kind: HoldKind) -> None:
    """A pass of a thousand repairs takes minutes where brokers are slow; the breaker is another process's."""
    world = World(shards=1, repair=RepairRules(verify_after_seconds=4.0, enabled=False))
    for number in range(3 * BATCH):
        world.lose(number)
    world.rounds(world.process(), 8)
    world.repair_rules = RepairRules(verify_after_seconds=4.0)

    def stopped_at_the_fifth(_half: StoredMessage) -> None:
        if len(world.broker.ends) == 4:
            assert world.ledger.holds.place(ENVIRONMENT, TOPIC, kind, by="anna", reason="stop it at once")

    world.broker.on_end = stopped_at_the_fifth
    world.clock.advance(5)
    repairs = world.process().run(world.subscriptions[0]).repairs
    assert len(world.broker.ends) == BATCH
    assert repairs.holds == (kind,)
    assert repairs.counts["held"] == 3 * BATCH - len(world.broker.ends)
    before = len(world.broker.ends)
    world.ledger.holds.lift(ENVIRONMENT, TOPIC, kind)
    world.rounds(world.process(), 20)
    assert len(world.broker.ends) == 3 * BATCH > before


def test_held_repairs_cost_no_look_up_and_no_write() -> None:
    world = World()
    process, lost = world.proved_loss()
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    before, look_ups = ended(world, lost), len(world.broker.look_ups)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("held", HELD(by=BY_HOLD(kind="HOLD")))
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


def test_the_rate_is_kept_while_what_was_sent_before_is_verified() -> None:
    world = World(shards=1, repair=RepairRules(rate_per_second=4.0, burst=20.0, verify_after_seconds=4.0))
    process, sent = world.process(), []
    for turn in range(20):
        for number in range(20):
            world.lose(20 * turn + number)
        before = len(world.broker.ends)
        world.rounds(process, 1)
        sent.append(len(world.broker.ends) - before)
    assert sent[-12:] == [20] * 12


@pytest.mark.promise("L3")
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
            _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
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


def with_outdated_tags(world: World) -> TopicPlan:
    """Gives the next processes settings by which no group takes the message; returns the right ones."""
    right = world.topic
    outdated = tuple(replace(plan, tags=frozenset({"refunds"})) for plan in right.subscriptions)
    world.topic = replace(right, subscriptions=outdated)
    return right


def test_a_reconciler_with_outdated_tags_closes_a_repair_and_the_loss_is_repaired_all_the_same() -> None:
    world = World(repair=RepairRules(verify_after_seconds=4.0, enabled=False))
    lost = world.lose(1)
    world.rounds(world.process(), 8)
    world.repair_rules = RepairRules(verify_after_seconds=4.0)
    right_topic = with_outdated_tags(world)
    world.clock.advance(5)
    world.process(owner="outdated").run(world.subscriptions[0])
    assert ended(world, lost).closed_unsent
    world.topic = right_topic
    world.rounds(world.process(), 12)
    assert (ended(world, lost).state, ended(world, lost).attempts, copies(world, lost)) == (RepairState.DONE, 1, 1)


def test_what_a_person_opens_again_with_outdated_tags_was_not_sent_and_the_loss_is_repaired_all_the_same() -> None:
    """As a repair that failed since another group was dismissed: opened again it has an attempt without a send."""
    world = World(repair=RepairRules(verify_after_seconds=4.0, enabled=False))
    lost = world.lose(1)
    world.rounds(world.process(), 8)
    world.repair_rules = RepairRules(verify_after_seconds=4.0)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "*", lost] = replace(ended(world, lost), state=RepairState.FAILED)
    right_topic = with_outdated_tags(world)
    world.clock.advance(5)
    world.process(owner="outdated").keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert (ended(world, lost).state, ended(world, lost).attempts) == (RepairState.DONE, 1)
    assert world.broker.ends == [], "the half of a committed message is not rolled back"
    world.topic = right_topic
    world.rounds(world.process(), 12)
    assert (ended(world, lost).state, ended(world, lost).attempts, copies(world, lost)) == (RepairState.DONE, 1, 1)


def test_the_half_of_a_send_that_came_to_nothing_is_not_rolled_back_by_outdated_tags() -> None:
    """Its END was refused: the half is all that there is of the message."""
    world = World(repair=RepairRules(verify_after_seconds=4.0, enabled=False))
    lost = world.lose(1)
    world.rounds(world.process(), 8)
    world.repair_rules = RepairRules(verify_after_seconds=4.0)
    refused = replace(ended(world, lost), attempts=1, sent_at_ms=world.clock.now_ms())
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "*", lost] = refused
    right_topic = with_outdated_tags(world)
    process = world.process(owner="outdated")
    for _ in range(3):
        world.clock.advance(5)
        process.run(world.subscriptions[0])
    closed = ended(world, lost)
    assert (closed.state, closed.why, world.broker.ends) == (RepairState.DONE, TAKEN_BY_NOBODY(), [])
    world.topic = right_topic
    world.ledger.rows.candidates.clear()  # as the sweeper announces it again, whose tags have changed
    world.announce(lost)
    world.rounds(world.process(), 12)
    assert (ended(world, lost).state, ended(world, lost).attempts, copies(world, lost)) == (RepairState.DONE, 1, 1)


def test_row_that_another_owner_holds_is_left_alone() -> None:
    world = World()
    process, lost = world.proved_loss()
    assert world.ledger.repairs.claim(ended(world, lost), token="other", lease_seconds=60) is not None
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, world.broker.ends) == ("taken", [])


# ---- single keys


def test_dry_run_of_one_key_tells_the_next_step_and_changes_nothing() -> None:
    world = World()
    lost = world.lose(1)
    world.clock.advance(60)
    process = world.process()
    judged, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost, dry_run=True)
    assert (judged.entry.verdict, outcome) == (Verdict.LOST_CONFIRM, None)
    assert world.candidate(lost) is None
    process.keys_by_hand.judge_one(world.subscriptions[0], lost)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost, dry_run=True)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("planned", ENDS())
    assert world.broker.ends == []


def test_operator_gives_a_failed_repair_another_chance() -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.HALF_GONE, 1)]
    process = world.process()
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.FAILED
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "sent"
    world.rounds(process, 6)
    assert (ended(world, lost).state, world.verdict(lost)) == (RepairState.DONE, "CONSUMED")
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert outcome.outcome == "done"


def test_operator_is_told_at_once_that_a_dead_letter_is_not_sent_again() -> None:
    """ "sent" would let a person go home; the same copy would fail the repair a while later."""
    world = World()
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 8, consume=False)
    world.consume(effects=False)
    world.broker.in_group_topic("billing", "dead-letter", world.broker.copies[0], topic="%DLQ%billing")
    world.rounds(process, 12, consume=False)
    assert ended(world, lost).state is RepairState.FAILED
    sent = len(world.broker.ends)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, outcome.reason) == ("failed", DEAD_LETTERED_BY(groups=("billing",)))
    assert len(world.broker.ends) == sent


def test_operator_sends_nothing_again_for_a_key_that_has_had_its_effect() -> None:
    world = World(repair_order=END_ONLY)
    lost = world.lose(1)
    world.broker.scripted = [say(EndOutcome.HALF_GONE, 1)]
    process = world.process()
    world.rounds(process, 8)
    assert ended(world, lost).state is RepairState.FAILED
    row = world.candidate(lost)
    assert row is not None
    place = (world.subscriptions[0], lost)
    world.ledger.rows.candidates[place] = replace(row, verdict=Verdict.CONSUMED, state=CandidateState.SETTLED)
    sent = len(world.broker.ends)
    _, outcome = process.keys_by_hand.repair_one(world.subscriptions[0], lost)
    assert outcome is not None
    assert (outcome.outcome, ended(world, lost).state) == ("failed", RepairState.FAILED)
    assert len(world.broker.ends) == sent


def test_key_without_a_loss_has_nothing_to_repair() -> None:
    world = World()
    fine = world.deliver(1)
    world.clock.advance(60)
    world.consume()
    judged, outcome = world.process().keys_by_hand.repair_one(world.subscriptions[0], fine)
    assert (judged.entry.verdict, outcome) == (Verdict.CONSUMED, None)


# ---- weaker modes


def _rolled_back(world: World) -> None:
    world.outbox.rows[key(1)] = replace(world.outbox.rows[key(1)], state=OutboxState.ROLLED_BACK)


def _away(world: World) -> None:
    world.outbox.away = True


def _announced_alone(world: World) -> None:
    world.outbox.configured = False
    world.topic = replace(world.topic, evidence=evidence(None))


@pytest.mark.promise("G2")
@pytest.mark.parametrize("rung", Rung)
@pytest.mark.parametrize(
    ("make", "is_proved"),
    [
        (lambda _: None, True),
        (_announced_alone, True),
        (World.without_evidence, False),
        (lambda world: world.outbox.rows.clear(), False),
        (_rolled_back, False),
        (_away, False),
    ],
)
def test_a_rung_sends_only_what_the_evidence_of_the_group_proves_to_be_committed(
    make: Callable[[World], object], is_proved: bool, rung: Rung
) -> None:
    world = World(repair_order=(rung,))
    lost = world.lose(1)
    make(world)
    world.clock.advance(60)
    world.ledger.repairs.open(ENVIRONMENT, TOPIC, lost, rung=rung)
    world.rounds(world.process(), 4, consume=False)
    of_groups = [row for row in world.ledger.rows.repairs.values() if row.scope != EVERY_GROUP]
    sent = {Rung.END: world.broker.ends, Rung.REPUBLISH: world.broker.copies, Rung.HAND_OVER: of_groups}
    assert bool(sent[rung]) == any(sent.values()) == is_proved


def test_without_an_outbox_the_copy_tells_which_groups_want_it() -> None:
    world = World(trust_announcements=True, groups=("billing", "refunds"), tags={"refunds": frozenset({"refund"})})
    world.broker.send_half(key(1))
    world.announce(key(1))
    world.rounds(world.process(), 16)
    assert ended(world, key(1)).state is RepairState.DONE

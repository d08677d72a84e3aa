"""A key that a person has seen to leaves the list of what needs one, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from reconciler.clock import utc_text
from reconciler.contract.outcomes import OTHER_ROW
from reconciler.contract.reasons import DOUBLE_EFFECT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import REPAIR_ORDER_DEFAULT, CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.dismissal import (
    HAS_EFFECT,
    Dismissals,
    EffectFound,
    effect_found,
    meaning_of,
)
from reconciler.policy.evidence import Lookup, Presence
from reconciler.policy.inquiry.delivery import message_of
from reconciler.policy.ports.closing import KeyInLedger
from reconciler.policy.ports.ledger import Candidate, RepairChange, VerdictEntry
from reconciler.policy.round import ReconcileRound
from reconciler.words import said
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

REASON = "paid by hand, ticket 4711"


def dismiss(world: World, *, group: str | None = None, unique_key: str = key(1)) -> dict[str, str]:
    return dismissals_of(world).dismiss(rows_of(world, unique_key), group=group, by="operator anna", reason=REASON)


def dismissals_of(world: World, configured: Collection[Subscription] | None = None) -> Dismissals:
    configured = world.subscriptions if configured is None else configured
    return Dismissals(closings=world.ledger.closings, configured=configured)


def rows_of(world: World, unique_key: str = key(1)) -> KeyInLedger:
    life = world.ledger.reports.life(ENVIRONMENT, unique_key)
    return KeyInLedger(candidates=life.candidates, repairs=life.repairs)


def given_up(*groups: str, order: tuple[Rung, ...] = REPAIR_ORDER_DEFAULT) -> World:
    """A message without a half and without a body: nothing is left to be sent again."""
    world = World(shards=1, groups=groups or ("billing",), repair_order=order)
    world.lose(1)
    world.broker.halves.clear()
    world.rounds(world.process(), 30)
    for group in groups or ("billing",):
        assert world.verdict(key(1), group) == "QUARANTINED"
    return world


def shipping_alone_gets_it(world: World, process: ReconcileRound) -> None:
    """Handed over: a copy would reach billing, too. Of ENDs there is a rollback at most."""
    for _ in range(6):
        world.rounds(process, 5)
        world.run_replay_workers()
    assert sorted(world.inbox.rows) == [("shipping", key(1))]
    assert world.broker.copies == []


def needs_a_person(world: World) -> bool:
    reports = world.ledger.reports
    return any(v.state is CandidateState.QUARANTINED for v in reports.verdict_counts(ENVIRONMENT)) or any(
        r.state is RepairState.FAILED for r in reports.repair_counts(ENVIRONMENT)
    )


def test_a_dismissed_key_needs_nobody_any_more_and_keeps_its_verdict_and_evidence() -> None:
    world = given_up()
    before = world.candidate(key(1))
    assert needs_a_person(world)
    assert dismiss(world) == {"billing": "dismissed"}
    assert not needs_a_person(world)
    row, repair = world.candidate(key(1)), world.repair(key(1))
    assert before is not None
    assert row is not None
    assert repair is not None
    assert (row.state, row.verdict) == (CandidateState.SETTLED, Verdict.QUARANTINED)
    assert row.loss_verdict is before.loss_verdict
    told = {"dismissed_by": "operator anna", "dismissed_because": REASON}
    assert dict(row.evidence) == dict(before.evidence) | told
    assert (repair.state, repair.answer) == (RepairState.DONE, f"dismissed by operator anna: {REASON}")
    assert dismiss(world) == {"billing": "SETTLED"}


def test_nothing_is_sent_for_a_dismissed_key_even_if_it_is_announced_again() -> None:
    world = given_up()
    dismiss(world)
    world.announce(key(1))
    world.rounds(world.process(), 30)
    assert (world.broker.ends, world.broker.republished, world.pending()) == ([], [], [])
    row = world.candidate(key(1))
    assert row is not None
    assert row.state is CandidateState.SETTLED


def test_a_repair_for_every_group_is_closed_with_the_last_group_that_needs_a_person() -> None:
    world = given_up("billing", "shipping")
    assert dismiss(world, group="billing") == {"billing": "dismissed"}
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.FAILED
    assert needs_a_person(world)
    assert dismiss(world) == {"billing": "dismissed", "shipping": "dismissed"}
    assert not needs_a_person(world)


def test_a_key_that_the_service_still_works_on_is_left_alone() -> None:
    world = World(shards=1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    world.lose(1)
    world.rounds(world.process(), 5)
    before = world.candidate(key(1)), world.repair(key(1))
    assert dismiss(world) == {"billing": "OPEN"}
    assert (world.candidate(key(1)), world.repair(key(1))) == before


def test_nobodys_key_has_nothing_to_dismiss() -> None:
    world = given_up()
    assert dismiss(world, unique_key=key(2)) == {}
    assert dismiss(world, group="nobody") == {}
    assert needs_a_person(world)


def test_a_dismissed_message_is_not_sent_by_a_repair_by_hand_either() -> None:
    """It may have been sent under another key since."""
    world = given_up()
    dismiss(world)
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    world.process().keys_by_hand.repair_one(world.subscriptions[0], key(1))
    world.rounds(world.process(), 30)
    assert (world.broker.ends, world.broker.republished) == ([], [])
    assert world.verdict(key(1)) == "QUARANTINED"


def test_a_group_whose_hand_over_is_still_to_come_is_not_called_dismissed() -> None:
    """Billing's worker failed, so the repair did; shipping's worker is down, and its effect comes when it is back."""
    world = World(shards=1, groups=("billing", "shipping"), repair_order=(Rung.HAND_OVER,))
    world.lose(1)
    process = world.process()
    world.rounds(process, 6)
    row = world.repair(key(1), "billing")
    assert row is not None
    claimed = world.ledger.repairs.claim(row, token="worker", lease_seconds=60)
    assert claimed is not None
    failed = RepairChange(state=RepairState.FAILED, rung=Rung.HAND_OVER)
    assert world.ledger.repairs.change(claimed, failed, token="worker") is not None
    world.rounds(process, 30)
    assert world.verdict(key(1), "shipping") == "QUARANTINED"
    assert dismiss(world) == {"billing": "dismissed", "shipping": "repair is OPEN"}
    assert take_back(world) == {"billing": "repair is OPEN", "shipping": "not dismissed"}
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.FAILED
    assert needs_a_person(world)
    world.run_replay_workers()
    assert ("shipping", key(1)) in world.inbox.rows
    assert dismiss(world) == {"billing": "dismissed", "shipping": "dismissed"}
    assert not needs_a_person(world)


def test_a_group_that_a_repair_for_every_group_may_still_reach_is_not_called_dismissed() -> None:
    world = given_up()
    repair = world.repair(key(1))
    assert repair is not None
    world.ledger.repairs.reopen(repair, rung=Rung.REPUBLISH)
    assert dismiss(world) == {"billing": "repair is OPEN"}
    assert world.verdict(key(1)) == "QUARANTINED"
    row = world.candidate(key(1))
    assert row is not None
    assert row.state is CandidateState.QUARANTINED


def test_what_is_open_of_a_group_that_left_the_settings_does_not_alarm_for_ever() -> None:
    world = World(shards=1, groups=("billing", "shipping"))
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    world.lose(1)
    world.rounds(world.process(), 10)
    left = [s for s in world.subscriptions if s.group == "shipping"]
    done = dismissals_of(world, left).dismiss(rows_of(world), group=None, by="operator anna", reason=REASON)
    assert done == {"billing": "dismissed", "shipping": "OPEN"}
    row = world.candidate(key(1), "billing")
    assert row is not None
    assert (row.state, row.verdict, row.loss_verdict) == (
        CandidateState.SETTLED, Verdict.QUARANTINED, Verdict.LOST_CONFIRM,
    )  # fmt: skip
    assert (row.evidence["verdict_before"], row.evidence["dismissed_by"]) == ("LOST_CONFIRM", "operator anna")


def test_the_dismissal_of_a_group_that_left_the_settings_leaves_the_repair_for_those_that_stay() -> None:
    world = World(shards=1, groups=("billing", "shipping"))
    record_verdict(world, "billing", Verdict.QUARANTINED, CandidateState.QUARANTINED)
    record_verdict(world, "shipping", Verdict.CONSUMED, CandidateState.SETTLED)
    world.ledger.repairs.open_all(ENVIRONMENT, TOPIC, {key(1): Rung.END})
    stays = [s for s in world.subscriptions if s.group == "shipping"]
    done = dismissals_of(world, stays).dismiss(rows_of(world), group=None, by="operator anna", reason=REASON)
    assert done == {"billing": "dismissed", "shipping": "repair is OPEN"}
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.OPEN


def test_what_a_topic_that_left_the_settings_has_given_up_can_be_dismissed() -> None:
    world = given_up()
    done = dismissals_of(world, ()).dismiss(rows_of(world), group=None, by="operator anna", reason=REASON)
    assert done == {"billing": "dismissed"}
    assert not needs_a_person(world)


def test_a_loss_that_is_proved_while_a_person_dismisses_opens_no_repair() -> None:
    """The key was given up without a repair. A slow process of the service still holds a verdict on it."""
    world = World(shards=1)
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    subscription = world.subscriptions[0]
    seen = VerdictEntry(
        unique_key=key(1),
        verdict=Verdict.DELIVERED_NOT_APPLIED,
        evidence={},
        first_seen_ms=1,
        state=CandidateState.QUARANTINED,
        wait_seconds=0.0,
    )
    world.ledger.candidates.record(Shard(subscription=subscription, number=0), [seen])
    assert dismiss(world) == {"billing": "dismissed"}
    world.ledger.repairs.open_all(ENVIRONMENT, TOPIC, {key(1): Rung.END})
    world.rounds(world.process(), 30)
    assert (world.broker.ends, world.broker.republished) == ([], [])
    repair = world.repair(key(1))
    assert repair is not None
    assert (repair.state, repair.answer) == (RepairState.DONE, f"dismissed by operator anna: {REASON}")
    judged, outcome = world.process().keys_by_hand.repair_one(subscription, key(1))
    assert (judged.entry.verdict, outcome) == (Verdict.QUARANTINED, None)
    row = world.candidate(key(1))
    assert row is not None
    assert row.is_dismissed


def test_a_group_that_is_dismissed_gets_no_hand_over_when_another_ones_repair_is_tried_again() -> None:
    world = given_up("billing", "shipping")
    assert dismiss(world, group="billing") == {"billing": "dismissed"}
    row = world.repair(key(1), "billing")
    assert row is not None
    assert (row.state, row.answer) == (RepairState.DONE, f"dismissed by operator anna: {REASON}")
    assert world.repair(key(1), "shipping") is None


def test_a_hand_over_that_a_worker_runs_is_not_dismissed_although_its_group_left_the_settings() -> None:
    world = World(shards=1, repair_order=(Rung.HAND_OVER,))
    world.lose(1)
    world.rounds(world.process(), 6)
    row = world.repair(key(1), "billing")
    assert row is not None
    assert world.ledger.repairs.claim(row, token="worker", lease_seconds=60) is not None
    seen = rows_of(world)
    without = dismissals_of(world, ())
    told = without.dismiss(seen, group=None, by="operator anna", reason=REASON)
    assert told == {
        "billing": "repair is OPEN, claimed until it has run, or until the ledger's clock passes "
        f"{utc_text(world.clock.now_ms() + 60_000)}"
    }
    world.ledger_clock.wrong_by_seconds = -3_600.0  # no clock gives a claim to a person who looks once
    assert without.dismiss(seen, group=None, by="operator anna", reason=REASON) == told
    world.ledger_clock.wrong_by_seconds = 0.0
    world.clock.advance(61)
    assert without.dismiss(seen, group=None, by="operator anna", reason=REASON) == {"billing": "dismissed"}
    world.run_replay_workers()
    assert ("billing", key(1)) not in world.inbox.rows


def paid_by_hand_for_billing_alone(*order: Rung) -> World:
    """Nothing was left to be sent again, so that a person has paid billing's; then the message comes back."""
    world = given_up("billing", "shipping", order=order or REPAIR_ORDER_DEFAULT)
    assert dismiss(world, group="billing") == {"billing": "dismissed"}
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    world.process().keys_by_hand.repair_one(world.subscriptions[1], key(1))
    return world


def test_what_was_paid_by_hand_for_one_group_is_not_paid_again_by_the_repair_of_another_one() -> None:
    world = paid_by_hand_for_billing_alone()
    shipping_alone_gets_it(world, world.process())
    repair, handed_over = world.repair(key(1)), world.repair(key(1), "billing")
    assert repair is not None
    assert (repair.state, repair.rung) == (RepairState.DONE, Rung.HAND_OVER)
    assert handed_over is not None
    assert handed_over.answer == f"dismissed by operator anna: {REASON}"
    assert not needs_a_person(world)


def test_what_reaches_every_group_is_left_to_a_person_once_one_of_them_is_dismissed() -> None:
    world = paid_by_hand_for_billing_alone(Rung.END, Rung.REPUBLISH)
    world.rounds(world.process(), 30)
    assert (world.inbox.rows, world.broker.ends, world.broker.republished) == ({}, [], [])
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.state is RepairState.FAILED
    assert repair.answer == "republish would also reach billing, which a person dismissed, and there is no further rung"


def test_a_repair_that_was_sent_ends_with_the_effects_of_the_groups_that_are_not_dismissed() -> None:
    """Billing has acknowledged the copy without an effect, and a process of an older release has dismissed it."""
    world = World(shards=1, groups=("billing", "shipping"))
    world.lose(1)
    process = world.process()
    world.rounds(process, 6, consume=False)
    assert len(world.broker.copies) == 1
    record_dismissal(world, "billing")
    world.consume("billing", effects=False)
    world.rounds(process, 20, consume=False)
    repair = world.repair(key(1))
    assert repair is not None
    assert (repair.state, repair.answer) == (RepairState.SENT, "shipping: LAGGING")
    world.consume("shipping")
    world.rounds(process, 20, consume=False)
    repair = world.repair(key(1))
    assert repair is not None
    assert (repair.state, len(world.broker.copies)) == (RepairState.DONE, 1)


def record_dismissal(world: World, group: str) -> None:
    """All that a dismissal by release 0.2.0 leaves."""
    record_verdict(world, group, Verdict.QUARANTINED, CandidateState.SETTLED)


def record_verdict(world: World, group: str, verdict: Verdict, state: CandidateState) -> None:
    subscription = next(s for s in world.subscriptions if s.group == group)
    seen = VerdictEntry(
        unique_key=key(1), verdict=verdict, evidence={}, first_seen_ms=1, state=state, wait_seconds=0.0
    )  # fmt: skip
    world.ledger.candidates.record(Shard(subscription=subscription, number=0), [seen])


def test_a_dismissal_leaves_the_repair_to_a_group_that_still_lags() -> None:
    """Billing's copy was refused, and the brokers have deleted it. Shipping has no verdict before it reads on."""
    world = World(shards=1, groups=("billing", "shipping"))
    half = world.broker.send_half(key(1))
    world.commit_locally(key(1), half)
    record_verdict(world, "billing", Verdict.DELIVERED_NOT_APPLIED, CandidateState.QUARANTINED)
    assert dismiss(world) == {"billing": "dismissed"}
    world.announce(key(1))
    shipping_alone_gets_it(world, world.process())


def test_a_group_that_lagged_while_a_repair_was_dismissed_is_repaired_by_a_person() -> None:
    world = World(shards=1, groups=("billing", "shipping"))
    world.lose(1)
    world.broker.halves.clear()
    billing, shipping = world.subscriptions
    process = world.process()
    for _ in range(30):  # shipping has no round
        world.clock.advance(5)
        process.run(billing)
    assert dismiss(world) == {"billing": "dismissed"}
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    for _ in range(10):
        world.clock.advance(5)
        process.run(shipping)
    assert world.verdict(key(1), "shipping") == "QUARANTINED"
    judged, outcome = process.keys_by_hand.repair_one(shipping, key(1))
    assert judged.entry.verdict is Verdict.LOST_CONFIRM
    assert outcome is not None
    assert (outcome.outcome, outcome.rung) == ("sent", Rung.HAND_OVER)
    world.run_replay_workers()
    assert sorted(world.inbox.rows) == [("shipping", key(1))]
    assert world.broker.copies == []


def text_of(outcome: str, row: Candidate, effect: EffectFound) -> str:
    meaning = meaning_of(outcome, row, effect)
    return "" if meaning is None else said(meaning)


def effects_of(world: World) -> dict[str, EffectFound]:
    """What the groups' inboxes say of the first key."""
    row = message_of(world.outbox.look_up(TOPIC, {key(1): 0})[key(1)])
    return {s.group: effect_found(world.inbox.look_up(s, [key(1)])[key(1)], row) for s in world.subscriptions}


def dismiss_with(world: World, effects: dict[str, EffectFound]) -> dict[str, str]:
    return dismissals_of(world).dismiss(rows_of(world), group=None, by="operator anna", reason=REASON, effects=effects)


def apply(world: World, group: str = "billing") -> None:
    """Check-back has delivered it meanwhile, and the group has applied it."""
    world.inbox.rows[group, key(1)] = world.inbox_row(group, key(1))


def test_a_group_that_has_its_effect_is_not_dismissed_and_nothing_is_written_for_it() -> None:
    world = given_up("billing", "shipping")
    apply(world)
    before = world.candidate(key(1), "billing"), world.repair(key(1))
    effects = effects_of(world)
    assert dismiss_with(world, effects) == {"billing": HAS_EFFECT, "shipping": "dismissed"}
    assert (world.candidate(key(1), "billing"), world.repair(key(1))) == before
    assert world.repair(key(1), "billing") is None
    row = before[0]
    assert row is not None
    told = text_of(HAS_EFFECT, row, effects["billing"])
    assert told.startswith("it took effect at 20")
    assert "a payment made by hand is a second one" in told
    assert f"`reconciler repair {key(1)}` settles it" in told


def test_the_repair_by_hand_that_is_told_instead_of_a_dismissal_settles_the_key() -> None:
    world = given_up()
    apply(world)
    assert dismiss_with(world, effects_of(world)) == {"billing": HAS_EFFECT}
    world.process().keys_by_hand.repair_one(world.subscriptions[0], key(1))
    assert world.verdict(key(1)) == "CONSUMED"
    assert not needs_a_person(world)


@pytest.mark.parametrize("verdict", [Verdict.COLLISION, Verdict.INCOMPLETE])
def test_a_key_whose_verdict_is_on_its_inbox_row_is_dismissed_although_the_row_is_there(verdict: Verdict) -> None:
    """A person has undone the surplus effect and deleted its row: the other one stays."""
    world = World(shards=1)
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    record_verdict(world, "billing", verdict, CandidateState.QUARANTINED)
    apply(world)
    assert effects_of(world)["billing"].is_plain
    assert dismiss_with(world, effects_of(world)) == {"billing": "dismissed"}


def _another_message(world: World) -> None:
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1), digest=b"x" * 32)


def _half_an_effect(world: World) -> None:
    world.inbox.rows["billing", key(1)] = replace(world.inbox_row("billing", key(1)), incomplete="4711")


#: What an inbox shows, and what is told of it.
NO_PLAIN_EFFECT: dict[str, tuple[Callable[[World], object], str]] = {
    "another message": (_another_message, "its inbox has a row of it: digest"),
    "incomplete": (_half_an_effect, "whether it took effect is not known: inbox"),
    "away": (lambda world: setattr(world.inbox, "away", True), "whether it took effect is not known: inbox"),
    "no inbox": (lambda world: setattr(world.inbox, "configured", False), "whether it took effect is not known: inbox"),
}


@pytest.mark.parametrize("shown", list(NO_PLAIN_EFFECT))
def test_an_inbox_that_shows_no_plain_effect_stops_no_dismissal_and_is_told(shown: str) -> None:
    make, told = NO_PLAIN_EFFECT[shown]
    world = given_up()
    make(world)
    effects = effects_of(world)
    row = world.candidate(key(1))
    assert row is not None
    assert dismiss_with(world, effects) == {"billing": "dismissed"}
    assert text_of("dismissed", row, effects["billing"]).startswith(told)


def test_two_inboxes_that_have_the_key_stop_no_dismissal() -> None:
    world = given_up()
    row = world.inbox_row("billing", key(1))
    twice = effect_found(Lookup(presence=Presence.FOUND, records=(row, row)), None)
    assert (twice.is_plain, twice.told) == (False, OTHER_ROW(why=DOUBLE_EFFECT(applied=(row.applied_at_ms,) * 2)))
    assert dismiss_with(world, {"billing": twice}) == {"billing": "dismissed"}


def test_a_group_that_was_consumed_does_not_keep_another_one_from_being_dismissed() -> None:
    world = given_up("billing", "shipping")
    record_verdict(world, "billing", Verdict.CONSUMED, CandidateState.SETTLED)
    apply(world)
    effects = effects_of(world)
    assert dismiss_with(world, effects) == {"billing": "SETTLED", "shipping": "dismissed"}
    assert not needs_a_person(world), "the failed repair for every group is closed with the last one"
    row = world.candidate(key(1), "billing")
    assert row is not None
    assert text_of("SETTLED", row, effects["billing"]).startswith("it took effect at")


def test_who_dismisses_once_more_what_took_effect_meanwhile_is_told() -> None:
    world = given_up()
    dismiss(world)
    apply(world)
    row, effects = world.candidate(key(1)), effects_of(world)
    assert row is not None
    assert dismiss_with(world, effects) == {"billing": "SETTLED"}
    assert text_of("SETTLED", row, effects["billing"]).startswith("it was dismissed before, and it took effect at")


def test_an_open_key_is_told_with_what_a_person_can_do() -> None:
    world = World(shards=1)
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="test", reason="test")
    world.lose(1)
    world.rounds(world.process(), 5)
    row = world.candidate(key(1))
    assert row is not None
    told = text_of("OPEN", row, EffectFound())
    assert f"`reconciler hold {TOPIC}` stops its repair before you act by hand" in told
    assert "Under the hold it can be dismissed" in told
    assert "wait for its verdict" in text_of("OPEN", replace(row, verdict=Verdict.LAGGING), EffectFound())
    assert "wait until it is DONE or FAILED" in text_of("repair is SENT", row, EffectFound())
    assert [text_of(outcome, row, EffectFound()) for outcome in ("SETTLED", "changed", "dismissed")] == ["", "", ""]


# ---- taken back


def take_back(world: World, *, group: str | None = None) -> dict[str, str]:
    return dismissals_of(world).take_back(rows_of(world), group=group, by="operator bert", reason="not paid after all")


def test_a_dismissal_that_is_taken_back_sends_nothing_by_itself_and_a_repair_by_hand_does() -> None:
    world = given_up()
    before = world.candidate(key(1))
    dismiss(world)
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    assert take_back(world) == {"billing": "taken back"}
    row = world.candidate(key(1))
    assert before is not None
    assert row is not None
    assert (row.state, row.verdict, row.loss_verdict) == (before.state, before.verdict, before.loss_verdict)
    told = {"dismissal_taken_back_by": "operator bert", "dismissal_taken_back_because": "not paid after all"}
    assert dict(row.evidence) == dict(before.evidence) | told
    assert needs_a_person(world)
    process = world.process()
    world.rounds(process, 60)
    assert (world.broker.ends, world.broker.republished) == ([], [])
    process.keys_by_hand.repair_one(world.subscriptions[0], key(1))
    world.rounds(process, 20)
    assert world.verdict(key(1)) == "CONSUMED"
    assert len(world.broker.copies) == 1
    assert not needs_a_person(world)


def test_two_dismissals_of_one_key_are_taken_back_together() -> None:
    world = given_up("billing", "shipping")
    for group in ("shipping", "billing"):
        dismiss(world, group=group)
    assert take_back(world) == {"billing": "taken back", "shipping": "taken back"}
    rows = rows_of(world)
    assert not any(row.is_dismissed for row in rows.candidates)
    assert not any(row.is_dismissed for row in rows.repairs)


def test_what_was_delivered_meanwhile_is_settled_after_the_dismissal_is_taken_back() -> None:
    """It was not paid by hand: the effect is the only one."""
    world = given_up()
    dismiss(world)
    take_back(world)
    world.inbox.rows["billing", key(1)] = world.inbox_row("billing", key(1))
    world.rounds(world.process(), 30)
    assert world.verdict(key(1)) == "CONSUMED"
    assert not needs_a_person(world)


def test_of_two_groups_the_one_that_stays_dismissed_gets_nothing_from_the_repair_of_the_other() -> None:
    world = given_up("billing", "shipping")
    dismiss(world)
    assert take_back(world, group="shipping") == {"shipping": "taken back"}
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    process = world.process()
    process.keys_by_hand.repair_one(world.subscriptions[1], key(1))
    shipping_alone_gets_it(world, process)


def test_a_dismissal_stands_while_the_repair_of_another_group_is_under_way() -> None:
    world = given_up("billing", "shipping")
    assert dismiss(world, group="billing") == {"billing": "dismissed"}
    failed = world.repair(key(1))
    assert failed is not None
    assert world.ledger.repairs.reopen(failed, rung=Rung.END)
    before = rows_of(world)
    assert take_back(world) == {"billing": "repair is OPEN", "shipping": "not dismissed"}
    assert rows_of(world) == before


def test_a_dismissal_is_not_taken_back_by_who_saw_another_one() -> None:
    world = given_up()
    seen = rows_of(world)
    dismiss(world)
    stale = KeyInLedger(candidates=rows_of(world).candidates, repairs=seen.repairs)
    told = dismissals_of(world).take_back(stale, group=None, by="operator bert", reason="not paid")
    assert told == {"billing": "changed"}
    row = world.candidate(key(1))
    assert row is not None
    assert row.is_dismissed
    assert take_back(given_up()) == {"billing": "not dismissed"}


def test_a_repair_by_hand_of_a_group_that_was_not_judged_yet_is_not_called_done_by_the_dismissal_of_another() -> None:
    """Shipping lagged when billing was dismissed, and the repair for every group was closed with it."""
    world = World(shards=1, groups=("billing", "shipping"))
    record_verdict(world, "billing", Verdict.QUARANTINED, CandidateState.QUARANTINED)
    world.ledger.repairs.open_all(ENVIRONMENT, TOPIC, {key(1): Rung.END})
    row = world.repair(key(1))
    assert row is not None
    assert world.ledger.repairs.claim(row, token="run", lease_seconds=60) is not None
    failed = RepairChange(state=RepairState.FAILED, rung=Rung.END)
    assert world.ledger.repairs.change(row, failed, token="run") is not None
    assert dismiss(world) == {"billing": "dismissed"}
    repair = world.repair(key(1))
    assert repair is not None
    assert repair.is_dismissed
    world.commit_locally(key(1), world.broker.send_half(key(1)))
    world.clock.advance(3_600)
    process = world.process()
    judged, outcome = process.keys_by_hand.repair_one(world.subscriptions[1], key(1))
    assert judged.entry.verdict is Verdict.LOST_CONFIRM
    assert outcome is not None
    assert outcome.outcome != "done"
    shipping_alone_gets_it(world, process)

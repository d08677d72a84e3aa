"""A person gives one message to the replay worker of one group: at most one effect, whatever else brings it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from reconciler.commands.acts import hand_over as by_hand
from reconciler.commands.acts.hand_over import HANDED_OVER, HandOverResult
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ChangedMeanwhile
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.ports.ledger import Repair, RepairChange
from reconciler.policy.repairing.case import RepairStep
from reconciler.policy.repairing.ladder import decide
from reconciler.policy.repairing.repair import WITHDRAWN
from reconciler.policy.repairing.rungs import Act
from reconciler.settings.schema import RepairSettings
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.unit.policy.test_repair_decisions import ABSENT, HALF, OPEN_ROW, case, found
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

DAYS = 86_400


def unapplied(**settings: object) -> tuple[World, str]:
    """A message that its group has acknowledged without an effect."""
    world = World(**settings)  # type: ignore[arg-type]
    sent = world.deliver(1)
    world.consume(effects=False)
    world.clock.advance(60)
    world.rounds(world.process(), 3)
    assert world.verdict(sent) == "DELIVERED_NOT_APPLIED"
    return world, sent


def connections(world: World, *, enabled: bool = True) -> Connections:
    """What a command has: the ledger, the settings' names, the clock."""
    settings = SimpleNamespace(environment=ENVIRONMENT, repairs=RepairSettings(enabled=enabled))
    return cast(Connections, SimpleNamespace(ledger=world.ledger, settings=settings, clock=world.clock))


def hand_over(world: World, unique_key: str, *, dry_run: bool = False, group: int = 0) -> HandOverResult:
    of = world.subscriptions[group]
    return by_hand.hand_over(
        connections(world), world.process(owner="anna").keys_by_hand, of, unique_key, dry_run=dry_run
    )


def cancel(world: World, unique_key: str, *, dry_run: bool = False) -> HandOverResult:
    return by_hand.cancel(connections(world), world.subscriptions[0], unique_key, dry_run=dry_run)


def row(world: World, unique_key: str, scope: str = "billing") -> Repair:
    one = world.repair(unique_key, scope)
    assert one is not None
    return one


def test_a_worker_applies_what_was_handed_over_once_and_the_key_is_settled() -> None:
    world, sent = unapplied()
    planned = hand_over(world, sent, dry_run=True)
    assert (planned.outcome, world.repair(sent, "billing")) == ("planned", None)
    assert "none has taken a row so far" in said(planned.told)
    done = hand_over(world, sent)
    assert (done.verdict, done.outcome) == ("DELIVERED_NOT_APPLIED", "sent")
    message = world.ledger.hand_overs.message_of(row(world, sent))
    assert message is not None
    assert (message.unique_key, message.real_topic, message.body) == (sent, TOPIC, world.broker.copies[-1].body)
    assert world.repair(sent) is None, "nothing is sent to any other group"
    world.run_replay_workers()
    world.clock.advance(3_600)
    world.rounds(world.process(), 12)
    assert (world.verdict(sent), row(world, sent).state) == ("CONSUMED", RepairState.DONE)
    again = hand_over(world, sent)
    assert (again.verdict, again.outcome) == ("CONSUMED", "")
    assert said(again.told) == "nothing is handed over: it is CONSUMED; nothing is sent: the group has the effect"


def test_the_second_of_two_persons_is_told_that_it_waits() -> None:
    world, sent = unapplied()
    first, second = hand_over(world, sent), hand_over(world, sent)
    assert (first.outcome, second.outcome) == ("sent", "waits")
    assert second.told == first.told
    assert row(world, sent).attempts == 0


def test_who_has_run_a_row_before_is_told_with_the_time() -> None:
    world, sent = unapplied()
    taken = replace(row_of(world, 7), state=RepairState.DONE, sent_at_ms=1_764_000_000_000)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", key(7)] = taken
    assert "one last took a row at 2025-11-24" in said(hand_over(world, sent).told)


def row_of(world: World, number: int, **changes: object) -> Repair:
    """A hand-over row of another message."""
    message = replace(world.broker.copies[0], unique_key=key(number), real_topic=TOPIC)
    world.ledger.hand_overs.insert(ENVIRONMENT, message, groups=["billing"])
    return row(world, key(number))


def without_commit(world: World, sent: str) -> None:
    del world.outbox.rows[sent]


def older_than_its_inbox(world: World, sent: str) -> None:
    world.clock.advance(11 * DAYS)


def with_an_effect(world: World, sent: str) -> None:
    world.apply("billing", world.broker.copies[-1])


def with_another_effect(world: World, sent: str) -> None:
    world.inbox.rows["billing", sent] = world.inbox_row("billing", sent, b"another")


def with_a_silent_inbox(world: World, sent: str) -> None:
    world.inbox.away = True


def dismissed(world: World, sent: str) -> None:
    known = world.candidate(sent)
    assert known is not None
    seen = {"dismissed_by": "anna", "dismissed_because": "paid by hand"}
    place = (known.subscription, sent)
    world.ledger.rows.candidates[place] = replace(
        known, state=CandidateState.SETTLED, evidence=dict(known.evidence) | seen
    )


def under_repair(world: World, sent: str) -> None:
    world.ledger.repairs.open(ENVIRONMENT, TOPIC, sent, rung=Rung.END)
    claimed = world.ledger.repairs.claim(row(world, sent, EVERY_GROUP), token="run", lease_seconds=60)
    assert claimed is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    world.ledger.repairs.change(claimed, sending, token="run")


def handed_over_and_ended(world: World, sent: str) -> None:
    hand_over(world, sent)
    ended = replace(row(world, sent), state=RepairState.DONE, done_at_ms=1_764_000_000_000)
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", sent] = ended


def lagging(world: World, sent: str) -> None:
    world.broker.offsets["billing"] = 0


def held(world: World, sent: str) -> None:
    world.ledger.holds.place(ENVIRONMENT, TOPIC, HoldKind.HOLD, by="ben", reason="migration")


@pytest.mark.parametrize(
    ("act", "outcome", "why"),
    [
        (without_commit, "", "it is REJECTED; nothing is sent: no outbox or commit query shows its commit"),
        (older_than_its_inbox, "refused", "older than inbox_keep_days of billing"),
        (with_an_effect, "", "it is CONSUMED"),
        (with_another_effect, "refused", "it is COLLISION; nothing is sent, not by hand either"),
        (with_a_silent_inbox, "refused", "it is UNKNOWN; nothing is sent until it is decided"),
        (dismissed, "refused", "--take-back` comes first"),
        (under_repair, "refused", "the repair for every group is SENDING by end"),
        (handed_over_and_ended, "refused", "it was handed over before, and ended at 2025-11-24"),
        (lagging, "refused", "it is LAGGING; nothing is sent: the broker delivers it"),
        (held, "held", "while repairs of ORDERS are stopped (HOLD)"),
    ],
)
def test_nothing_is_handed_over_and_the_reason_is_told(
    act: Callable[[World, str], None], outcome: str, why: str
) -> None:
    world, sent = unapplied(inbox_keep_seconds={"billing": 10.0 * DAYS})
    act(world, sent)
    before = dict(world.ledger.rows.repairs)
    for dry_run in (True, False):
        done = hand_over(world, sent, dry_run=dry_run)
        assert done.outcome == outcome
        assert why in said(done.told)
        assert said(done.told).startswith("nothing is handed over")
    assert {place: one.state for place, one in world.ledger.rows.repairs.items()} == {
        place: one.state for place, one in before.items()
    }


def test_a_hand_over_takes_nothing_that_its_own_verdict_forbids() -> None:
    assert {Verdict.DELIVERED_NOT_APPLIED, Verdict.DEAD_LETTERED, Verdict.QUARANTINED} == HANDED_OVER


def test_a_key_that_is_dismissed_while_its_evidence_is_read_is_not_handed_over() -> None:
    world, sent = unapplied()
    keys = world.process(owner="anna").keys_by_hand
    ask = keys.to_hand_over

    def dismiss_meanwhile(*args: object, **named: object) -> object:
        answer = ask(*args, **named)  # type: ignore[arg-type]
        dismissed(world, sent)
        return answer

    keys.to_hand_over = dismiss_meanwhile  # type: ignore[method-assign,assignment]
    with pytest.raises(ChangedMeanwhile):
        by_hand.hand_over(connections(world), keys, world.subscriptions[0], sent, dry_run=False)
    assert world.repair(sent, "billing") is None


def test_what_waits_is_taken_back_and_may_be_handed_over_again() -> None:
    world, sent = unapplied()
    hand_over(world, sent)
    assert cancel(world, sent, dry_run=True).outcome == "planned"
    done = cancel(world, sent)
    assert (done.outcome, world.repair(sent, "billing")) == ("cancelled", None)
    world.run_replay_workers()
    assert not world.inbox.rows
    told = cancel(world, sent)
    assert (told.outcome, said(told.told)) == (
        "refused",
        "nothing is taken back: nothing of it waits for a replay worker",
    )
    assert hand_over(world, sent).outcome == "sent"


def test_what_a_worker_has_is_not_taken_back() -> None:
    world, sent = unapplied()
    hand_over(world, sent)
    claimed = world.ledger.repairs.claim(row(world, sent), token="worker", lease_seconds=60)
    assert claimed is not None
    assert "a replay worker took it at" in said(cancel(world, sent).told)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    assert world.ledger.repairs.change(claimed, sending, token="worker") is not None
    world.clock.advance(120)  # its claim has run out, and it may be in its handler still
    assert "may have taken effect" in said(cancel(world, sent).told)
    assert "may have taken effect" in said(hand_over(world, sent).told)


def test_what_the_workers_have_given_up_is_handed_over_again() -> None:
    world, sent = unapplied()
    hand_over(world, sent)
    failed = replace(row(world, sent), state=RepairState.FAILED, attempts=16, answer="ValueError: no price")
    world.ledger.rows.repairs[ENVIRONMENT, TOPIC, "billing", sent] = failed
    assert "ValueError: no price" in said(cancel(world, sent).told)
    assert hand_over(world, sent).outcome == "sent"
    assert (row(world, sent).state, row(world, sent).attempts) == (RepairState.OPEN, 0)


def test_what_no_worker_has_run_is_withdrawn_once_the_effect_came_another_way() -> None:
    """The group's offset was set back, say. A worker that is started when the inbox row is gone must find nothing."""
    world, sent = unapplied()
    hand_over(world, sent)
    with_an_effect(world, sent)
    world.clock.advance(3_600)
    world.rounds(world.process(), 12)
    assert (world.verdict(sent), row(world, sent).state) == ("CONSUMED", RepairState.DONE)
    assert row(world, sent).answer_fact == WITHDRAWN
    world.inbox.rows.clear()
    world.run_replay_workers()
    assert not world.inbox.rows


def test_a_repair_of_every_group_sends_no_copy_of_a_former_name_while_a_worker_has_the_message() -> None:
    """A plug-in of 0.2.0 takes the copy and the hand-over for two messages: no digits, no common name."""
    known = replace(
        case(rung=Rung.REPUBLISH, copies=ABSENT, halves=found(HALF), hand_overs=None),
        unique_key="a-key-of-a-client-in-go",
    )
    assert decide(known) is Question.HAND_OVERS
    waiting = replace(OPEN_ROW, scope="billing", rung=Rung.HAND_OVER)
    decided = decide(replace(known, hand_overs=[waiting]))
    assert isinstance(decided, RepairStep)
    assert (decided.act, said(decided.reason)) == (Act.WRITE, "waits for the replay workers")
    sent = decide(replace(known, hand_overs=[replace(waiting, state=RepairState.DONE)]))
    assert isinstance(sent, RepairStep)
    assert sent.act is Act.REPUBLISH

"""What cannot be read is UNKNOWN for a while and then a person's: never an absence, and never for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.commands.run import each_of
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.policy.evidence import Lookup, Presence, WitnessAnswer
from reconciler.policy.inquiry.case_file import Question
from reconciler.policy.judging.judgement import DAMAGED_LOOKS_MAX
from reconciler.policy.judging.selection import is_closed, is_followed
from reconciler.policy.judging.suspect import DAMAGED_LOOKS
from reconciler.policy.ports.ledger import Candidate
from reconciler.policy.repairing.case import DAMAGED_SECONDS_MAX
from reconciler.policy.repairing.ladder import decide
from reconciler.policy.repairing.rungs import Act
from reconciler.policy.round_tally import MISSHAPEN, RoundTally
from reconciler.words import said
from tests.unit.policy.test_repair_decisions import ABSENT, NOW, OPEN_ROW, case, decided
from tests.unit.policy.world import World

WHAT = "reconciler_outbox.state is 'ODD'"


def damaged(*others: WitnessAnswer) -> Lookup[Any]:
    answer = WitnessAnswer(witness="outbox", presence=Presence.UNKNOWN, detail=WHAT, is_damaged=True)
    return Lookup(presence=Presence.UNKNOWN, answers=(answer, *others))


AWAY = WitnessAnswer(witness="another outbox", presence=Presence.UNKNOWN, detail="timed out")


class Readings:
    """An outbox that says the same of one key and the truth of all others."""

    def __init__(self, outbox: Any, key: str, answer: Lookup[Any]) -> None:
        self.outbox, self.key, self.answer = outbox, key, answer

    def look_up(self, topic: str, keys: Any, *, now_ms: int | None = None) -> Any:
        return {
            **self.outbox.look_up(topic, keys, now_ms=now_ms),
            **({self.key: self.answer} if self.key in keys else {}),
        }


def run(answer: Lookup[Any], rounds: int) -> tuple[World, str, str]:
    """A damaged and a lost message, and rounds of five seconds."""
    world = World()
    broken, lost = world.lose(1), world.lose(2)
    world.outbox = Readings(world.outbox, broken, answer)  # type: ignore[assignment]  # in its place
    world.rounds(world.process(), rounds, every=61.0)
    return world, broken, lost


def test_a_damaged_outbox_row_is_unknown_then_quarantined_and_stops_no_other_loss() -> None:
    world, broken, lost = run(damaged(), DAMAGED_LOOKS_MAX - 1)
    candidate = world.candidate(broken)
    assert candidate is not None
    assert (candidate.verdict, candidate.state) == (Verdict.UNKNOWN, CandidateState.OPEN)
    assert candidate.evidence[DAMAGED_LOOKS] == candidate.attempts
    assert world.repair(broken) is None
    assert world.repair(lost) is not None
    world, broken, _ = run(damaged(), DAMAGED_LOOKS_MAX + 5)
    candidate = world.candidate(broken)
    assert candidate is not None
    assert (candidate.verdict, candidate.state) == (Verdict.QUARANTINED, CandidateState.QUARANTINED)
    assert WHAT in str(candidate.evidence["reason"])
    assert broken not in world.pending()


def test_a_damaged_key_whose_effect_is_there_is_not_taken_back_for_ever() -> None:
    """Its inbox row is no news: it would be found each minute, and the damage again."""
    world = World()
    broken = world.deliver(1)
    world.consume(records=False)
    world.outbox = Readings(world.outbox, broken, damaged())  # type: ignore[assignment]  # in its place
    process = world.process()
    world.rounds(process, DAMAGED_LOOKS_MAX + 5, every=61.0)
    before = world.candidate(broken)
    assert before is not None
    assert before.state is CandidateState.QUARANTINED
    world.rounds(process, 5, every=61.0)
    assert world.candidate(broken) == before


def test_a_witness_that_is_away_beside_the_damage_may_know_better() -> None:
    world, broken, _ = run(damaged(AWAY), DAMAGED_LOOKS_MAX + 5)
    assert world.verdict(broken) == Verdict.UNKNOWN
    assert damaged(AWAY).damage is None


def test_damage_of_one_witness_hides_no_row_of_another() -> None:
    found = replace(damaged(), presence=Presence.FOUND, records=(object(),))
    assert found.damage is None


def test_damage_beside_a_copy_of_another_message_is_the_reason_of_the_key() -> None:
    world = World()
    broken = world.lose(1)
    theirs = replace(world.broker.halves[0], topic="ORDERS", body=b"theirs")
    answer = WitnessAnswer(
        witness="broker-a", presence=Presence.FOUND, detail=WHAT, is_damaged=True, is_partial=True
    )  # fmt: skip
    found = Lookup(presence=Presence.FOUND, records=(theirs,), answers=(answer,))
    world.broker.committed_copies = lambda *_, **__: lambda: found  # type: ignore[method-assign]
    world.rounds(world.process(), DAMAGED_LOOKS_MAX + 5, every=120.0)
    candidate = world.candidate(broken)
    assert candidate is not None
    assert candidate.verdict is Verdict.QUARANTINED
    assert WHAT in str(candidate.evidence["reason"])


def test_looks_at_damage_count_only_in_a_row() -> None:
    world = World()
    broken = world.lose(1)
    truth = world.outbox
    for answer in (damaged(), damaged(), Lookup.unknown("outbox", "away"), damaged()):
        world.outbox = Readings(truth, broken, answer)  # type: ignore[assignment]  # in its place
        world.rounds(world.process(), 1, every=120.0)
    candidate = world.candidate(broken)
    assert candidate is not None
    assert candidate.evidence[DAMAGED_LOOKS] == 1


def test_a_repair_that_was_not_sent_does_not_wait_for_damage_for_ever() -> None:
    young = case(outbox=damaged())
    assert decided(young).state is RepairState.OPEN
    old = case(outbox=damaged(), now_ms=OPEN_ROW.created_at_ms + round(DAMAGED_SECONDS_MAX * 1000))
    assert decided(old).state is RepairState.FAILED
    assert WHAT in said(decided(old).reason)
    away = case(outbox=damaged(AWAY), now_ms=old.now_ms)
    assert (decided(away).state, decided(away).act) == (RepairState.OPEN, Act.WRITE)
    assert decide(case(copies=None, now_ms=NOW)) is Question.COMMITTED_COPIES
    assert ABSENT.damage is None


def test_a_member_of_pending_that_is_no_key_leaves_it_and_is_told() -> None:
    world = World()
    lost = world.lose(1)
    subscription = world.topic.subscriptions[0].subscription
    odd = {"AB" * 40, "AB", ""}
    world.shards._memory(Shard(subscription=subscription, number=0)).half.update(odd)
    process = world.process()
    reports = [world.rounds(process, 1)[0] for _ in range(12)]
    assert world.repair(lost) is not None
    assert not odd & set(world.pending())
    told = [problem for report in reports if report.event is not None for problem in report.event.problems]
    assert MISSHAPEN.name in [problem.code.name for problem in told]
    assert all(world.candidate(one) is None for one in odd)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_ledger_row_that_nobody_can_read_closes_nothing(is_damaged: bool) -> None:
    world = World()
    lost = world.lose(1)
    known = Candidate(
        subscription=world.subscriptions[0],
        unique_key=lost,
        shard=0,
        state=CandidateState.SETTLED,
        verdict=Verdict.CONSUMED,
        loss_verdict=None,
        evidence={},
        attempts=1,
        first_seen_ms=0,
        next_at_ms=0,
        updated_at_ms=0,
        damage="reconciler_candidate.state is 'ODD'" if is_damaged else None,
    )
    assert is_closed(known, world.topic.subscriptions[0], skew_margin_seconds=0.5) is not is_damaged
    still_open = replace(known, state=CandidateState.OPEN)
    assert is_followed(still_open, 1) is not is_damaged


def test_a_key_behind_the_shut_gate_that_is_none_is_left_out_of_the_trickle() -> None:
    world = World()
    lost = world.lose(1)
    world.shards._memory(Shard(subscription=world.subscriptions[0], number=0)).half.add("AB")
    process = world.process()
    world.broker.watermark_known = False
    for _ in range(12):
        world.rounds(process, 1, consume=False)
    assert "AB" not in world.pending()
    assert lost in world.pending()


def test_an_error_that_nobody_expects_in_a_page_stops_no_other_page_and_is_raised_at_last() -> None:
    looked = RoundTally(announced=0)
    done = []
    for page in range(3):
        with looked.beyond_bugs():
            if page < 2:
                raise ValueError(page)
            done.append(page)
    with pytest.raises(DatabaseAway), looked.beyond_bugs():
        raise DatabaseAway("the ledger")
    assert done == [2]
    with pytest.raises(ValueError, match="0"):
        looked.raise_failure()
    RoundTally(announced=0).raise_failure()


def test_a_bug_in_one_subscription_stops_none_that_follows() -> None:
    subscriptions = [Subscription(environment="test", topic="ORDERS", group=name) for name in ("a", "b", "c")]
    ran: list[str] = []

    def turn(subscription: Subscription) -> None:
        ran.append(subscription.group)
        if subscription.group == "a":
            raise ValueError("a damaged value that nobody thought of")

    with pytest.raises(ValueError, match="nobody thought of"):
        each_of(subscriptions, turn)
    assert ran == ["a", "b", "c"]
    for error in (DatabaseAway("away"), ConfigurationError("another number of shards")):
        ran.clear()

        def away(subscription: Subscription, error: Exception = error) -> None:
            ran.append(subscription.group)
            raise error

        with pytest.raises(type(error)):
            each_of(subscriptions, away)
        assert ran == ["a"]

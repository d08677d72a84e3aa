"""Brokers are asked about several keys at once: what is decided, written and braked does not depend on it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconciler.contract.content_digest import digest_of_message
from reconciler.contract.tables import EVERY_GROUP, RepairState
from reconciler.contract.verdicts import Verdict
from reconciler.policy import evidence
from reconciler.policy.events import RepairStepped
from reconciler.policy.evidence import EndOutcome, Recorded, SendAnswer, StoredMessage
from reconciler.policy.ports.asked import Asked
from reconciler.policy.ports.workers import OneByOne
from reconciler.policy.repairing.repair import RepairRules
from reconciler.wiring.workers import ThreadWorkers, workers_of
from tests.unit.policy.world import ENVIRONMENT, TOPIC, World, key

KEYS = 20


def world_of(rules: RepairRules | None = None) -> World:
    """KEYS losses that were due."""
    world = World(repair=rules)
    lose_and_repair(world)
    return world


def lose_and_repair(world: World) -> None:
    """KEYS losses, a round that sees them and one for which they are due."""
    for number in range(KEYS):
        world.lose(number)
    process = world.process()
    process.run(world.subscriptions[0])
    world.clock.advance(60)
    process.run(world.subscriptions[0])


def states(world: World) -> list[RepairState]:
    rows = world.ledger.repairs.of_keys(ENVIRONMENT, TOPIC, [key(n) for n in range(KEYS)])
    return [next(row.state for row in rows[key(n)] if row.scope == EVERY_GROUP) for n in range(KEYS)]


def test_every_loss_is_found_and_ended_once() -> None:
    world = world_of()
    rows = world.ledger.candidates.of_keys(world.subscriptions[0], [key(n) for n in range(KEYS)])
    assert {row.loss_verdict for row in rows.values()} == {Verdict.LOST_CONFIRM}
    assert states(world) == [RepairState.SENT] * KEYS
    assert len({offset for _, offset, _ in world.broker.ends}) == len(world.broker.ends) == KEYS


def test_rows_are_written_in_the_order_of_the_keys() -> None:
    stepped = world_of().events.of(RepairStepped)
    for state in (RepairState.SENDING, RepairState.SENT):
        assert [event.unique_key for event in stepped if event.after is state] == [key(n) for n in range(KEYS)]


def test_the_body_of_a_half_is_digested_once_until_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[str] = []

    def digest(*, unique_key: str, **content: Any) -> bytes:
        digested.append(unique_key)
        return digest_of_message(unique_key=unique_key, **content)

    monkeypatch.setattr(evidence, "digest_of_message", digest)
    world = world_of()
    assert len(world.broker.ends) == KEYS
    assert sorted(digested) == [key(n) for n in range(KEYS)]


def test_an_attempt_of_each_is_written_down_before_the_first_of_them_is_sent() -> None:
    world = World()
    seen: list[int] = []
    world.broker.on_end = lambda _half: seen.append(states(world).count(RepairState.SENDING))
    lose_and_repair(world)
    assert seen == [KEYS] * KEYS


def test_a_broker_so_slow_that_the_claims_could_run_out_gets_no_end_any_more() -> None:
    """Else two owners send: the next one finds no copy, because the first has not sent yet."""
    world = World()
    world.broker.on_end = lambda _half: world.clock.advance(3)
    lose_and_repair(world)
    # Claims last for 20 seconds: those that begin in the first half of it.
    assert len(world.broker.ends) == 4
    assert (states(world).count(RepairState.SENT), states(world).count(RepairState.OPEN)) == (4, KEYS - 4)
    world.broker.on_end = lambda _half: None
    world.rounds(world.process(), 12)
    assert states(world) == [RepairState.DONE] * KEYS
    assert len({offset for _, offset, _ in world.broker.ends}) == len(world.broker.ends) == KEYS


@pytest.mark.parametrize("is_ledger", [False, True], ids=["look-ups", "the claims themselves"])
def test_what_is_so_slow_that_the_claims_could_run_out_begins_no_send(
    is_ledger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else rows would say SENDING of what another owner may send."""
    world = World()
    port: Any = world.ledger.repairs if is_ledger else world.broker
    name = "claim_all" if is_ledger else "committed_copies"
    asked = getattr(port, name)

    def slow(*given: object, **named: object) -> object:
        answer = asked(*given, **named)
        world.clock.advance(11 if is_ledger else 1)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(port, name, slow)
        lose_and_repair(world)
    assert world.broker.ends == []
    assert states(world) == [RepairState.OPEN] * KEYS
    assert [event for event in world.events.of(RepairStepped) if event.after is RepairState.SENDING] == []
    world.rounds(world.process(), 12)
    assert states(world) == [RepairState.DONE] * KEYS
    assert len(world.broker.ends) == KEYS


def test_the_rate_limit_lets_no_more_through_because_they_are_sent_together() -> None:
    rules = RepairRules(rate_per_second=0.001, burst=5, verify_after_seconds=4.0, claim_lease_seconds=20.0)
    world = world_of(rules)
    assert len(world.broker.ends) == 5
    assert states(world).count(RepairState.SENT) == 5


def test_every_half_is_read_again_before_the_first_end_is_sent() -> None:
    world = World()
    read, seen = world.broker.end_transaction, []
    begun: list[object] = []

    def begin(half: StoredMessage, *, expected: Recorded, commit: bool) -> Asked[Asked[SendAnswer]]:
        begun.append(half)
        return read(half, expected=expected, commit=commit)

    world.broker.on_end = lambda _half: seen.append(len(begun))
    world.broker.end_transaction = begin  # type: ignore[method-assign]  # a probe
    lose_and_repair(world)
    assert seen == [KEYS] * KEYS


def test_a_broker_that_refuses_one_key_holds_up_no_other() -> None:
    world = World()
    world.broker.scripted = [SendAnswer(outcome=EndOutcome.REFUSED_FOR_NOW, code=2, detail="busy")]
    lose_and_repair(world)
    assert (states(world).count(RepairState.SENT), states(world).count(RepairState.OPEN)) == (KEYS - 1, 1)


# ---- threads


def test_threads_work_at_the_same_time_and_answer_in_the_order_asked() -> None:
    workers, together = ThreadWorkers(4), threading.Barrier(4, timeout=20)

    def meet(number: int) -> int:
        together.wait()
        return number * 10

    assert workers.map(meet, range(8)) == [n * 10 for n in range(8)]
    workers.close()


def test_a_call_that_fails_is_told_only_after_all_others_have_ended() -> None:
    workers, ended = ThreadWorkers(3), []

    def work(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        workers.map(work, range(6))
    assert sorted(ended) == [0, 2, 3, 4, 5]
    workers.close()


def test_rounds_of_several_topics_share_the_threads_without_waiting_for_each_other_for_ever() -> None:
    workers = ThreadWorkers(2)
    with ThreadPoolExecutor(8) as topics:
        answers = [topics.submit(workers.map, abs, range(-50, 0)) for _ in range(8)]
        assert all(answer.result(timeout=60) == list(range(50, 0, -1)) for answer in answers)
    workers.close()


def test_a_concurrency_of_one_needs_no_thread() -> None:
    assert isinstance(workers_of(1), OneByOne)

"""A group that pops has been handed what lies before its offset, and nothing tells whether it was acknowledged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState, RepairState
from reconciler.evidence.watermark import CONSUMED
from reconciler.policy.evidence import ConsumeMode, Watermark, WatermarkState
from reconciler.policy.judging.selection import SelectionRules, gate_of
from tests.unit.policy.judging import judged, reason
from tests.unit.policy.world import World, key


def handed_out(consume_mode: ConsumeMode = ConsumeMode.POP) -> World:
    world = World(shards=1)
    world.broker.consumes = consume_mode
    world.deliver(1)
    world.consume(effects=False)
    return world


@pytest.mark.set_up("a group that pops (5.x: POP, every gRPC consumer), with an inbox")
@pytest.mark.parametrize(
    ("consume_mode", "why"),
    [(ConsumeMode.POP, "only an effect decides"), (ConsumeMode.UNKNOWN, "whether the group pulls or pops")],
)
def test_a_message_that_is_invisible_is_not_called_acknowledged(consume_mode: ConsumeMode, why: str) -> None:
    world = handed_out(consume_mode)
    world.rounds(world.process(), 6)
    row = world.candidate(key(1))
    assert row is not None
    assert (row.verdict, row.state) == ("UNKNOWN", CandidateState.OPEN)
    assert why in str(row.evidence["reason"])
    assert world.repair(key(1)) is None


def test_its_effect_settles_it() -> None:
    world = handed_out()
    process = world.process()
    world.rounds(process, 3)
    world.inbox.later.append((1, world.inbox_row("billing", key(1))))
    world.rounds(process, 6)
    assert world.verdict(key(1)) == "CONSUMED"
    assert world.repair(key(1)) is None


def test_a_message_that_waits_in_the_retry_topic_of_pop_is_retrying() -> None:
    world = handed_out()
    copy = replace(world.broker.copies[0], queue_offset=5)
    world.broker.in_group_topic("billing", "retry", copy, topic="%RETRY%billing")
    assert judged(world, key(1)).verdict == "RETRYING"


def test_a_retry_that_was_handed_out_is_in_doubt_again() -> None:
    world = handed_out()
    world.broker.in_group_topic(
        "billing", "retry", replace(world.broker.copies[0], queue_offset=0), topic="%RETRY%billing"
    )
    found = judged(world, key(1))
    assert found.verdict == "UNKNOWN"
    assert "only an effect decides" in reason(found)


def test_a_dead_letter_is_one_however_the_group_consumes() -> None:
    world = handed_out()
    world.broker.in_group_topic("billing", "dead-letter", world.broker.copies[0], topic="%DLQ%billing")
    assert judged(world, key(1)).verdict == "DEAD_LETTERED"


def test_a_lost_message_is_repaired_once_and_its_copy_is_waited_for_while_it_is_invisible() -> None:
    """A group that pulled would be past the copy without an effect, which leads to the next rung."""
    world = World(shards=1)
    world.broker.consumes = ConsumeMode.POP
    lost = world.lose(1)
    process = world.process()
    world.rounds(process, 8, consume=False)
    world.consume(effects=False)
    world.rounds(process, 40, consume=False)
    row = world.repair(lost)
    assert row is not None
    assert (row.state, row.attempts, len(world.broker.ends)) == (RepairState.SENT, 1, 1)
    assert (world.broker.republished, len(world.broker.copies)) == ([], 1)
    world.apply("billing", world.broker.copies[0])
    world.rounds(process, 40, consume=False)
    done = world.repair(lost)
    assert done is not None
    assert (done.state, world.verdict(lost)) == (RepairState.DONE, "CONSUMED")


def test_what_was_handed_out_opens_the_gate_as_what_was_consumed_does() -> None:
    """Else lost messages of such a group were found by the trickle alone."""
    world = World()
    plan = world.topic.subscriptions[0]
    now_ms = world.clock.now_ms()
    rules = SelectionRules()
    reached = Watermark(state=WatermarkState.REACHED, at_ms=now_ms, detail=CONSUMED())
    assert gate_of(now_ms, reached, plan=plan, rules=rules) == gate_of(
        now_ms, replace(reached, state=WatermarkState.KNOWN), plan=plan, rules=rules
    )


@pytest.mark.set_up("a group that pops, without an inbox")
def test_without_an_inbox_nothing_that_was_handed_out_is_called_delivered() -> None:
    world = handed_out()
    world.inbox.configured = False
    found = judged(world, key(1))
    assert found.verdict == "UNKNOWN"
    assert "without an inbox there is none to be seen" in reason(found)

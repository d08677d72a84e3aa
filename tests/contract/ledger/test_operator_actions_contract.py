"""ports.OperatorActions and what reports show of it, on every backend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.row_rules import TEXT_CHARACTERS
from reconciler.telling.ports.actions import Intent, OperatorAction
from reconciler.telling.ports.paging import LedgerFilter
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import key

RESUME = Intent(by="operator anna", command="resume", topic="ORDERS", detail="--breaker")
REPAIR = Intent(by="operator ben", command="repair", topic="ORDERS", group="billing", unique_key=key(1))
REBUILD = Intent(by="operator anna", command="rebuild")


def shown(world: World, only: LedgerFilter | None = None, *, limit: int = 9) -> list[OperatorAction]:
    return list(world.ledger.reports.actions(world.environment, only=only or LedgerFilter(), limit=limit).rows)


def test_a_process_that_dies_in_the_act_leaves_who_began_what(world: World) -> None:
    at_ms = world.clock.now_ms()
    action_id = world.ledger.actions.begin(world.environment, RESUME)
    assert shown(world) == [OperatorAction(action_id=action_id, intent=RESUME, started_at_ms=at_ms)]


def test_an_act_has_its_end_and_no_other_gets_it(world: World) -> None:
    at_ms = world.clock.now_ms()
    first = world.ledger.actions.begin(world.environment, RESUME)
    world.clock.advance(1)
    second = world.ledger.actions.begin(world.environment, REPAIR)
    world.clock.advance(1)
    world.ledger.actions.end(first, "lifted BREAKER")
    begun = OperatorAction(action_id=second, intent=REPAIR, started_at_ms=at_ms + 1_000)
    ended = OperatorAction(
        action_id=first, intent=RESUME, started_at_ms=at_ms, ended_at_ms=at_ms + 2_000, result="lifted BREAKER"
    )
    assert shown(world) == [begun, ended], "the newest first"
    assert shown(world, limit=1) == [begun]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (LedgerFilter(), ["rebuild", "repair", "resume"]),
        (LedgerFilter(topic="ORDERS"), ["repair", "resume"]),
        (LedgerFilter(topic="ORDERS", group="billing"), ["repair"]),
        (LedgerFilter(topic="orders"), []),
        (LedgerFilter(command="resume"), ["resume"]),
        (LedgerFilter(unique_keys=(str(REPAIR.unique_key),)), ["repair"]),
    ],
)
def test_acts_are_shown_by_topic_and_group(world: World, only: LedgerFilter, expected: list[str]) -> None:
    for intent in (RESUME, REPAIR, REBUILD):
        world.ledger.actions.begin(world.environment, intent)
        world.clock.advance(1)
    world.ledger.actions.begin("another", REBUILD)
    assert [action.intent.command for action in shown(world, only)] == expected


def test_the_life_of_a_key_has_what_was_done_to_it_by_hand(world: World) -> None:
    dismiss = replace(REPAIR, command="dismiss", group=None, detail="refunded")
    for intent in (REPAIR, RESUME, dismiss, replace(REPAIR, unique_key=key(2))):
        world.ledger.actions.begin(world.environment, intent)
        world.clock.advance(1)
    world.ledger.actions.begin("another", REPAIR)
    life = world.ledger.reports.life(world.environment, key(1))
    assert [action.intent for action in life.actions] == [REPAIR, dismiss]


def test_words_that_a_database_refuses_do_not_keep_an_act_from_being_done(world: World) -> None:
    hostile = replace(RESUME, by="nul\x00" + "x" * 200, detail="lone \ud800" + "y" * TEXT_CHARACTERS)
    world.ledger.actions.end(world.ledger.actions.begin(world.environment, hostile), "nul\x00" + "z" * TEXT_CHARACTERS)
    (action,) = shown(world)
    assert action.intent.by == "nul\ufffd" + "x" * 156
    assert action.intent.detail == "lone ?" + "y" * (TEXT_CHARACTERS - 6)
    assert action.result == "nul\ufffd" + "z" * (TEXT_CHARACTERS - 4)

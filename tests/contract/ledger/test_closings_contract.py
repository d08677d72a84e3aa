"""ports.Closings on every backend: a person ends the work on a key, if it is still what that person saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reconciler.contract.kept_facts import DISMISSAL_TAKEN_BACK, REPAIR_DISMISSED
from reconciler.contract.tables import EVERY_GROUP, CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.closing import Closing, KeyAsRead, seen_of
from reconciler.policy.ports.ledger import Candidate, Repair, RepairChange
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import entry, key, message, shard

GROUPS = ("billing", "shipping")
ANSWER = REPAIR_DISMISSED(by="anna", reason="paid by hand")
TEXT = "dismissed by anna: paid by hand"
SETTLED, QUARANTINED = CandidateState.SETTLED, CandidateState.QUARANTINED


def given_up(world: World) -> None:
    """Both groups lack the effect of a message whose repair has failed, billing's hand-over too."""
    for group in GROUPS:
        world.ledger.candidates.record(
            shard(world.environment, group=group), [entry(1, Verdict.QUARANTINED, QUARANTINED)]
        )
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.HAND_OVER)
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["billing"])
    for row in repairs_of(world).values():
        fail(world, row)


def fail(world: World, row: Repair) -> None:
    claimed = world.ledger.repairs.claim(row, token="t", lease_seconds=60)
    assert claimed is not None
    failed = RepairChange(state=RepairState.FAILED, rung=row.rung, answer="refused")
    assert world.ledger.repairs.change(claimed, failed, token="t") is not None


def candidates_of(world: World) -> list[Candidate]:
    rows = world.ledger.reports.life(world.environment, key(1)).candidates
    return [row for row in rows if row.subscription.topic == "ORDERS"]


def repairs_of(world: World) -> dict[str, Repair]:
    found = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)]).get(key(1), ())
    return {row.scope: row for row in found}


def closing_of(world: World, *scopes: str) -> Closing:
    """Of both groups, as they are now."""
    rows = candidates_of(world)
    return Closing(
        environment=world.environment,
        topic="ORDERS",
        unique_key=key(1),
        candidates=rows,
        repairs=list(repairs_of(world).values()),
        verdicts={row.subscription: entry(1, Verdict.QUARANTINED, SETTLED) for row in rows},
        scopes=frozenset(scopes),
        answer=ANSWER,
    )


def test_all_rows_of_a_key_are_closed_together_and_its_message_goes(world: World) -> None:
    given_up(world)
    world.clock.advance(1)
    assert world.ledger.closings.close(closing_of(world, EVERY_GROUP, "billing"))
    assert {row.state for row in candidates_of(world)} == {SETTLED}
    rows = repairs_of(world)
    assert {row.scope: (row.state, row.answer) for row in rows.values()} == {
        EVERY_GROUP: (RepairState.DONE, TEXT),
        "billing": (RepairState.DONE, TEXT),
    }
    assert rows["billing"].done_at_ms == world.clock.now_ms()
    assert world.ledger.hand_overs.message_of(rows["billing"]) is None


def test_nothing_is_begun_for_a_closed_scope_that_had_no_repair(world: World) -> None:
    """Neither a verdict that was on its way nor a person opens one later, and a replay worker finds nothing."""
    given_up(world)
    assert world.ledger.closings.close(closing_of(world, EVERY_GROUP, "shipping"))
    world.ledger.repairs.open_all(world.environment, "ORDERS", {key(1): Rung.END})
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["shipping"])
    rows = repairs_of(world)
    assert {scope: rows[scope].state for scope in (EVERY_GROUP, "shipping")} == {
        EVERY_GROUP: RepairState.DONE,
        "shipping": RepairState.DONE,
    }
    repairs = world.ledger.repairs
    assert repairs.claimable(world.environment, "ORDERS", scope="shipping", limit=9) == []
    assert repairs.claim(rows["shipping"], token="worker", lease_seconds=60) is None
    assert not repairs.reopen(rows["shipping"], rung=Rung.HAND_OVER)
    assert world.ledger.hand_overs.message_of(rows["shipping"]) is None


def dismissed(world: World) -> None:
    """Both groups, and every repair there is or might be."""
    given_up(world)
    world.clock.advance(1)
    assert world.ledger.closings.close(closing_of(world, EVERY_GROUP, *GROUPS))


def taking_back(world: World, *groups: str) -> Closing:
    """As the rows are now."""
    closing = closing_of(world, EVERY_GROUP, *groups)
    verdicts = {
        of: entry(1, Verdict.QUARANTINED, QUARANTINED, ask_again_seconds=60.0)
        for of in closing.verdicts
        if of.group in groups
    }
    return replace(closing, verdicts=verdicts, answer=DISMISSAL_TAKEN_BACK(by="ann", reason="no"))


def test_a_dismissal_that_is_taken_back_leaves_what_was_there_before_it(world: World) -> None:
    dismissed(world)
    world.clock.advance(5)
    assert world.ledger.closings.take_back(taking_back(world, *GROUPS))
    assert {row.state for row in candidates_of(world)} == {QUARANTINED}
    assert {row.ask_again_at_ms for row in candidates_of(world)} == {world.clock.now_ms() + 60_000}
    rows = repairs_of(world)
    assert {row.scope: (row.state, row.answer, row.done_at_ms) for row in rows.values()} == {
        EVERY_GROUP: (RepairState.FAILED, "the dismissal was taken back by ann: no", None),
        "billing": (RepairState.FAILED, "the dismissal was taken back by ann: no", None),
    }, "shipping had none, and may be handed the message again"
    world.ledger.hand_overs.insert(world.environment, message(1), groups=list(GROUPS))
    assert {repairs_of(world)[group].state for group in GROUPS} == {RepairState.OPEN}
    assert not world.ledger.closings.take_back(taking_back(world, *GROUPS)), "dismissed no more"


def test_of_one_group_the_dismissal_is_taken_back_and_the_other_one_stays_dismissed(world: World) -> None:
    dismissed(world)
    assert world.ledger.closings.take_back(taking_back(world, "billing"))
    states = {row.subscription.group: row.state for row in candidates_of(world)}
    assert states == {"billing": QUARANTINED, "shipping": SETTLED}
    rows = repairs_of(world)
    assert {scope: row.is_dismissed for scope, row in rows.items()} == {
        EVERY_GROUP: False,
        "billing": False,
        "shipping": True,
    }


def test_a_dismissal_is_not_taken_back_once_something_else_has_happened(world: World) -> None:
    dismissed(world)
    seen = taking_back(world, *GROUPS)
    assert world.ledger.closings.take_back(taking_back(world, "billing"))
    before = candidates_of(world), repairs_of(world)
    assert not world.ledger.closings.take_back(seen)
    assert (candidates_of(world), repairs_of(world)) == before


def reopen_repair(world: World) -> None:
    assert world.ledger.repairs.reopen(repairs_of(world)[EVERY_GROUP], rung=Rung.END)


def send(world: World) -> None:
    reopen_repair(world)
    row = world.ledger.repairs.claim(repairs_of(world)[EVERY_GROUP], token="run", lease_seconds=60)
    assert row is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    assert world.ledger.repairs.change(row, sending, token="run") is not None


def send_and_fail(world: World) -> None:
    send(world)
    row = repairs_of(world)[EVERY_GROUP]
    failed = RepairChange(state=RepairState.FAILED, rung=Rung.END)
    assert world.ledger.repairs.change(row, failed, token="run") is not None


def hand_over_again(world: World) -> None:
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["billing"])


def hand_over_to_another(world: World) -> None:
    world.ledger.hand_overs.insert(world.environment, message(1), groups=["shipping"])


def consume(world: World) -> None:
    consumed = entry(1, Verdict.CONSUMED, SETTLED)
    world.ledger.candidates.record(shard(world.environment, group="shipping"), [consumed])


def reopen_verdict(world: World) -> None:
    assert world.ledger.candidates.reopen(candidates_of(world)[0])


def judge_a_third_group(world: World) -> None:
    world.ledger.candidates.record(shard(world.environment, group="audit"), [entry(1)])


@pytest.mark.parametrize(
    "act",
    [
        reopen_repair, send, send_and_fail, hand_over_again, hand_over_to_another,
        consume, reopen_verdict, judge_a_third_group,
    ],
)  # fmt: skip
def test_a_key_that_has_changed_since_it_was_read_is_left_as_it_is(world: World, act: Callable[[World], None]) -> None:
    given_up(world)
    as_read = closing_of(world, EVERY_GROUP, "billing")
    world.clock.advance(1)
    act(world)
    before = (candidates_of(world), repairs_of(world))
    assert not world.ledger.closings.close(as_read)
    assert (candidates_of(world), repairs_of(world)) == before
    assert seen_of(*(before[0], before[1].values())) != seen_of(as_read.candidates, as_read.repairs) or act in {
        reopen_repair,
        hand_over_again,
        hand_over_to_another,
    }


def test_a_row_that_somebody_holds_is_not_closed_until_its_claim_has_run_out(world: World) -> None:
    given_up(world)
    hand_over_again(world)
    row = world.ledger.repairs.claim(repairs_of(world)["billing"], token="worker", lease_seconds=60)
    assert row is not None
    as_read = closing_of(world, "billing")
    assert world.ledger.closings.claimed(closing_of(world, EVERY_GROUP, "shipping")) is None
    world.clock.advance(60)
    assert not world.ledger.closings.close(as_read)
    assert world.ledger.closings.claimed(as_read) == row
    assert {row.state for row in candidates_of(world)} == {QUARANTINED}
    world.clock.advance(0.001)
    assert world.ledger.closings.claimed(as_read) is None
    assert world.ledger.closings.close(as_read)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    assert world.ledger.repairs.change(row, sending, token="worker") is None, "it stops before its handler"


def test_of_two_who_close_the_same_key_the_second_one_is_told(world: World) -> None:
    given_up(world)
    first, second = closing_of(world, EVERY_GROUP), closing_of(world, EVERY_GROUP)
    assert world.ledger.closings.close(first)
    assert not world.ledger.closings.close(replace(second, answer=REPAIR_DISMISSED(by="ben", reason="refunded")))
    assert repairs_of(world)[EVERY_GROUP].answer == TEXT


def test_other_keys_topics_and_environments_stay(world: World) -> None:
    given_up(world)
    others = [
        shard(world.environment, topic="ORDERS2"),
        shard(world.environment + "x"),
    ]
    for other in others:
        world.ledger.candidates.record(other, [entry(1, Verdict.QUARANTINED, QUARANTINED)])
    world.ledger.candidates.record(shard(world.environment), [entry(2, Verdict.QUARANTINED, QUARANTINED)])
    assert world.ledger.closings.close(closing_of(world, EVERY_GROUP, "billing"))
    left = [*others, shard(world.environment)]
    for of, number in zip(left, (1, 1, 2), strict=True):
        assert world.ledger.candidates.of_keys(of.subscription, [key(number)])[key(number)].state is QUARANTINED


def handing_over(world: World) -> KeyAsRead:
    """Of the key, as its rows are now."""
    return KeyAsRead(
        environment=world.environment,
        topic="ORDERS",
        unique_key=key(1),
        candidates=candidates_of(world),
        repairs=list(repairs_of(world).values()),
    )


def test_a_hand_over_by_hand_is_a_row_like_every_other_one(world: World) -> None:
    given_up(world)
    for group in GROUPS:  # billing's has failed before, shipping has none
        assert world.ledger.closings.hand_over(handing_over(world), message(1), group=group)
    rows = repairs_of(world)
    assert [(rows[group].state, rows[group].rung, rows[group].attempts) for group in GROUPS] == [
        (RepairState.OPEN, Rung.HAND_OVER, 0)
    ] * 2
    assert rows[EVERY_GROUP].state is RepairState.FAILED
    handed = world.ledger.hand_overs.message_of(rows["shipping"])
    assert handed is not None
    assert handed.body == message(1).body


@pytest.mark.parametrize(
    "act",
    [
        reopen_repair, send, send_and_fail, hand_over_again, hand_over_to_another,
        consume, reopen_verdict, judge_a_third_group,
    ],
)  # fmt: skip
def test_nothing_is_handed_over_or_taken_back_of_a_key_that_has_changed(
    world: World, act: Callable[[World], None]
) -> None:
    given_up(world)
    as_read = handing_over(world)
    world.clock.advance(1)
    act(world)
    before = (candidates_of(world), repairs_of(world))
    assert not world.ledger.closings.hand_over(as_read, message(1), group="billing")
    assert not world.ledger.closings.cancel(as_read, group="billing")
    assert (candidates_of(world), repairs_of(world)) == before


def test_of_two_who_hand_over_the_same_key_the_second_one_is_told(world: World) -> None:
    given_up(world)
    first, second = handing_over(world), handing_over(world)
    assert world.ledger.closings.hand_over(first, message(1), group="billing")
    assert not world.ledger.closings.hand_over(second, message(1), group="billing")


def test_a_hand_over_that_is_taken_back_leaves_no_row_and_its_worker_finds_nothing(world: World) -> None:
    given_up(world)
    assert world.ledger.closings.hand_over(handing_over(world), message(1), group="shipping")
    row = repairs_of(world)["shipping"]
    assert world.ledger.closings.cancel(handing_over(world), group="shipping")
    assert "shipping" not in repairs_of(world)
    assert world.ledger.repairs.claim(row, token="worker", lease_seconds=60) is None
    assert not world.ledger.closings.cancel(handing_over(world), group="shipping")
    assert not world.ledger.closings.cancel(handing_over(world), group="billing"), "it has failed, and waits for nobody"


def test_a_hand_over_that_a_worker_has_is_not_taken_back_until_it_has_let_go_before_its_handler(world: World) -> None:
    given_up(world)
    assert world.ledger.closings.hand_over(handing_over(world), message(1), group="billing")
    row = world.ledger.repairs.claim(repairs_of(world)["billing"], token="worker", lease_seconds=60)
    assert row is not None
    assert not world.ledger.closings.cancel(handing_over(world), group="billing")
    world.clock.advance(60.001)
    assert world.ledger.closings.cancel(handing_over(world), group="billing")
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    assert world.ledger.repairs.change(row, sending, token="worker") is None, "it stops before its handler"


def test_when_a_worker_last_took_a_row_is_of_its_topic_and_group(world: World) -> None:
    given_up(world)
    closings, of = world.ledger.closings, (world.environment, "ORDERS")
    assert closings.last_taken_ms(*of, group="billing") is None
    hand_over_again(world)
    row = world.ledger.repairs.claim(repairs_of(world)["billing"], token="worker", lease_seconds=60)
    assert row is not None
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.HAND_OVER, counts_as_attempt=True)
    assert world.ledger.repairs.change(row, sending, token="worker") is not None
    at_ms = world.clock.now_ms()
    assert closings.last_taken_ms(*of, group="billing") == at_ms
    assert world.ledger.hand_overs.finish(row, token="worker", answer="applied") is not None
    assert closings.last_taken_ms(*of, group="billing") == at_ms
    assert closings.last_taken_ms(world.environment, "ORDERS2", group="billing") is None
    assert closings.last_taken_ms(*of, group="shipping") is None

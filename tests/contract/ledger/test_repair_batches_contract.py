"""ports.Repairs on every backend: many rows in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.contract.tables import RepairState, Rung
from reconciler.policy.ports.ledger import Repair, RepairChange
from tests.contract.ledger.conftest import World
from tests.contract.ledger.rows import key

#: Not sorted: answers come as they were asked.
NUMBERS = (3, 1, 2)
SENDING = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, target={"broker": "broker-a"})


def opened(world: World, numbers: Sequence[int] = NUMBERS) -> list[Repair]:
    world.ledger.repairs.open_all(world.environment, "ORDERS", dict.fromkeys(map(key, numbers), Rung.END))
    rows = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(n) for n in numbers])
    return [rows[key(n)][0] for n in numbers]


def claimed(world: World) -> list[Repair]:
    claims = [(row, f"mine/{row.unique_key}") for row in opened(world)]
    return [row for row in world.ledger.repairs.claim_all(claims, lease_seconds=60) if row is not None]


def test_repairs_opened_together_are_those_opened_one_by_one_and_rows_that_exist_stay(world: World) -> None:
    world.ledger.repairs.open(world.environment, "ORDERS", key(1), rung=Rung.REPUBLISH)
    rows = opened(world)
    assert [(row.unique_key, row.state, row.rung) for row in rows] == [
        (key(3), RepairState.OPEN, Rung.END),
        (key(1), RepairState.OPEN, Rung.REPUBLISH),
        (key(2), RepairState.OPEN, Rung.END),
    ]
    world.ledger.repairs.open_all(world.environment, "ORDERS", {})


def test_of_rows_claimed_together_those_of_another_owner_are_left_to_it(world: World) -> None:
    rows = opened(world)
    assert world.ledger.repairs.claim(rows[1], token="other", lease_seconds=60) is not None
    mine = world.ledger.repairs.claim_all([(row, f"mine/{n}") for n, row in enumerate(rows)], lease_seconds=60)
    assert [row and row.token for row in mine] == ["mine/0", None, "mine/2"]
    assert world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0].token == "other"


def test_changes_written_together_are_each_under_its_own_token(world: World) -> None:
    rows = claimed(world)
    tokens = [rows[0].token or "", "a zombie's", rows[2].token or ""]
    changed = world.ledger.repairs.change_all([(row, SENDING, token) for row, token in zip(rows, tokens, strict=True)])
    assert [row and (row.unique_key, row.state, row.attempts) for row in changed] == [
        (key(3), RepairState.SENDING, 1),
        None,
        (key(2), RepairState.SENDING, 1),
    ]
    assert all(row is None or row.first_sent_at_ms == world.clock.now_ms() for row in changed)
    untouched = world.ledger.repairs.of_keys(world.environment, "ORDERS", [key(1)])[key(1)][0]
    assert (untouched.state, untouched.attempts, untouched.target) == (RepairState.OPEN, 0, None)


def test_changes_of_every_kind_written_together_are_as_if_written_alone(world: World) -> None:
    repairs = world.ledger.repairs
    first, second, third = claimed(world)
    changes = [
        RepairChange(state=RepairState.OPEN, rung=Rung.REPUBLISH, answer="climbs", wait_seconds=7, releases=True),
        RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True, target={"a": 1}),
        RepairChange(state=RepairState.FAILED, rung=Rung.END, answer="given up"),
    ]
    before = [first, second, third]
    changed = repairs.change_all([(row, change, row.token or "") for row, change in zip(before, changes, strict=True)])
    now_ms = world.clock.now_ms()
    assert [
        row and (row.state, row.rung, row.answer, row.target, row.token is None, row.attempts, row.next_at_ms - now_ms)
        for row in changed
    ] == [
        (RepairState.OPEN, Rung.REPUBLISH, "climbs", None, True, 0, 7_000),
        (RepairState.SENDING, Rung.END, None, {"a": 1}, False, 1, 0),
        (RepairState.FAILED, Rung.END, "given up", None, True, 0, 0),
    ]
    read = repairs.of_keys(world.environment, "ORDERS", [row.unique_key for row in before])
    assert [read[row.unique_key][0] for row in before] == list(changed)


def test_a_row_that_is_named_twice_is_claimed_once(world: World) -> None:
    row = opened(world)[0]
    mine = world.ledger.repairs.claim_all([(row, "one"), (row, "two")], lease_seconds=60)
    assert [one and one.token for one in mine] == ["one", None]


def test_a_batch_of_nothing_changes_nothing(world: World) -> None:
    assert list(world.ledger.repairs.claim_all([], lease_seconds=60)) == []
    assert list(world.ledger.repairs.change_all([])) == []


def test_batches_larger_than_a_statement_are_written_whole(world: World) -> None:
    numbers = range(501)
    claims = [(row, f"mine/{row.unique_key}") for row in opened(world, numbers)]
    mine = world.ledger.repairs.claim_all(claims, lease_seconds=60)
    assert [row and row.token for row in mine] == [token for _, token in claims]

"""Verdicts of a group that gets another name, in each database (SqlCandidates.rename)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.database import ROWS_A_STATEMENT
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.commit_evidence import CommitEvidence
from reconciler.policy.judging.earlier_since import EarlierSince
from reconciler.policy.plan import SubscriptionPlan, TopicPlan
from tests.contract.ledger.conftest import DatabaseWorld
from tests.contract.ledger.rows import entry, key, shard, subscription


def test_rows_of_a_renamed_group_keep_what_they_say_and_take_no_place_of_another(
    database_world: DatabaseWorld,
) -> None:
    world = database_world
    old, new = subscription(world.environment), subscription(world.environment, group="invoices")
    candidates, rows = world.ledger.candidates, range(ROWS_A_STATEMENT + 2)
    settled = [entry(n, Verdict.CONSUMED, CandidateState.SETTLED) for n in rows if n]
    candidates.record(shard(world.environment), [entry(0, Verdict.LOST_CONFIRM), *settled])
    candidates.record(shard(world.environment, group="invoices"), [entry(1, Verdict.RETRYING)])
    candidates.record(shard(world.environment, topic="OTHERS"), [entry(2)])
    before = candidates.of_keys(old, [key(n) for n in rows])
    assert candidates.rename(old, new) == len(rows) - 1
    assert candidates.rename(old, new) == 0
    assert set(candidates.of_keys(old, [key(n) for n in rows])) == {key(1)}
    after = dict(candidates.of_keys(new, [key(n) for n in rows]))
    assert after.pop(key(1)).verdict is Verdict.RETRYING
    assert after == {name: replace(row, subscription=new) for name, row in before.items() if name != key(1)}
    assert len(candidates.of_keys(subscription(world.environment, topic="OTHERS"), [key(2)])) == 1


def test_what_was_dismissed_under_the_old_name_is_dismissed_although_the_new_one_was_judged_already(
    database_world: DatabaseWorld,
) -> None:
    """Settings and `run` came under the new name before the rename."""
    world, settled = database_world, CandidateState.SETTLED
    old, new = subscription(world.environment), subscription(world.environment, group="invoices")
    candidates = world.ledger.candidates
    evidence: dict[str, object] = {"dismissed_by": "ann"}
    dismissed = [entry(n, Verdict.QUARANTINED, settled, evidence=evidence) for n in range(1, 6)]
    shown = [entry(6, Verdict.DELIVERED_NOT_APPLIED, CandidateState.QUARANTINED)]
    candidates.record(shard(world.environment), [*dismissed, *shown])
    candidates.record(shard(world.environment, group="invoices"), [
        entry(1, Verdict.LOST_CONFIRM),
        entry(2, Verdict.QUARANTINED, CandidateState.QUARANTINED, ask_again_seconds=0.0),
        entry(3, Verdict.BEFORE_SINCE, settled),
        entry(4, Verdict.CONSUMED, settled),
        entry(6, Verdict.RETRYING),
    ])  # fmt: skip
    assert candidates.rename(old, new) == 4
    assert candidates.rename(old, new) == 0
    after = candidates.of_keys(new, [key(n) for n in range(1, 7)])
    assert [n for n in range(1, 7) if after[key(n)].is_dismissed] == [1, 2, 3, 5]
    assert {str(after[key(n)].evidence) for n in (1, 2, 3)} == {str(evidence)}
    assert after[key(1)].loss_verdict is Verdict.LOST_CONFIRM
    assert (after[key(4)].verdict, after[key(6)].verdict) == (Verdict.CONSUMED, Verdict.RETRYING)
    assert candidates.to_ask_again(new, limit=9) == candidates.open_losses(new, limit=9) == []


def test_what_waits_under_the_old_name_beside_a_row_of_the_new_one_is_closed_with_its_reason_until_the_name_comes_back(
    database_world: DatabaseWorld,
) -> None:
    """Else `status` would show it for good: no round looks at the name any more."""
    world, lost = database_world, Verdict.LOST_CONFIRM
    old, new = subscription(world.environment), subscription(world.environment, group="invoices")
    candidates = world.ledger.candidates
    waiting = entry(2, Verdict.DELIVERED_NOT_APPLIED, CandidateState.QUARANTINED, ask_again_seconds=0.0)
    settled = entry(3, Verdict.CONSUMED, CandidateState.SETTLED)
    candidates.record(shard(world.environment), [entry(1, lost), waiting, settled])
    candidates.record(shard(world.environment, group="invoices"), [entry(n, lost) for n in (1, 2, 3)])
    assert candidates.rename(old, new) == candidates.rename(old, new) == 0
    rows = candidates.of_keys(old, [key(n) for n in (1, 2, 3)])
    assert [(row.state, row.verdict, row.loss_verdict) for row in (rows[key(n)] for n in (1, 2, 3))] == [
        (CandidateState.SETTLED, Verdict.BEFORE_SINCE, lost),
        (CandidateState.SETTLED, Verdict.BEFORE_SINCE, None),
        (CandidateState.SETTLED, Verdict.CONSUMED, None),
    ]
    assert rows[key(1)].evidence["reason"] == (
        "the group is invoices now, which has a verdict of its own; here it was LOST_CONFIRM"
    )
    assert candidates.to_ask_again(old, limit=9) == candidates.open_losses(old, limit=9) == []
    assert {row.state for row in candidates.of_keys(new, [key(1), key(2)]).values()} == {CandidateState.OPEN}
    plan = SubscriptionPlan(subscription=old)
    topic = TopicPlan(
        environment=world.environment, topic="ORDERS", subscriptions=(plan,), evidence=CommitEvidence(()), shards=8
    )
    opened = EarlierSince(candidates, skew_margin_seconds=1.0)
    for _ in range(4):
        opened.open_again(topic, plan, range(8))
    assert {n: candidates.of_keys(old, [key(n)])[key(n)].state for n in (1, 2, 3)} == {
        1: CandidateState.OPEN, 2: CandidateState.OPEN, 3: CandidateState.SETTLED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("of_old", "of_new", "stands"), [(5, 9, 5), (9, 5, 5), (0, 9, 0), (None, 9, 0), (5, 0, 0), (5, None, 5)]
)
def test_the_new_name_answers_for_messages_since_the_earlier_of_both_times(
    database_world: DatabaseWorld, of_old: int | None, of_new: int | None, stands: int
) -> None:
    """0: always; None: no round was noted, which is always for the old name."""
    world = database_world
    old, new = subscription(world.environment), subscription(world.environment, group="invoices")
    for name, at_ms in ((old, of_old), (new, of_new)):
        if at_ms is not None:
            world.ledger.rounds.begin(name, at_ms=at_ms or None)
    for _ in range(2):
        assert world.ledger.rounds.rename(old, new)
        assert (
            world.ledger.rounds.since_ms(new) == SqlLedger(world.ledger.database.engine).rounds.since_ms(new) == stands
        )

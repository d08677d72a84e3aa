"""Every open loss of one group, of a topic that two groups have: what the other one has lost is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.commands import job_worker, repair
from reconciler.commands.job_worker import JobWorker
from reconciler.commands.jobs import find_job, place_repair
from reconciler.commands.repair import RepairLine, repair_now
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports import Verification
from reconciler.policy.round import ReconcileRound
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import ledger_metadata
from reconciler.wiring.connections import Connections
from tests.unit.service.test_business_ids import key, written

ROOT = Path(__file__).parents[3]
GROUPS = ("billing", "shipping")
LOST_BY_BILLING, LOST_BY_BOTH, LOST_BY_SHIPPING = map(key, range(3))
EXPECTED = {
    "billing": {("billing", LOST_BY_BILLING), ("billing", LOST_BY_BOTH)},
    "shipping": {("shipping", LOST_BY_BOTH), ("shipping", LOST_BY_SHIPPING)},
}


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Connections]:
    """The outbox has all keys; each group has lost two."""
    ledger, outbox = f"sqlite:///{tmp_path}/ledger.db", f"sqlite:///{tmp_path}/outbox.db"
    engine = open_engine(ledger)
    ledger_metadata.create_all(engine)
    engine.dispose()
    written(outbox, (0, None, 1), (1, None, 1), (2, None, 1))
    given = {
        "RECONCILER_LEDGER__URL": ledger,
        "RECONCILER_PRODUCERS": json.dumps([{"group": "shop", "topics": ["ORDERS"], "outbox_url": outbox}]),
        "RECONCILER_SUBSCRIPTIONS": json.dumps([{"topic": "ORDERS", "group": group} for group in GROUPS]),
    }
    settings = load_settings(ROOT / "config" / "reconciler.toml", given)
    with Connections(settings) as opened:
        for group, of_group in EXPECTED.items():
            of = Subscription(environment=settings.environment, topic="ORDERS", group=group)
            losses = [
                Verification(
                    unique_key=unique_key, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=1,
                    state=CandidateState.OPEN, wait_seconds=0,
                )
                for _, unique_key in of_group
            ]  # fmt: skip
            opened.ledger.candidates.record(Shard(subscription=of, number=0), losses)
        yield opened


@pytest.fixture
def repaired(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Group and key of each repair; nothing is asked of brokers and Redis."""
    found: list[tuple[str, str]] = []

    def note(
        _rounds: ReconcileRound, _plan: TopicPlan, subscription: Subscription, unique_key: str, *, dry_run: bool
    ) -> RepairLine:
        found.append((subscription.group, unique_key))
        about = {"topic": subscription.topic, "group": subscription.group, "unique_key": unique_key}
        return RepairLine(**about, verdict="LOST_CONFIRM", outcome="planned" if dry_run else "sent", rung="", reason="")

    monkeypatch.setattr(repair, "_repair", note)
    for module in (repair, job_worker):
        monkeypatch.setattr(module, "require_all_dependencies", lambda _: None)
    return found


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("group", GROUPS)
def test_the_command_repairs_nothing_that_only_another_group_has_lost(
    connections: Connections, repaired: list[tuple[str, str]], group: str, dry_run: bool
) -> None:
    report = repair_now(connections, [], topic=None, group=group, dry_run=dry_run, by="anna")
    assert sorted(repaired) == sorted(EXPECTED[group])
    assert (report.lines, len(report.seen)) == (2, 2 if dry_run else 0)


@pytest.mark.parametrize("named", [(), (LOST_BY_BOTH,)])
def test_a_job_repairs_nothing_that_only_another_group_has_lost(
    connections: Connections, repaired: list[tuple[str, str]], named: tuple[str, ...]
) -> None:
    job = place_repair(connections, named, topic="ORDERS", group="shipping", reason="", by="anna")
    assert JobWorker(connections, is_over=lambda: False).work_one()
    assert find_job(connections, job.job_id).counts == {"sent": len(repaired)}
    assert sorted(repaired) == sorted(one for one in EXPECTED["shipping"] if not named or one[1] in named)

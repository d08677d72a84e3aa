"""Repairs of what a person chose, by topic, group and key: what other subscriptions have lost is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.commands.acts import job_worker, repair
from reconciler.commands.acts.hand_over import ledger_rows
from reconciler.commands.acts.job_worker import JobWorker
from reconciler.commands.acts.jobs import find_job, place_repair
from reconciler.commands.acts.repair import RepairLine, failed_keys, repair_now
from reconciler.contract.outcomes import JUDGED_FIRST, WOULD_BE_OPENED
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import EVERY_GROUP, CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Verdict
from reconciler.ledger.repairs import new_row
from reconciler.policy.plan import TopicPlan
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.policy.round import ReconcileRound
from reconciler.settings.file import load_settings
from reconciler.sql.tables import ledger_metadata
from reconciler.sql.tables import repair as repair_table
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import make_tables
from tests.unit.service.test_business_ids import key, written

ROOT = Path(__file__).parents[3]
Loss = tuple[str, str, str]
KEYS = [key(number) for number in range(4)]
#: Open, and no loss: nothing repairs it unless it is named.
UNKNOWN_KEY = key(8)
#: Topic, group and key.
LOSSES: set[Loss] = {
    ("ORDERS", "billing", KEYS[0]),
    ("ORDERS", "billing", KEYS[1]),
    ("ORDERS", "shipping", KEYS[1]),
    ("ORDERS", "shipping", KEYS[2]),
    ("REFUNDS", "billing", KEYS[3]),
}
SUBSCRIPTIONS = sorted({(topic, group) for topic, group, _ in LOSSES})
#: Topic, group, and named keys.
CHOICES: list[tuple[str | None, str | None, tuple[str, ...]]] = [
    (None, "billing", ()),
    (None, "shipping", ()),
    ("ORDERS", "billing", ()),
    ("REFUNDS", None, ()),
    (None, "shipping", (KEYS[1],)),
    (None, None, (KEYS[3],)),
]


def chosen(topic: str | None, group: str | None, named: Sequence[str]) -> list[Loss]:
    return sorted(
        one for one in LOSSES if topic in (None, one[0]) and group in (None, one[1]) and (not named or one[2] in named)
    )


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Connections]:
    """The outbox has all keys; each subscription has lost its own, and has one of which nothing is known yet."""
    ledger, outbox = f"sqlite:///{tmp_path}/ledger.db", f"sqlite:///{tmp_path}/outbox.db"
    make_tables(ledger, ledger_metadata)
    written(outbox, (0, None, 1), (1, None, 1), (2, None, 1))
    written(outbox, (3, None, 1), topic="REFUNDS")
    producer = {"group": "shop", "topics": ["ORDERS", "REFUNDS"], "outbox_url": outbox}
    given = {
        "RECONCILER_LEDGER__URL": ledger,
        "RECONCILER_PRODUCERS": json.dumps([producer]),
        "RECONCILER_SUBSCRIPTIONS": json.dumps([{"topic": topic, "group": group} for topic, group in SUBSCRIPTIONS]),
    }
    settings = load_settings(ROOT / "config" / "reconciler.toml", given)
    with Connections(settings) as opened:
        for topic, group in SUBSCRIPTIONS:
            of = Subscription(environment=settings.environment, topic=topic, group=group)
            losses = [
                VerdictEntry(
                    unique_key=unique_key, verdict=Verdict.LOST_CONFIRM, evidence={}, first_seen_ms=1,
                    state=CandidateState.OPEN, wait_seconds=0,
                )
                for _, _, unique_key in chosen(topic, group, ())
            ]  # fmt: skip
            losses.append(replace(losses[0], unique_key=UNKNOWN_KEY, verdict=Verdict.UNKNOWN))
            opened.ledger.candidates.record(Shard(subscription=of, number=0), losses)
        yield opened


@pytest.fixture
def repaired(monkeypatch: pytest.MonkeyPatch) -> list[Loss]:
    """Each repair, by the rounds and the plan of its topic; nothing is asked of brokers and Redis."""
    found: list[Loss] = []
    topics_of: dict[ReconcileRound, str] = {}

    def note(
        rounds: ReconcileRound, plan: TopicPlan, subscription: Subscription, unique_key: str, *, dry_run: bool
    ) -> RepairLine:
        assert topics_of.setdefault(rounds, plan.topic) == plan.topic == subscription.topic
        found.append((subscription.topic, subscription.group, unique_key))
        of = {"topic": subscription.topic, "group": subscription.group, "unique_key": unique_key}
        line = RepairLine(**of, verdict="LOST_CONFIRM", outcome="sent", rung="", reason=None)
        return replace(line, outcome="planned", reason=WOULD_BE_OPENED()) if dry_run else line

    monkeypatch.setattr(repair, "_repair", note)
    for module in (repair, job_worker):
        monkeypatch.setattr(module, "require_all_dependencies", lambda _: None)
    return found


@pytest.mark.parametrize(("topic", "group", "named"), CHOICES)
def test_the_command_repairs_what_was_chosen_and_nothing_else(
    connections: Connections, repaired: list[Loss], topic: str | None, group: str | None, named: tuple[str, ...]
) -> None:
    wanted = chosen(topic, group, named)
    planned = repair_now(connections, named, topic=topic, group=group, dry_run=True, by="anna")
    assert sorted(repaired) == wanted
    assert (planned.lines, set(planned.seen)) == (len(wanted), {one[2] for one in wanted})
    repaired.clear()
    repair_now(connections, named, topic=topic, group=group, dry_run=False, by="anna")
    assert sorted(repaired) == wanted


@pytest.mark.usefixtures("repaired")
@pytest.mark.parametrize(
    ("enabled", "topics", "held"),
    [
        (True, {}, {}),
        (False, {}, {"ORDERS": "repairs.enabled = false", "REFUNDS": "repairs.enabled = false"}),
        (True, {"REFUNDS": False}, {"REFUNDS": "repairs.topics.REFUNDS = false"}),
        (False, {"REFUNDS": True}, {"ORDERS": "repairs.enabled = false"}),
    ],
)
def test_a_topic_is_held_back_by_its_own_setting_and_else_by_that_of_all(
    connections: Connections, enabled: bool, topics: dict[str, bool], held: dict[str, str]
) -> None:
    repairs = connections.settings.repairs.model_copy(update={"enabled": enabled, "topics": topics})
    connections.settings = connections.settings.model_copy(update={"repairs": repairs})
    lines = repair_now(connections, (), topic=None, group=None, dry_run=True, by="anna").keys
    reasons = {line.topic: line.reason for line in lines if line.outcome == "held"}
    assert {topic: str(why.fields["by"]) for topic, why in reasons.items() if why} == {
        topic: str((by,)) for topic, by in held.items()
    }


@pytest.mark.parametrize(("topic", "group", "named"), CHOICES)
def test_a_job_repairs_what_was_chosen_and_nothing_else(
    connections: Connections, repaired: list[Loss], topic: str | None, group: str | None, named: tuple[str, ...]
) -> None:
    job = place_repair(connections, named, topic=topic, group=group, reason="", by="anna")
    assert JobWorker(connections, is_over=lambda: False).work_one()
    assert find_job(connections, job.job_id).counts == {"sent": len(repaired)}
    assert sorted(repaired) == chosen(topic, group, named)


def test_a_job_tells_the_one_of_its_keys_that_nobody_has(connections: Connections, repaired: list[Loss]) -> None:
    job = place_repair(connections, [KEYS[0], key(9)], topic=None, group="billing", reason="", by="anna")
    assert JobWorker(connections, is_over=lambda: False).work_one()
    done = find_job(connections, job.job_id)
    assert done.counts == {"sent": 1, "unheard": 1}
    assert [line["unique_key"] for line in done.lines] == [key(9)]
    assert repaired == [("ORDERS", "billing", KEYS[0])]


def test_of_every_open_loss_what_was_not_shown_or_has_changed_is_left(
    connections: Connections, repaired: list[Loss]
) -> None:
    """The person saw two of the three that billing has lost, one of them as it is no more."""
    shown = {KEYS[0]: "another", KEYS[1]: ledger_rows(connections, KEYS[1]).seen}
    report = repair_now(connections, [], topic=None, group="billing", dry_run=False, by="anna", seen=shown)
    assert repaired == [("ORDERS", "billing", KEYS[1])]
    assert {line.unique_key: (line.verdict, line.outcome) for line in report.keys} == {
        KEYS[0]: ("LOST_CONFIRM", "changed"),
        KEYS[1]: ("LOST_CONFIRM", "sent"),
    }


def test_what_failed_for_a_group_is_tried_again_for_the_groups_that_lack_it(
    connections: Connections, repaired: list[Loss]
) -> None:
    """shipping has the effect of the one whose repair for every group has failed; that of another group is its own."""
    environment, database = connections.settings.environment, connections.ledger.database
    of_shipping = Subscription(environment=environment, topic="ORDERS", group="shipping")
    done = VerdictEntry(
        unique_key=KEYS[1], verdict=Verdict.CONSUMED, evidence={}, first_seen_ms=1, state=CandidateState.SETTLED,
        wait_seconds=0,
    )  # fmt: skip
    connections.ledger.candidates.record(Shard(subscription=of_shipping, number=0), [done])
    failed = (EVERY_GROUP, KEYS[1]), ("shipping", KEYS[2]), ("shipping", KEYS[0])
    with database.writing() as connection:
        for scope, unique_key in failed:
            row = new_row(database, (environment, "ORDERS", scope, unique_key), Rung.END)
            connection.execute(sa.insert(repair_table).values(row | {"state": RepairState.FAILED.value}))
    for topic, group, keys in (
        (None, "billing", {KEYS[1]}), (None, "shipping", {KEYS[2]}), (None, None, {KEYS[1], KEYS[2]}),
        ("REFUNDS", None, set()),
    ):  # fmt: skip
        assert set(failed_keys(connections, topic=topic, group=group, limit=9)) == keys
    planned = repair_now(connections, [], topic=None, group=None, is_failed=True, dry_run=True, by="anna")
    lines = [("ORDERS", "billing", KEYS[1]), ("ORDERS", "shipping", KEYS[2])]
    assert (repaired, planned.lines, set(planned.seen)) == (lines, 2, {KEYS[1], KEYS[2]})
    repaired.clear()
    seen = {KEYS[2]: planned.seen[KEYS[2]]}
    repair_now(connections, [], topic=None, group=None, is_failed=True, dry_run=False, by="anna", seen=seen)
    assert repaired == lines[1:]


def test_a_preview_shows_all_that_it_counts_although_it_judges_a_few(
    connections: Connections, repaired: list[Loss], monkeypatch: pytest.MonkeyPatch
) -> None:
    of: dict[str, Any] = {"topic": None, "group": "billing", "dry_run": True, "by": "anna", "judged_max": 1}
    planned = repair_now(connections, [], **of)
    keys = [unique_key for _, _, unique_key in chosen(None, "billing", ())]
    assert len(repaired) == 1
    assert planned.seen == {key: ledger_rows(connections, key).seen for key in keys}
    assert [note.code for note in planned.notes] == [JUDGED_FIRST]
    monkeypatch.setattr(repair, "SHOWN_KEYS_MAX", 2)
    planned = repair_now(connections, [], **of)
    assert len(planned.seen) == 2
    assert said(planned.notes[-1]) == "one act takes the first 2 of 3 messages: repeat it for the rest"


def test_a_dry_run_tells_the_brake_of_one_topic_for_no_other(connections: Connections, repaired: list[Loss]) -> None:
    connections.ledger.holds.place(connections.settings.environment, "REFUNDS", HoldKind.HOLD, by="anna", reason="")
    report = repair_now(connections, [], topic=None, group="billing", dry_run=True, by="anna")
    assert {(line.topic, line.outcome) for line in report.keys} == {("ORDERS", "planned"), ("REFUNDS", "held")}
    assert len(repaired) == len(report.keys) == 3

"""A ledger of an older release is brought up to date with its rows, and goes on working."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from alembic import command

from reconciler.clock import ManualClock
from reconciler.contract.facts import Fact
from reconciler.contract.kept_facts import ACT_GROUP_RENAME, REPAIR_DISMISSED, TOO_MANY
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.stored_facts import column_of
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, HoldKind, RepairState, Rung
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.errors import ConfigurationError
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.retention import SqlRetention
from reconciler.ledger.rounds import SqlRounds
from reconciler.ledger.since import ASK_AGAIN_SECONDS
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.announcing import AnnouncementQueue
from reconciler.policy.ports.ledger import RepairChange, VerdictEntry
from reconciler.policy.ports.rounds import RestingShard
from reconciler.sql import schema
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.tables import repair
from reconciler.telling.ports.actions import Intent
from reconciler.telling.undecided_keys import read_undecided
from reconciler.words import said

OF = Subscription(environment="prod", topic="ORDERS", group="billing")
RENAMING = Intent(by="anna", command="group rename", group="billing")
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=3)


def ledger_at(url: str, revision: str) -> sa.Engine:
    """Its tables as they were before the revision that follows."""
    config, engine = schema._config("ledger"), open_engine(url)
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    return engine


def test_floors_are_kept_in_a_ledger_that_was_not_upgraded_and_get_proofs_after_it(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ledger_at(database_url, "0011_notice")
    ledger = SqlLedger(engine)
    record = QueueRecord(queue_offset=8, stored_at_ms=1, commit_log_offset=2, unique_key="A0" * 16)
    for offset in (7, 9):
        proof = QueueProof(following=offset, record=replace(record, queue_offset=offset - 1))
        ledger.rounds.raise_floor(OF, {"broker-a/3": offset}, {"broker-a/3": proof})
        seen = ledger.announcements.floor(OF, QUEUE)
        assert seen is not None
        assert (seen.queue_offset, seen.proof) == (offset, None)
    assert [one.queue_offset for one in ledger.reports.floors(OF)] == [9]
    assert "reconciler db upgrade ledger" in caplog.text
    schema.upgrade(database_url, "ledger")
    proof = QueueProof(following=12, record=replace(record, queue_offset=11))
    ledger.rounds.raise_floor(OF, {"broker-a/3": 12}, {"broker-a/3": proof})
    seen = ledger.announcements.floor(OF, QUEUE)
    assert seen is not None
    assert (seen.queue_offset, seen.proof) == (12, proof)
    engine.dispose()


def test_a_ledger_that_was_not_upgraded_bounds_no_subscription_and_the_upgrade_gives_old_ones_no_bound(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ledger_at(database_url, "0012_floor_proof")
    clock = ManualClock()
    database, added = LedgerDatabase(engine), replace(OF, group="new")
    rounds = SqlRounds(database, SqlFloors(database), SqlRests(database, clock=clock), clock=clock)
    for _ in range(3):
        assert (rounds.since_ms(OF), rounds.begin(OF, at_ms=5)) == (0, 0)
        assert not rounds.keep_rest({OF: [RestingShard(round_at_ms=1, offsets={})]}, seconds_ago=0)
    assert caplog.text.count("since_not_kept") == 1
    rounds.raise_floor(OF, {"broker-a/3": 7})  # it has rounds
    schema.upgrade(database_url, "ledger")
    assert rounds.since_ms(OF) == 0
    clock.advance(ASK_AGAIN_SECONDS)
    assert rounds.since_ms(OF) is rounds.since_ms(added) is None
    assert (rounds.begin(OF, at_ms=5), rounds.begin(added, at_ms=5)) == (0, 5)
    assert rounds.keep_rest({OF: [RestingShard(round_at_ms=1, offsets={})]}, seconds_ago=0)
    engine.dispose()


def test_candidates_are_kept_in_a_ledger_that_was_not_upgraded_and_tell_their_cause_after_it(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And a cause that an older release has left beside its own verdict counts for nothing."""
    engine = ledger_at(database_url, "0013_subscription")
    ledger = SqlLedger(engine)
    held = VerdictEntry(
        unique_key="A0" * 16,
        verdict=Verdict.UNKNOWN,
        evidence={"reason": "inbox: away", "undecided": {"by": "witness", "since_ms": 5}},
        first_seen_ms=9,
        state=CandidateState.OPEN,
        wait_seconds=0.0,
        undecided_by=Undecided.WITNESS,
        undecided_since_ms=5,
    )
    for _ in range(2):  # inserted, then updated
        ledger.candidates.record(Shard(subscription=OF, number=0), [held])
    assert ledger.candidates.undecided_rows(OF, Undecided.WITNESS, most=9) is None
    found = read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100, handed_out_ms=100)
    assert found.held is not None
    assert (found.held.unique_key, found.held_count, found.held.attempts) == (held.unique_key, 1, 2)
    assert caplog.text.count("has no column undecided_by") == 1
    assert [row.unique_key for row in ledger.reports.candidates("prod", limit=9).rows] == [held.unique_key]
    schema.upgrade(database_url, "ledger")
    ledger.candidates.record(Shard(subscription=OF, number=0), [held])
    rows = ledger.candidates.undecided_rows(OF, Undecided.WITNESS, most=9)
    assert rows is not None
    assert rows.count == 1
    assert read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100, handed_out_ms=100) == replace(
        found, held=rows.oldest, other_oldest_ms=9
    )
    with writing(engine) as connection:
        connection.execute(sa.text("UPDATE reconciler_candidate SET state = 'SETTLED', verdict = 'CONSUMED'"))
    assert read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100, handed_out_ms=100).held is None
    engine.dispose()


def test_dismissals_are_known_in_a_ledger_that_was_not_upgraded_and_have_their_fact_after_it(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing by whose fact a later command decides is begun before it."""
    engine = ledger_at(database_url, "0014_undecided")
    ledger, keys = SqlLedger(engine, english=said), [f"{number:032X}" for number in range(3)]
    answers: list[Fact | str] = [REPAIR_DISMISSED(by="anna", reason="paid"), "applied", "Dismissed by"]
    for key, answer in zip(keys, answers, strict=True):
        ledger.repairs.open("prod", "ORDERS", key, rung=Rung.END)
        (row,) = ledger.repairs.of_keys("prod", "ORDERS", [key])[key]
        assert ledger.repairs.claim(row, token="t", lease_seconds=60) is not None
        done = RepairChange(state=RepairState.DONE, rung=Rung.END, answer=answer)
        assert ledger.repairs.change(row, done, token="t") is not None
    with pytest.raises(ConfigurationError, match="reconciler db upgrade ledger"):
        ledger.actions.begin("prod", RENAMING, fact=ACT_GROUP_RENAME(old="billing", new="invoices"))
    ledger.actions.end(ledger.actions.begin("prod", RENAMING), "done")
    assert [act.result for act in ledger.reports.actions("prod", limit=9).rows] == ["done"]

    def dismissed() -> list[str]:
        assert ledger.repairs.claimable("prod", "ORDERS", scope="*", limit=9) == []
        return [row.unique_key for row in ledger.reports.repairs("prod", limit=9).rows if row.is_dismissed]

    assert dismissed() == keys[:1]
    assert caplog.text.count("has no column answer_fact") == 1
    schema.upgrade(database_url, "ledger")
    assert dismissed() == keys[:1]
    with reading(engine) as connection:
        kept = connection.execute(sa.select(repair.c.unique_key, repair.c.answer, repair.c.answer_fact)).all()
    fact = REPAIR_DISMISSED(by="anna", reason="paid")
    assert {key: text for key, _, text in kept if text} == {keys[0]: column_of(fact, "dismissed by anna: paid")}
    assert SqlRetention(ledger.database, keep_days=-1).delete_old("prod").repairs == 2
    assert dismissed() == keys[:1]
    ledger.actions.begin("prod", RENAMING, fact=ACT_GROUP_RENAME(old="billing", new="invoices"))
    engine.dispose()


def test_a_hold_has_no_end_in_a_ledger_that_was_not_upgraded_and_none_once_0_2_0_has_held_the_topic_too(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ledger_at(database_url, "0015_facts")
    ledger = SqlLedger(engine)
    with pytest.raises(ConfigurationError, match="reconciler db upgrade ledger"):
        ledger.holds.place("prod", "ORDERS", HoldKind.HOLD, by="anna", reason="release", until_ms=5_000)
    assert ledger.holds.place("prod", "ORDERS", HoldKind.HOLD, by="anna", reason="release")
    (held,) = ledger.reports.holds("prod")
    assert ledger.holds.lift_seen("prod", held) == {HoldKind.HOLD}
    assert caplog.text.count("has no column fact: a hold has no end") == 1
    schema.upgrade(database_url, "ledger")
    assert ledger.holds.place("prod", "ORDERS", HoldKind.HOLD, by="anna", reason="release", until_ms=5_000)
    (held,) = ledger.reports.holds("prod")
    assert held.until_ms == 5_000
    with writing(engine) as connection:  # as 0.2.0 does it
        connection.execute(sa.text("UPDATE reconciler_hold SET reason = 'ben: other; release'"))
    (held,) = ledger.reports.holds("prod")
    assert (held.until_ms, held.reason) == (None, "ben: other; release")
    engine.dispose()


def test_why_the_breaker_opened_is_text_until_the_ledger_is_upgraded_and_again_once_0_2_0_has_opened_it_too(
    database_url: str,
) -> None:
    engine = ledger_at(database_url, "0015_facts")
    ledger = SqlLedger(engine, english=said)
    storm, text = TOO_MANY(losses=1_500, ceiling=1_000.0), "1500 new losses in one round: more than 1000"

    def why() -> tuple[str, Fact | str, Fact | None]:
        (held,) = ledger.reports.holds("prod")
        (trouble,) = ledger.notices.standing("prod", ())
        assert trouble.detail == held.reason
        return held.reason, held.why, trouble.cause

    assert ledger.holds.place("prod", "ORDERS", HoldKind.BREAKER, by="run", reason=storm)
    assert why() == (text, text, None)
    schema.upgrade(database_url, "ledger")
    assert why() == (text, text, None)
    assert not ledger.holds.place("prod", "ORDERS", HoldKind.BREAKER, by="run", reason=storm)
    assert why() == (text, storm, storm)
    with writing(engine) as connection:  # as 0.2.0 does it
        connection.execute(sa.text("UPDATE reconciler_hold SET reason = '9 of 60 messages were found nowhere'"))
    assert why() == ("9 of 60 messages were found nowhere", "9 of 60 messages were found nowhere", None)
    engine.dispose()

"""A ledger of an older release is brought up to date with its rows, and goes on working."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from reconciler.clock import ManualClock
from reconciler.contract.queue_proof import QueueProof, QueueRecord
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import Undecided, Verdict
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.floors import SqlFloors
from reconciler.ledger.rounds import SqlRounds
from reconciler.ledger.since import ASK_AGAIN_SECONDS
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports import AnnouncementQueue, RepairChange, Verification
from reconciler.policy.undecided_keys import read_undecided
from reconciler.sql import schema
from reconciler.sql.engines import open_engine, reading, writing
from reconciler.sql.repair_rows import RepairRows

OF = Subscription(environment="prod", topic="ORDERS", group="billing")
QUEUE = AnnouncementQueue(unique_key_topic="RECONCILER_UNIQUE_KEY", broker="broker-a", queue_id=3)
SENT_MS = 1_700_000_000_000
ROWS: list[dict[str, Any]] = [
    {"unique_key": "A0" * 16, "state": "OPEN", "attempts": 0, "sent_at_ms": None},
    {"unique_key": "B0" * 16, "state": "SENT", "attempts": 2, "sent_at_ms": SENT_MS},
    {"unique_key": "C0" * 16, "state": "DONE", "attempts": 1, "sent_at_ms": SENT_MS},
]


def ledger_of_revision_1(url: str) -> None:
    config = schema._config("ledger")
    engine = open_engine(url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001_ledger")
        for row in ROWS:
            values = {"environment": "prod", "topic": "ORDERS", "scope": "*", "rung": "end", "next_at_ms": 0}
            columns = values | {"created_at_ms": SENT_MS - 9} | row
            names, places = ", ".join(columns), ", ".join(f":{name}" for name in columns)
            connection.execute(sa.text(f"INSERT INTO reconciler_repair ({names}) VALUES ({places})"), columns)
    engine.dispose()


def test_an_upgrade_keeps_the_repairs_of_the_first_revision_and_does_not_guess_their_first_send(
    database_url: str,
) -> None:
    ledger_of_revision_1(database_url)
    assert schema.current(database_url, "ledger") == "0001_ledger"
    assert schema.upgrade(database_url, "ledger") == "0014_undecided"
    engine = open_engine(database_url)
    query = (
        "SELECT unique_key, state, attempts, sent_at_ms, first_sent_at_ms FROM reconciler_repair ORDER BY unique_key"
    )
    with reading(engine) as connection:
        found = [dict(row._mapping) for row in connection.execute(sa.text(query))]
    assert found == [row | {"first_sent_at_ms": None} for row in ROWS]
    engine.dispose()


def test_after_the_upgrade_only_a_row_that_was_never_sent_gets_a_first_send(database_url: str) -> None:
    ledger_of_revision_1(database_url)
    schema.upgrade(database_url, "ledger")
    engine = open_engine(database_url)
    rows = RepairRows(engine)
    sending = RepairChange(state=RepairState.SENDING, rung=Rung.END, counts_as_attempt=True)
    found = {}
    for repair in rows.claimable("prod", "ORDERS", scope="*", limit=9):
        mine = rows.claim(repair, token="me", lease_seconds=60)
        assert mine is not None
        changed = rows.change(mine, sending, token="me")
        assert changed is not None
        found[changed.unique_key[:2]] = changed
    assert found["A0"].first_sent_at_ms == found["A0"].sent_at_ms
    assert found["A0"].sent_at_ms is not None
    assert found["B0"].first_sent_at_ms is None, "its third send is not its first"
    assert found["B0"].attempts == 3
    engine.dispose()


def test_the_way_back_drops_the_column_and_no_row(database_url: str) -> None:
    ledger_of_revision_1(database_url)
    schema.upgrade(database_url, "ledger")
    config = schema._config("ledger")
    engine = open_engine(database_url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001_ledger")
    with reading(engine) as connection:
        assert len(connection.execute(sa.text("SELECT * FROM reconciler_repair")).all()) == len(ROWS)
        columns = {column["name"] for column in sa.inspect(connection).get_columns("reconciler_repair")}
    assert "first_sent_at_ms" not in columns
    engine.dispose()


def test_floors_are_kept_in_a_ledger_that_was_not_upgraded_and_get_proofs_after_it(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema.upgrade(database_url, "ledger")
    config = schema._config("ledger")
    engine = open_engine(database_url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0011_notice")
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
    schema.upgrade(database_url, "ledger")
    config = schema._config("ledger")
    engine = open_engine(database_url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0012_floor_proof")
    clock = ManualClock()
    rounds, added = (
        SqlRounds(LedgerDatabase(engine), SqlFloors(LedgerDatabase(engine)), clock=clock),
        replace(OF, group="new"),
    )
    for _ in range(3):
        assert (rounds.since_ms(OF), rounds.begin(OF, at_ms=5)) == (0, 0)
    assert caplog.text.count("since_not_kept") == 1
    rounds.raise_floor(OF, {"broker-a/3": 7})  # it has rounds
    schema.upgrade(database_url, "ledger")
    assert rounds.since_ms(OF) == 0
    clock.advance(ASK_AGAIN_SECONDS)
    assert rounds.since_ms(OF) is rounds.since_ms(added) is None
    assert (rounds.begin(OF, at_ms=5), rounds.begin(added, at_ms=5)) == (0, 5)
    engine.dispose()


def test_candidates_are_kept_in_a_ledger_that_was_not_upgraded_and_tell_their_cause_after_it(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And a cause that an older release has left beside its own verdict counts for nothing."""
    schema.upgrade(database_url, "ledger")
    config = schema._config("ledger")
    engine = open_engine(database_url)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0013_subscription")
    ledger = SqlLedger(engine)
    held = Verification(
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
    found = read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100)
    assert found.held is not None
    assert (found.held.unique_key, found.held_count, found.held.attempts) == (held.unique_key, 1, 2)
    assert caplog.text.count("has no column undecided_by") == 1
    assert [row.unique_key for row in ledger.reports.candidates("prod", limit=9).rows] == [held.unique_key]
    schema.upgrade(database_url, "ledger")
    ledger.candidates.record(Shard(subscription=OF, number=0), [held])
    rows = ledger.candidates.undecided_rows(OF, Undecided.WITNESS, most=9)
    assert rows is not None
    assert rows.count == 1
    assert read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100) == replace(
        found, held=rows.oldest, other_oldest_ms=9
    )
    with writing(engine) as connection:
        connection.execute(sa.text("UPDATE reconciler_candidate SET state = 'SETTLED', verdict = 'CONSUMED'"))
    assert read_undecided(ledger.candidates, OF, asked_ms=1_000, within_ms=100).held is None
    engine.dispose()

"""The window that the demo has its audit judge, over hand-made databases."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.demo.audit_step import window_of
from reconciler.demo.job import DemoJob
from reconciler.demo.truth import REFERENCE, connect
from reconciler.sql import tables

WRITTEN_MS = 100_000
_OUTBOX = (
    "INSERT INTO reconciler_outbox (unique_key, topic, producer_group, state, created_at_ms)"
    " VALUES (?, 'ORDERS', 'demo', 'SETTLED', ?)"
)
_LEDGER = (
    "INSERT INTO reconciler_candidate (environment, topic, consumer_group, unique_key, shard, state, verdict, evidence,"
    " attempts, first_seen_ms, next_at_ms, updated_at_ms) VALUES ('demo', 'ORDERS', 'g', ?, 0, 'SETTLED', 'CONSUMED',"
    " '{}', 1, ?, 1, 1)"
)
_INBOX = (
    "INSERT INTO reconciler_inbox (consumer_group, unique_key, topic, source, applied_at_ms)"
    " VALUES ('g', ?, 'ORDERS', 'consumer', ?)"
)


@pytest.mark.parametrize(
    ("judged_ms", "applied_ms", "end_ms"),
    [
        (None, None, WRITTEN_MS + 1),
        (WRITTEN_MS + 5_000, None, WRITTEN_MS + 1),
        (WRITTEN_MS + 5_001, None, WRITTEN_MS + 2),
        (WRITTEN_MS + 9_000, WRITTEN_MS + 8_000, WRITTEN_MS + 3_001),
        (WRITTEN_MS + 8_000, WRITTEN_MS + 9_000, WRITTEN_MS + 3_001),
    ],
)
def test_a_key_that_was_seen_late_is_in_the_window(
    tmp_path: Path, judged_ms: int | None, applied_ms: int | None, end_ms: int
) -> None:
    job = DemoJob(
        run="1", folder=str(tmp_path), name_servers="", redis_url="", messages=2, lose=1, seed=1, shards=1,
        repair_order=(), accept_unverified_redis=False,
    )  # fmt: skip
    files = job.files
    for path, metadata in (
        (files.outbox, tables.outbox_metadata),
        (files.ledger, tables.ledger_metadata),
        (files.inbox(REFERENCE), tables.inbox_metadata),
    ):
        engine = sa.create_engine(f"sqlite:///{path}")
        metadata.create_all(engine)
        engine.dispose()
    with closing(connect(files.outbox)) as db:
        db.execute(_OUTBOX, ("first", WRITTEN_MS - 7_000))
        db.execute(_OUTBOX, ("last", WRITTEN_MS))
    for path, sql, at_ms in ((files.ledger, _LEDGER, judged_ms), (files.inbox(REFERENCE), _INBOX, applied_ms)):
        with closing(connect(path)) as db:
            if at_ms is not None:
                db.execute(sql, ("last", at_ms))
    assert window_of(job) == (WRITTEN_MS - 7_000, end_ms)

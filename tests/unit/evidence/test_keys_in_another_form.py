"""A database gives a key in another form, such as PostgreSQL's CHAR with blanks at its end: that is no absence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.contract.subscription import Subscription
from reconciler.contract.tables import OutboxState
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.evidence.outbox import SqlOutboxReader
from reconciler.policy.commit_evidence import CommitSource
from reconciler.policy.ports.evidence import WHENEVER_COMMITTED_MS
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox, outbox

TOPIC, GROUP = "ORDERS", "billing"
KEY, OTHER = "C0A80001A1B2000000003C5DE2A0000B", "C0A80001A1B2000000003C5DE2A0000C"
#: What the database has in place of the key, and the collation that takes it for the key.
FORMS = [(f"{KEY}    ", "RTRIM"), (KEY.lower(), "NOCASE")]


@pytest.fixture(params=FORMS, ids=("blanks", "case"))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An outbox and an inbox with the row of one key, in another form."""
    stored, collation = request.param
    opened = open_engine(f"sqlite:///{tmp_path}/shop.db")
    for table, tree in ((outbox, "outbox"), (inbox, "inbox")):
        schema.upgrade(f"sqlite:///{tmp_path}/shop.db", tree)
        with opened.begin() as connection:
            (ddl,) = connection.exec_driver_sql(
                f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = '{table.name}'"
            ).scalars()
            connection.exec_driver_sql(f"DROP TABLE {table.name}")
            folding = f"unique_key VARCHAR(64) COLLATE {collation}"
            connection.exec_driver_sql(ddl.replace("unique_key VARCHAR(64)", folding, 1))
    row = {"unique_key": stored, "topic": TOPIC}
    committed = {**row, "producer_group": "shop", "state": OutboxState.NEW.value, "created_at_ms": 1}
    applied = {**row, "consumer_group": GROUP, "source": "consumer", "applied_at_ms": 1}
    with opened.begin() as connection:
        connection.execute(sa.insert(outbox).values(committed))
        connection.execute(sa.insert(inbox).values(applied))
    yield opened
    opened.dispose()


def test_a_committed_row_in_another_form_is_no_rejection(engine: sa.Engine) -> None:
    source = CommitSource(producer_group="shop", topics=frozenset({TOPIC}), url=str(engine.url))
    with closing(SqlOutboxReader([source])) as reader:
        answers = reader.look_up(TOPIC, dict.fromkeys((KEY, OTHER), WHENEVER_COMMITTED_MS))
    assert answers[KEY].is_unknown
    assert answers[KEY].damage is not None
    assert answers[OTHER].is_absent, "nothing looks like this key"


def test_an_effect_in_another_form_is_no_missing_effect(engine: sa.Engine) -> None:
    subscription = Subscription(environment="test", topic=TOPIC, group=GROUP)
    answers = SqlInboxEvidence({subscription: [engine]}).look_up(subscription, [KEY, OTHER])
    assert answers[KEY].is_unknown
    assert answers[KEY].damage is not None
    assert answers[OTHER].is_absent

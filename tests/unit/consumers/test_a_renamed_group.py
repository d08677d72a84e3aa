"""A group gets another name by the statement of the page: what had its effect under the old name has it once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_consumers.handler import TransactionalHandler, transactional_handler
from checkback_consumers.message import ConsumedMessage
from reconciler.contract.tables import INBOX
from reconciler.rocketmq.consumer.listener import ConsumeStatus
from tests.unit.consumers.messages import effect_count, effects, inbox_engine, message, sqlite_url

PAGE = (Path(__file__).parents[3] / "docs/how-to/operations.md").read_text(encoding="utf-8")


def group(engine: sa.Engine, name: str) -> TransactionalHandler:
    @transactional_handler(engine, group=name)
    def pay(received: ConsumedMessage, connection: sa.Connection) -> None:
        connection.execute(effects.insert().values(unique_key=received.unique_key, amount=1))

    return pay


@pytest.mark.parametrize("has_copied", [False, True])
def test_the_renamed_group_repeats_no_effect_once_its_inbox_rows_are_copied(tmp_path: Path, has_copied: bool) -> None:
    received, later = message(), message()
    found = re.search(r"INSERT INTO reconciler_inbox [^`]+", PAGE)
    assert found is not None
    statement = " ".join(found[0].split()).replace("OLD", "billing").replace("NEW", "invoices")
    assert all(column.name in statement for column in INBOX.columns)
    with inbox_engine(sqlite_url(tmp_path)) as engine:
        assert group(engine, "billing")(received) is ConsumeStatus.CONSUME_SUCCESS
        if has_copied:
            with engine.begin() as connection:
                connection.execute(sa.text(statement))
        renamed = group(engine, "invoices")
        assert renamed(received) is renamed(later) is ConsumeStatus.CONSUME_SUCCESS
        assert effect_count(engine, received.unique_key) == (1 if has_copied else 2)
        assert effect_count(engine, later.unique_key) == 1

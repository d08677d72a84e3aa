"""Which texts of a row are read back: those that MySQL and MariaDB can change."""

from __future__ import annotations

import pytest

from reconciler.contract.tables import OUTBOX
from reconciler.sql.kept_texts import texts_in_doubt

ROW: dict[str, object] = {
    "unique_key": "A" * 64,
    "topic": "ORDERS",
    "tag": "t" * 160,
    "message_keys": "k" * 100_000,
    "business_id": None,
    "half_commit_log_offset": 7,
    "body": b"\xff" * 1_000,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"tag": "t" * 161}, {"tag"}),
        ({"tag": "paid é"}, {"tag"}),
        ({"message_keys": "o-1 \N{MONEY BAG}", "topic": "T" * 161}, {"message_keys", "topic"}),
    ],
)
def test_texts_that_are_not_plain_or_longer_than_their_column_are_in_doubt(
    changes: dict[str, object], expected: set[str]
) -> None:
    row = ROW | changes
    assert texts_in_doubt("mysql", OUTBOX, row) == {name: row[name] for name in expected}


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_databases_that_keep_or_refuse_a_text_are_asked_nothing(dialect: str) -> None:
    assert not texts_in_doubt(dialect, OUTBOX, ROW | {"tag": "\N{MONEY BAG}" * 200})

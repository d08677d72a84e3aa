"""A group's inbox in several databases: an effect in any counts, an absence needs all, two effects are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.contract.reasons import DOUBLE_EFFECT
from reconciler.contract.subscription import Subscription
from reconciler.errors import ConfigurationError, DatabaseAway
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.policy.evidence import InboxRow, Lookup, Presence
from reconciler.policy.inquiry.delivery import double_effect
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox
from reconciler.words import said
from tests.unit.consumers.messages import inbox_engine, new_key

SUBSCRIPTION = Subscription(environment="test", topic="ORDERS", group="billing")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[list[sa.Engine]]:
    with (
        inbox_engine(f"sqlite:///{tmp_path}/a.db") as first,
        inbox_engine(f"sqlite:///{tmp_path}/b.db") as second,
        inbox_engine(f"sqlite:///{tmp_path}/c.db") as third,
    ):
        yield [first, second, third]


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = open_engine(f"sqlite:///{tmp_path}/nowhere/d.db")
    yield engine
    engine.dispose()


def insert(engine: sa.Engine, key: str, applied_at_ms: Any = 1_000) -> None:
    row = {"consumer_group": "billing", "unique_key": key, "topic": "ORDERS", "source": "consumer"}
    with engine.begin() as connection:
        connection.execute(inbox.insert().values(**row, applied_at_ms=applied_at_ms))


def asked(engines: list[sa.Engine], key: str) -> Lookup[InboxRow]:
    return SqlInboxEvidence({SUBSCRIPTION: engines}).look_up(SUBSCRIPTION, [key, new_key()])[key]


def test_an_effect_in_any_database_is_found_and_an_absence_needs_all_of_them(
    engines: list[sa.Engine], gone: sa.Engine
) -> None:
    key = new_key()
    assert asked(engines, key).presence is Presence.ABSENT
    assert asked([*engines, gone], key).presence is Presence.UNKNOWN
    insert(engines[1], key)
    assert asked(engines, key).presence is Presence.FOUND
    assert asked(engines, key).is_complete
    away = asked([gone, *engines], key)
    assert away.presence is Presence.FOUND
    assert not away.is_complete
    assert [answer.presence.value for answer in away.answers] == ["FOUND", "UNKNOWN", "ABSENT", "ABSENT"]


def test_a_key_in_two_databases_is_two_effects_and_both_are_shown(engines: list[sa.Engine]) -> None:
    key = new_key()
    insert(engines[2], key, 1_000)
    assert double_effect(asked(engines, key)) is None
    insert(engines[0], key, 2_000)
    found = asked(engines, key)
    assert [row.applied_at_ms for row in found.records] == [1_000, 2_000]
    assert double_effect(found) == DOUBLE_EFFECT(applied=(1_000, 2_000))
    assert "a.db" in said(found.reason)
    assert "c.db" in said(found.reason)


def test_an_effect_that_may_be_half_in_one_database_leaves_the_key_unknown_beside_a_whole_one(
    engines: list[sa.Engine],
) -> None:
    key = new_key()
    insert(engines[0], key)
    insert(engines[1], key)
    with engines[1].begin() as connection:
        connection.execute(sa.update(inbox).values(incomplete="begun"))
    found = asked(engines, key)
    assert found.presence is Presence.UNKNOWN
    assert found.incomplete is not None
    assert "b.db: incomplete" in said(found.incomplete)


def test_a_row_that_nobody_can_read_may_be_a_second_effect(engines: list[sa.Engine], gone: sa.Engine) -> None:
    key = new_key()
    insert(engines[0], key)
    insert(engines[1], key)
    with engines[1].begin() as connection:
        connection.execute(sa.text("UPDATE reconciler_inbox SET applied_at_ms = 'soon'"))
    found = asked(engines, key)
    assert found.presence is Presence.UNKNOWN
    assert "applied_at_ms" in str(found.damage)
    assert asked([*engines, gone], key).damage is None  # who is away comes back, and may decide it


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_the_scan_after_an_outage_leaves_out_no_key_of_any_database(engines: list[sa.Engine], limit: int) -> None:
    keys = [new_key() for _ in range(40)]
    for number, key in enumerate(keys):
        insert(engines[number % 3], key, 1_000 + number // 10)
    doubled = keys[17]
    insert(engines[0], doubled, 1_001)  # the same place in two databases
    evidence = SqlInboxEvidence({SUBSCRIPTION: engines})
    seen: list[tuple[Any, str]] = []
    after: tuple[int, str] | None = None
    while page := evidence.applied_since(SUBSCRIPTION, since_ms=1_000, after=after, limit=limit):
        assert len(page) <= limit
        seen += [(row.applied_at_ms, row.unique_key) for row in page]
        after = (page[-1].applied_at_ms, page[-1].unique_key)
    assert {key for _, key in seen} == set(keys)
    assert seen == sorted(seen)
    assert len(seen) <= len(keys) + 1
    assert evidence.newest_ms(SUBSCRIPTION) == 1_003


def test_a_row_without_a_time_stays_behind_all_others_of_the_scan(engines: list[sa.Engine]) -> None:
    damaged, late, early = new_key(), new_key(), new_key()
    insert(engines[0], damaged)
    with engines[0].begin() as connection:
        connection.execute(sa.text("UPDATE reconciler_inbox SET applied_at_ms = 'soon'"))
    insert(engines[1], late, 2_000)
    insert(engines[2], early, 1_000)
    page = SqlInboxEvidence({SUBSCRIPTION: engines}).applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=10)
    assert [row.unique_key for row in page] == [early, late, damaged]
    assert [row.damage is None for row in page] == [True, True, False]


def test_a_scan_that_cannot_read_all_databases_says_so(engines: list[sa.Engine], gone: sa.Engine) -> None:
    evidence = SqlInboxEvidence({SUBSCRIPTION: [*engines, gone]})
    with pytest.raises(DatabaseAway):
        evidence.applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=10)
    with pytest.raises(DatabaseAway):
        evidence.newest_ms(SUBSCRIPTION)


def test_an_empty_list_is_no_inbox() -> None:
    evidence = SqlInboxEvidence({SUBSCRIPTION: []})
    assert not evidence.is_configured(SUBSCRIPTION)
    assert evidence.look_up(SUBSCRIPTION, ["A"])["A"].is_unknown


def test_a_scan_asks_for_the_columns_again_once_one_of_them_is_gone(engines: list[sa.Engine]) -> None:
    """A right may be revoked, or a table put back as it was: the error of one scan is not that of all later ones."""
    insert(engines[0], key := new_key())
    evidence = SqlInboxEvidence({SUBSCRIPTION: engines[:1]})

    def scanned() -> list[str]:
        return [row.unique_key for row in evidence.applied_since(SUBSCRIPTION, since_ms=0, after=None, limit=10)]

    assert scanned() == [key]
    with engines[0].begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_inbox RENAME COLUMN incomplete TO gone")
    with pytest.raises(ConfigurationError):
        scanned()
    assert scanned() == [key]

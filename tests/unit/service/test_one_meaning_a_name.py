"""What is shown never contradicts itself: one meaning a column, times as times, a database by the name it goes by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkback_producers.counts import Counts
from reconciler.cli.report_commands import _evidence
from reconciler.clock import utc_text
from reconciler.commands.explain import Explanation
from reconciler.commands.status.report import StatusReport
from reconciler.contract.subscription import Subscription
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.sql.driver_errors import shown
from reconciler.sql.engines import open_engine
from reconciler.sql.tables import inbox_metadata
from reconciler.sql.witness_database import DatabaseRole, absence
from reconciler.telling.life_story import LifeStory
from reconciler.words import said
from tests.engines import disposed, make_tables
from tests.unit.web.reports import facts_of

KEY = "7F00000100002A9F0000000000000090"
CALM = StatusReport(subscriptions=(), verdicts=(), repairs=(), holds=(), outages=(), away=())


def test_no_two_columns_of_status_have_one_name_or_one_name_two_meanings() -> None:
    tables = {name: [column.removesuffix("_ms") for column in columns] for name, columns, _rows in CALM._parts()}
    assert all(len(set(columns)) == len(columns) for columns in tables.values()), tables
    assert [name for name, columns in tables.items() if "watermark" in columns] == ["subscriptions"], "the group's"


def test_counts_are_all_there_before_anything_is_counted() -> None:
    counts = Counts()
    before = counts.as_dict()
    counts.add("announcements_failed", 2)
    assert set(before.values()) == {0}
    assert counts.as_dict() == before | {"announcements_failed": 2}


def test_nothing_is_said_to_be_in_flight_of_a_key_that_nobody_has_heard_of() -> None:
    def unheard(*, silent: tuple[str, ...] = (), away: tuple[str, ...] = ()) -> Explanation:
        story = LifeStory(unique_key=KEY, events=(), silent=facts_of(*silent), away=facts_of(*away), outlook=())
        return Explanation(stories=(story,))

    assert (unheard().exit_code, said(unheard().unheard)) == (2, f"no witness knows {KEY}")
    assert said(unheard(silent=("outbox: gone",)).unheard) == f"no witness that answered knows {KEY}"
    away = unheard(away=("redis",))
    assert (away.exit_code, said(away.unheard).split(" knows")[0]) == (3, "no witness that answered")


def test_milliseconds_in_evidence_are_times_for_people_however_deep_they_lie() -> None:
    shown = _evidence({"first_seen_ms": 1_000, "taken_back": {"at_ms": 2_000, "attempts": 3}, "answer": None})
    assert shown == 'first_seen 1970-01-01T00:00:01.000Z, taken_back {"at": "1970-01-01T00:00:02.000Z", "attempts": 3}'
    replica = absence("outbox of shop", DatabaseRole(is_primary=False, swept_at_ms=3_000), 4_000)
    assert "of 1970-01-01T00:00:03Z" in said(replica.fact)


@pytest.mark.parametrize("at_ms", [2**63 - 1, -(2**63), 10**18])
def test_a_time_that_no_calendar_has_ends_no_command(at_ms: int) -> None:
    assert utc_text(at_ms) == f"{at_ms} ms"


def test_a_time_is_rounded_down_also_before_1970() -> None:
    assert utc_text(1_999) == "1970-01-01T00:00:01Z"
    assert utc_text(-1, timespec="milliseconds") == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:secret@db.shop:5433/orders?sslmode=prefer", "postgresql://db.shop:5433/orders"),
        ("mysql://me:secret@db.shop/orders", "mysql://db.shop/orders"),
        ("postgresql:///orders?host=/run/postgresql", "postgresql:///orders?host=/run/postgresql"),
        ("sqlite:////data/orders.db", "sqlite:////data/orders.db"),
    ],
)
def test_a_database_has_one_name_whether_it_is_read_or_written(url: str, name: str) -> None:
    for read_only in (False, True):
        with disposed(open_engine(url, read_only=read_only)) as engine:
            assert shown(engine) == name


def test_the_evidence_of_an_inbox_names_its_database_as_it_is_in_the_settings(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/billing.db"
    make_tables(url, inbox_metadata)
    subscription = Subscription(environment="test", topic="ORDERS", group="billing")
    with disposed(open_engine(url, read_only=True)) as reading:
        answer = SqlInboxEvidence({subscription: [reading]}).look_up(subscription, [KEY])[KEY]
    assert [one.witness for one in answer.answers] == [f"inbox {url}"]
    assert not re.search(r"%2F|mode=|pysqlite", said(answer.reason))

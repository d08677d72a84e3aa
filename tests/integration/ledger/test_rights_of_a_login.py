"""A login that may not do what a service needs: every turn would end in its middle, and rounds would look alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.commands.doctor.needed_rights import NeededRights, needed_rights
from reconciler.commands.doctor.rights import diagnosis_of
from reconciler.contract.tables import NoticeKind
from reconciler.errors import DatabaseAway
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.settings.file import load_settings
from reconciler.sql.engines import open_engine
from reconciler.sql.rights import lacks_right, refused_rights
from reconciler.sql.tables import ledger_metadata, outbox_metadata
from reconciler.telling.conversations import Pace
from reconciler.telling.ledger_silence import SILENT_MS
from reconciler.telling.notifier import Listener, NoticeService
from reconciler.telling.ports.notices import Notice

ROOT = Path(__file__).parents[3]
LOGIN, PASSWORD = "reader", "reader"

#: Grants -> engines of the tables' owner and of a login that has these grants alone.
Logins = Callable[[sa.MetaData, Mapping[str, str]], tuple[sa.Engine, sa.Engine]]


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.sql("postgres")),
        pytest.param("mariadb", marks=pytest.mark.sql("mariadb")),
    ]
)
def logins(request: pytest.FixtureRequest) -> Iterator[Logins]:
    is_postgres = request.param == "postgres"
    who = LOGIN if is_postgres else f"'{LOGIN}'@'127.0.0.1'"
    with ExitStack() as stack:

        def make(tables: sa.MetaData, grants: Mapping[str, str]) -> tuple[sa.Engine, sa.Engine]:
            owner = open_engine(request.getfixturevalue(f"{request.param}_server").create_database())
            stack.callback(owner.dispose)
            tables.create_all(owner)
            with owner.begin() as connection:
                if is_postgres:
                    connection.exec_driver_sql(f"DROP ROLE IF EXISTS {LOGIN}")
                    connection.exec_driver_sql(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{PASSWORD}'")
                else:
                    connection.exec_driver_sql(f"CREATE OR REPLACE USER {who} IDENTIFIED BY '{PASSWORD}'")
                for table, verbs in grants.items():
                    connection.exec_driver_sql(f"GRANT {verbs} ON {table} TO {who}")

            def take_away() -> None:
                with owner.begin() as connection:
                    connection.exec_driver_sql(f"DROP OWNED BY {LOGIN}" if is_postgres else f"DROP USER {who}")

            stack.callback(take_away)
            limited = owner.url.set(username=LOGIN, password=PASSWORD).render_as_string(hide_password=False)
            engine = open_engine(limited)
            stack.callback(engine.dispose)
            return owner, engine

        yield make


def needed(tree: str) -> NeededRights:
    """What is needed of the one database of a tree that a small deployment has."""
    environ = {
        "RECONCILER_PRODUCERS": '[{"group": "shop", "topics": ["ORDERS"], "outbox_url": "sqlite:////shop.db"}]',
        "RECONCILER_SUBSCRIPTIONS": '[{"topic": "ORDERS", "group": "billing", "inbox_url": "sqlite:////billing.db"}]',
    }
    (found,) = (
        one
        for one in needed_rights(load_settings(ROOT / "config" / "reconciler.toml", environ))
        if one.database.tree == tree
    )
    return found


LEDGER, OUTBOX = needed("ledger"), needed("outbox")
#: What a sweeper needs of reconciler_outbox_filter.
ALL = "SELECT, INSERT, UPDATE (tags, version)"


def test_login_that_cannot_open_a_repair_is_told_before_a_loss_is_proved(logins: Logins) -> None:
    everything = {table.name: "SELECT, INSERT, UPDATE, DELETE" for table in ledger_metadata.sorted_tables}
    owner, limited = logins(ledger_metadata, everything | {"reconciler_repair": "SELECT, UPDATE, DELETE"})
    fine = diagnosis_of(LEDGER, refused_rights(owner, LEDGER.run)).as_row()
    assert (fine.level, fine.found.partition(";")[0]) == ("ok", "SELECT, INSERT, UPDATE, DELETE on 11 tables")
    found = diagnosis_of(LEDGER, refused_rights(limited, LEDGER.run)).as_row()
    assert (found.check, found.level) == ("rights in the ledger", "fail")
    assert found.found.startswith("run may not INSERT reconciler_repair: ")
    assert "denied" in found.found
    assert found.remedy == "GRANT INSERT ON reconciler_repair"


@pytest.mark.parametrize(
    ("outbox", "identity", "filters", "level", "says"),
    [
        (
            "SELECT, UPDATE (state, announced_at_ms, settled_at_ms), DELETE",
            "SELECT, UPDATE (swept_at_ms)",
            ALL,
            "ok",
            "",
        ),
        ("SELECT, UPDATE, DELETE", "SELECT", ALL, "fail", "sweep may not UPDATE reconciler_outbox_identity: "),
        ("SELECT, UPDATE", "SELECT, UPDATE", ALL, "fail", "sweep may not DELETE reconciler_outbox: "),
        ("SELECT", "SELECT", "", "note", "may only SELECT on reconciler_outbox, reconciler_outbox_identity"),
        ("SELECT", "SELECT", "SELECT", "note", "may only SELECT on reconciler_outbox, "),  # doctor's, too
        ("UPDATE", "SELECT, UPDATE", ALL, "fail", "run and sweep may not SELECT reconciler_outbox, "),
    ],
)
def test_sweeper_that_cannot_mark_or_delete_is_told_and_a_login_for_run_alone_is_none(
    logins: Logins, outbox: str, identity: str, filters: str, level: str, says: str
) -> None:
    tables = {"reconciler_outbox": outbox, "reconciler_outbox_identity": identity, "reconciler_outbox_filter": filters}
    tables = {name: verbs for name, verbs in tables.items() if verbs}
    _, limited = logins(outbox_metadata, tables)
    found = diagnosis_of(OUTBOX, refused_rights(limited, (*OUTBOX.run, *OUTBOX.sweep))).as_row()
    assert (found.check, found.level) == ("rights in the outbox of shop", level)
    assert found.found.startswith(says)


def test_column_of_a_later_release_is_no_missing_right(logins: Logins) -> None:
    owner, _ = logins(outbox_metadata, {})
    with owner.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE reconciler_outbox_identity DROP COLUMN swept_at_ms")
    assert refused_rights(owner, (*OUTBOX.run, *OUTBOX.sweep)) == {}


def test_looking_for_rights_changes_no_row_and_a_busy_file_is_no_missing_right(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/ledger.db", lock_timeout_seconds=0.1)
    ledger_metadata.create_all(engine)
    assert refused_rights(engine, LEDGER.run) == {}
    with engine.connect() as connection, connection.begin():
        with pytest.raises(DatabaseAway):
            refused_rights(engine, LEDGER.run)
        tables = ledger_metadata.sorted_tables
        counts = [connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in tables]
    assert counts == [0] * len(tables)
    engine.dispose()


@dataclass(slots=True)
class _Told:
    """A channel that keeps what it is given."""

    notices: list[Notice] = field(default_factory=list)
    refusals: tuple[str, ...] = ()

    def send(self, notice: Notice, *, at_ms: int) -> None:
        self.notices.append(notice)


def test_ledger_that_refuses_the_login_of_a_notifier_is_told_as_one_that_is_away(
    logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    _, limited = logins(ledger_metadata, {"reconciler_candidate": "SELECT"})
    ledger, clock, channel = SqlLedger(limited), ManualClock(), _Told()
    pace = Pace(interval_seconds=900, reminder_seconds=14_400)
    on_call = Listener(name="on-call", kinds=frozenset(NoticeKind), pace=pace, channel=channel)
    service = NoticeService(
        ledger.notices,
        ledger.reports,
        environment="test",
        subscriptions=[],
        listeners=[on_call],
        clock=clock,
        is_refusal=lacks_right,
    )
    for _ in range(3):
        service.look()
        clock.advance(SILENT_MS / 1000)
        service.send("on-call")
        service.tell_silence()
    assert not channel.notices
    assert [record.message for record in caplog.records] == ["notices_unread"] * 3

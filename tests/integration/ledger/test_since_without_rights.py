"""A ledger whose owner was upgraded, and whose login has the rights of yesterday: rounds go on, and it is told once."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import sqlalchemy as sa

from reconciler.clock import ManualClock
from reconciler.contract.least_rights import RUN, grants
from reconciler.ledger.database import LedgerDatabase
from reconciler.ledger.rests import SqlRests
from reconciler.ledger.since import ASK_AGAIN_SECONDS, SqlSince
from reconciler.ledger.sql_ledger import SqlLedger
from reconciler.policy.ports.rounds import RestingShard
from reconciler.sql import schema
from reconciler.sql.engines import open_engine
from tests.contract.ledger.rows import new_environment, subscription
from tests.unit.consumers.messages import new_key


@pytest.mark.sql("postgres")
@pytest.mark.parametrize("lacking", [{"SELECT", "INSERT", "UPDATE"}, {"INSERT", "UPDATE"}])
def test_without_the_right_there_is_no_bound_until_it_is_granted(
    postgres_url: str, caplog: pytest.LogCaptureFixture, lacking: set[str]
) -> None:
    schema.upgrade(postgres_url, "ledger")
    owner, name, of = open_engine(postgres_url), f"run_{new_key()[-6:].lower()}", subscription(new_environment())
    rights = [r for r in RUN.ledger if r.table != "reconciler_subscription" or r.verb not in lacking]
    with owner.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        for grant in grants(rights, login=name, is_mysql=False):
            connection.exec_driver_sql(grant)
    login = owner.url.set(username=name, password="x", drivername="postgresql")
    engine, clock = open_engine(login.render_as_string(hide_password=False)), ManualClock()
    try:
        since = SqlSince(LedgerDatabase(engine), clock=clock)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert (since.of(of) or since.begin(of, at_ms=5)) == 0
        assert caplog.text.count("since_not_kept") == 1
        reports = SqlLedger(engine).reports
        assert list(reports.last_rounds(of)) == []
        assert reports.rests_are_hidden() == ("SELECT" in lacking)
        with owner.begin() as connection:
            connection.execute(sa.text(f"GRANT SELECT, INSERT ON reconciler_subscription TO {name}"))
        clock.advance(ASK_AGAIN_SECONDS)
        assert list(reports.last_rounds(of)) == []
        assert not reports.rests_are_hidden()
        assert since.of(of) is None
        assert since.begin(of, at_ms=5) == since.of(of) == 5
        renamed = replace(of, group="invoices")
        assert since.begin(renamed, at_ms=9) == 9
        assert not since.rename(of, renamed), "the row is there, and UPDATE is not granted"
        rests, resting = SqlRests(LedgerDatabase(engine), clock=clock), [RestingShard(round_at_ms=1, offsets={})]
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert not rests.keep({of: resting}, seconds_ago=0)
        assert caplog.text.count("rest_not_kept") == 1
        with owner.begin() as connection:
            connection.execute(sa.text(f"GRANT UPDATE ON reconciler_subscription TO {name}"))
        clock.advance(ASK_AGAIN_SECONDS)
        assert rests.keep({of: resting}, seconds_ago=0)
        assert since.rename(of, renamed)
        assert since.of(renamed) == 5
    finally:
        engine.dispose()
        with owner.begin() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {name}")
            connection.exec_driver_sql(f"DROP ROLE {name}")
        owner.dispose()

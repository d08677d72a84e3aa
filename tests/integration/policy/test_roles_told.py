"""What doctor and status say of databases that are, or may be, replicas."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.commands.diagnosis import Level
from reconciler.commands.doctor.roles import check_primaries
from reconciler.commands.status.primaries import unproved
from reconciler.settings.file import load_settings
from reconciler.sql import schema
from reconciler.sql.tables import outbox_identity
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import begun
from tests.integration.policy.test_proof_of_primaries import login_of
from tests.services import postgres

NOT_PROVED = "not proved to be a primary"

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"


def connections_to(outbox_url: str, inbox_url: str) -> Connections:
    producers = [{"group": "orders", "topics": ["ORDERS"], "outbox_url": outbox_url}]
    subscriptions = [{"topic": "ORDERS", "group": "billing", "inbox_url": inbox_url}]
    found = {"RECONCILER_PRODUCERS": json.dumps(producers), "RECONCILER_SUBSCRIPTIONS": json.dumps(subscriptions)}
    return Connections(load_settings(EXAMPLE, found))


def told(outbox_url: str, inbox_url: str) -> tuple[dict[str, tuple[Level, str]], dict[str, bool]]:
    """doctor: check -> level and what was found; status: database -> whether it blinds us."""
    with connections_to(outbox_url, inbox_url) as connections:
        findings = {f.check: (f.level, f.found) for f in (one.as_row() for one in check_primaries(connections))}
        return findings, {said(standing.database): standing.is_blind(300) for standing in unproved(connections)}


@pytest.mark.sql("postgres")
def test_primaries_and_a_replica_that_shows_life_are_well_and_others_are_named() -> None:
    with (
        postgres.PostgresServer(options={"synchronous_commit": "on"}) as primary,
        postgres.PostgresStandby(primary) as standby,
    ):
        url = primary.create_database()
        for tree in ("outbox", "inbox"):
            schema.upgrade(url, tree)
        standby.catch_up()
        copy = standby.url(str(sa.make_url(url).database))
        findings, doubted = told(url, url)
        level, found = findings["role of outbox of orders"]
        assert (level, found) == ("note", "a primary; no sweep on record")
        assert findings["role of inbox of ORDERS/billing"] == ("ok", "a primary")
        assert doubted == {"outbox of orders": False}

        findings, doubted = told(copy, copy)
        level, found = findings["role of outbox of orders"]
        assert (level, found) == ("fail", f"{NOT_PROVED}: a replica, no sign of life of a sweep has come to it")
        assert findings["role of inbox of ORDERS/billing"] == ("fail", f"{NOT_PROVED}: a replica")
        assert doubted == {"outbox of orders": True, "inbox of ORDERS/billing": True}

        with closing(SqlOutbox(url)) as outbox:
            outbox.mark_swept()
        standby.catch_up()
        findings, doubted = told(copy, url)
        assert findings["role of outbox of orders"][0] == "ok"
        assert doubted == {"outbox of orders": False}
        assert told(url, url)[1] == {}

        with begun(url) as connection:
            long_ago_ms = round(time.time() * 1000) - 3_600_000
            connection.execute(sa.update(outbox_identity).values(swept_at_ms=long_ago_ms))
        standby.catch_up()
        findings, doubted = told(copy, url)
        assert findings["role of outbox of orders"][0] == "fail"
        assert doubted == {"outbox of orders": True}
        level, found = told(url, url)[0]["role of outbox of orders"]
        assert (level, found) == ("note", "a primary; no sweep has shown life for 300 s: what it lacks is UNKNOWN")


@pytest.mark.sql("postgres")
def test_a_proof_that_a_login_may_not_read_is_named_with_what_mends_it_and_blinds_nobody(postgres_url: str) -> None:
    for tree in ("outbox", "inbox"):
        schema.upgrade(postgres_url, tree)
    with begun(postgres_url) as connection:
        connection.exec_driver_sql("REVOKE EXECUTE ON FUNCTION pg_is_in_recovery() FROM PUBLIC")
    rights = ("SELECT ON reconciler_outbox", "SELECT ON reconciler_inbox")
    findings, doubted = told(login_of(postgres_url, *rights), postgres_url)
    level, found = findings["role of outbox of orders"]
    assert level == "note"
    assert found.startswith(NOT_PROVED)
    assert "EXECUTE on pg_is_in_recovery()" in found
    assert doubted == {"outbox of orders": False}

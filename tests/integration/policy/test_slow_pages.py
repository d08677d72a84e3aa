"""A server that needs too long for many rows: pages of sweeps and scans are halved, and the walk goes on.

A policy of row security counts the rows of a transaction. Few come at once; after them it sleeps, as a storage that is
slow, or a table that is spread thin, does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import sqlalchemy as sa

from checkback_producers.outbox import SqlOutbox
from reconciler.contract.subscription import Subscription
from reconciler.evidence.inbox import SqlInboxEvidence
from reconciler.sql import schema, tables
from reconciler.sql.engines import open_engine, writing
from reconciler.sql.pools import close_engine
from reconciler.sql.postgres_deadline import BoundedConnection

pytestmark = pytest.mark.sql("postgres")

#: Deadline of a statement, of which the server takes its share. The client waits until the server has ended it.
STATEMENT_SECONDS = 2.0
CLIENT_SECONDS = 50.0
#: A page of ROWS, and its half, are too large.
ROWS, QUICK_ROWS = 200, 60
GROUP, TOPIC = "orders", "ORDERS"
CREATE_SLOWLY = f"""CREATE FUNCTION slowly() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$$ BEGIN
  PERFORM set_config('slow.rows', (coalesce(nullif(current_setting('slow.rows', true), ''), '0')::int + 1)::text, true);
  IF current_setting('slow.rows')::int > {QUICK_ROWS} THEN PERFORM pg_sleep(60); END IF;
  RETURN true;
END $$"""


def key(number: int) -> str:
    return f"{number:032X}"


@contextmanager
def opened(url: str, seconds: float | None = None) -> Iterator[sa.Engine]:
    engine = open_engine(url, statement_seconds=seconds)
    yield engine
    close_engine(engine)


@pytest.fixture(autouse=True)
def _clients_wait_until_the_server_has_ended_a_statement() -> Iterator[None]:
    def outlast(connection: object, _record: object) -> None:
        if isinstance(connection, BoundedConnection):
            connection.statement_seconds = CLIENT_SECONDS

    sa.event.listen(sa.Pool, "connect", outlast)
    yield
    sa.event.remove(sa.Pool, "connect", outlast)


@pytest.fixture
def slow_url(postgres_url: str) -> str:
    """A login to which many rows of outbox and inbox come slowly, in the order of their indexes."""
    url = sa.make_url(postgres_url)
    login = f"slow_{url.database}"[-30:]
    for tree in ("outbox", "inbox"):
        schema.upgrade(postgres_url, tree)
    with opened(postgres_url) as engine, writing(engine) as connection:
        outbox = {"topic": TOPIC, "producer_group": GROUP, "state": "NEW"}
        inbox = {"topic": TOPIC, "consumer_group": GROUP, "source": "consumer"}
        numbers = range(ROWS)
        connection.execute(
            sa.insert(tables.outbox), [{**outbox, "unique_key": key(n), "created_at_ms": n} for n in numbers]
        )
        connection.execute(
            sa.insert(tables.inbox), [{**inbox, "unique_key": key(n), "applied_at_ms": n} for n in numbers]
        )
        for statement in (
            f"CREATE ROLE {login} LOGIN",
            CREATE_SLOWLY,
            *(
                statement
                for table in ("reconciler_outbox", "reconciler_inbox")
                for statement in (
                    f"GRANT SELECT, UPDATE, DELETE, INSERT ON {table} TO {login}",
                    f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
                    f"CREATE POLICY slow ON {table} USING (slowly())",
                )
            ),
            f"GRANT SELECT ON reconciler_outbox_identity TO {login}",
            # Of so few rows a planner would read all.
            *(f"ALTER ROLE {login} SET {way} = off" for way in ("enable_seqscan", "enable_bitmapscan", "enable_sort")),
        ):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("ANALYZE reconciler_outbox, reconciler_inbox")
    return url.set(username=login).render_as_string(hide_password=False)


def test_a_page_of_a_sweep_that_is_too_slow_stops_the_sweeps_of_an_outbox(slow_url: str) -> None:
    with closing(SqlOutbox(slow_url, statement_seconds=STATEMENT_SECONDS)) as outbox:
        page = outbox.unannounced(GROUP, older_than_seconds=1.0, limit=ROWS)
        assert [fact.unique_key for fact in page.facts] == [key(number) for number in range(ROWS)]


def test_a_page_of_a_scan_after_an_outage_that_is_too_slow_stops_the_scan(slow_url: str) -> None:
    subscription = Subscription(environment="test", topic=TOPIC, group=GROUP)
    with opened(slow_url, STATEMENT_SECONDS) as engine:
        evidence = SqlInboxEvidence({subscription: [engine]})
        rows = evidence.applied_since(subscription, since_ms=0, after=None, limit=ROWS)
        assert [row.unique_key for row in rows] == [key(number) for number in range(ROWS)]
